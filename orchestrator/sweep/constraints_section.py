"""What rules points out: expressions, named sets of vLLM's own constraints, and memory."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

from orchestrator.search import Expression, parse
from orchestrator.sweep.knob_section import checked_condition

_Condition = Annotated[str, AfterValidator(checked_condition)]


def _checked_size(value: Any) -> Any:
    if isinstance(value, str):
        return checked_condition(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ValueError(f"should be a number of GiB, or an expression that gives one; got {value!r}")
    return value


_Gib = Annotated[float | str, BeforeValidator(_checked_size)]
"""GiB, or an expression over the point that gives them."""


class MemorySection(BaseModel):
    """One GPU and what lies on it before any prefill buffer, in GiB; see ``orchestrator.planning.memory.Gpu``.

    Attributes:
        weights_gib: Weights on it, for instance ``640 / tensor_parallel_size``.
        other_peak_gib: Largest transient of vLLM's memory profile other than the context placeholder.
        graph_gib: vLLM's estimate for CUDA graphs.
        other_gib: What else is resident: the driver, communicators, other processes.
        flash_attention_2: Whether the prefill kernel pads values to the width of keys.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    total_gib: _Gib
    weights_gib: _Gib
    other_peak_gib: _Gib = 0.0
    graph_gib: _Gib = 0.0
    other_gib: _Gib = 0.0
    flash_attention_2: bool = False

    def sizes(self) -> dict[str, float | Expression]:
        """Fields of ``Gpu``, in GiB."""
        given = self.model_dump(exclude={"flash_attention_2"})
        return {
            name.replace("_gib", "_bytes"): parse(size) if isinstance(size, str) else size
            for name, size in given.items()
        }


class ConstraintsSection(BaseModel):
    """What a valid point keeps.

    Attributes:
        rules: Expressions that must not be false.
        use: Named sets of ``orchestrator.search.planning_rules``, or single constraints of ``planning.constraints``.
        model: The model whose shape they and ``memory`` reckon with: a name of ``planning.models``.
        memory: Rules out what does not fit on a GPU.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    rules: list[_Condition] = []
    use: list[str] = []
    model: str | None = None
    memory: MemorySection | None = None
