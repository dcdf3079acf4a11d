"""What a spec of the kernel lab must keep beyond other specs: its arguments, and knobs that its layers have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from orchestrator.engines import LIVE_KNOBS, KnobValue
from orchestrator.engines.kernel_lab import CHUNK_ORDERS, LabArgs, LabError, lab_args
from orchestrator.errors import UserError, unknown_name
from orchestrator.planning import PREFILL_CHUNK_SIZE
from orchestrator.search.flags import is_load
from orchestrator.sweep.spec import SweepSpec

_V4_KNOBS: Final = ("chunk_order", "prefill_area_limit", "prefill_chunk_size")
_NO_EFFECT: Final = ("cpu_chunked_prefill", "planner")
"""Settings of the plugin that change vLLM alone."""


def check_lab_args(path: Path, spec: SweepSpec) -> frozenset[str]:
    """Check the arguments and the plugin's settings of a lab; return the names of all arguments.

    Raises:
        UserError: One line that names the file, the key, the value and what is allowed.
    """
    try:
        args = lab_args(spec.engine.args)
    except LabError as error:
        raise UserError(f"{path}: engine.args: {error.detail}") from error
    for name in _NO_EFFECT:
        if name in spec.engine.plugin.model_dump(exclude_defaults=True):
            raise UserError(f"{path}: engine.plugin.{name}: has no effect on the kernel lab: leave it out")
    for name in spec.space:
        needed = None
        if name == "mla_workspace_rows" and args.mla_kind is None:
            needed = "dense or sparse"
        elif name in _V4_KNOBS and not args.v4_kinds:
            needed = "DeepSeek-V4"
        if needed is not None:
            raise UserError(
                f"{path}: space.{name}: needs {needed} layers; engine.args.layers has {', '.join(args.layers)}"
            )
    return frozenset(LabArgs.model_fields)


def check_lab_values(path: Path, spec: SweepSpec) -> None:
    """Check the values of the lab's own knobs, each beside the arguments of the spec.

    Raises:
        UserError: One line that names the file, the key, the value and what is allowed.
    """
    for key, name, value in _own_values(spec):
        if name == "chunk_order":
            if value not in CHUNK_ORDERS:
                raise unknown_name("chunk order", str(value), CHUNK_ORDERS, where=f"{path}: {key}")
            continue
        try:
            lab_args({**spec.engine.args, name: value})
        except LabError as error:
            raise UserError(f"{path}: {key}: {error.detail}") from error


def lab_start_value(spec: SweepSpec, name: str) -> int | None:
    """Upper bound of a live knob: what the engine's buffers are made for; None where there is none."""
    if name == "prefill_chunk_size":
        return spec.engine.plugin.prefill_chunk_size or PREFILL_CHUNK_SIZE
    start = spec.start_args().get(name) if name in ("max_num_batched_tokens", "max_num_seqs") else None
    return start if isinstance(start, int) else None


def _own_values(spec: SweepSpec) -> Iterator[tuple[str, str, KnobValue]]:
    """Key, knob and value of the knobs that no other engine has; a knob without a value keeps the lab's own."""
    for name, section in spec.space.items():
        if name not in LIVE_KNOBS and not is_load(name):
            given = [(f"space.{name}", value) for value in section.all_values()]
            given.append((f"baseline.{name}", spec.baseline.get(name)))
            yield from ((key, name, value) for key, value in given if value is not None)
