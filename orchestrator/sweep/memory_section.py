"""The part of a sweep spec that says which earlier runs a study learns from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.errors import UserError

if TYPE_CHECKING:
    from orchestrator.sweep.spec import SweepSpec


class MemorySection(BaseModel):
    """Earlier runs; see ``orchestrator.search.memory``.

    Attributes:
        runs: Their folders. They may be of another model, machine or version, and of another space that shares a knob.
        warm_start: Their ranking proposes points, as far as it proves right here.
        reuse: A point that one of them measured under the same conditions is taken from it, not measured again.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    runs: Annotated[list[str], Field(min_length=1)]
    warm_start: bool = True
    reuse: bool = True


def checked_memory(path: Path, spec: SweepSpec) -> MemorySection | None:
    """The section, with absolute folders: a resumed run may be started elsewhere.

    Raises:
        UserError: It does not go with the rest of the spec.
    """
    memory = spec.memory
    if memory is None:
        return None
    if spec.objectives:
        raise UserError(f"{path}: memory: is for one objective; objectives has {len(spec.objectives)}")
    if memory.warm_start and spec.fidelity is not None:
        raise UserError(f"{path}: memory.warm_start: the ladder of fidelity chooses the points: set it to false")
    folders = [str(Path(folder).expanduser().resolve()) for folder in memory.runs]
    if len(set(folders)) < len(folders):
        raise UserError(f"{path}: memory.runs: names a run twice: {', '.join(memory.runs)}")
    return memory.model_copy(update={"runs": folders})
