"""The constraints and the memory arithmetic of ``planning`` as rules over the values of a point."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

from orchestrator.errors import UserError, unknown_name
from orchestrator.planning.constraints import CONSTRAINTS, Constraint, violations
from orchestrator.planning.memory import GIB, Gpu, fits
from orchestrator.planning.models import MlaModel
from orchestrator.planning.shape import EngineShape
from orchestrator.search.expressions import Expression, ExpressionError, Values
from orchestrator.search.rules import Rule, RuleError

NAMED_SETS: Final[dict[str, tuple[str, ...]]] = {
    "vllm-dcp": (
        "dcp-divides-tp",
        "dcp-fits-pcp",
        "interleave-divides-block",
        "dcp-divides-workspace",
        "backend-returns-lse",
        "flashinfer-dcp-interleave",
        "speculative-interleave",
        "packed-cache-for-sparse-dcp",
        "all-to-all-needs-dcp",
        "v4-without-dcp",
    ),
    "mla-backend": (
        "block-fits-backend",
        "cache-dtype-fits-backend",
        "quantised-queries-need-fp8",
        "backend-returns-lse",
        "flashinfer-dcp-interleave",
        "packed-cache-for-sparse-dcp",
    ),
    "vllm-scheduler": (
        "batch-covers-seqs",
        "batch-covers-length",
        "threshold-within-length",
        "active-within-seqs",
        "workspace-holds-pages",
    ),
    "vllm-engine": ("heads-divide-tp", "utilisation-is-a-share", "ubatches-alone", "sparse-factor-least"),
}
"""Constraints of ``planning.constraints`` by topic: what ``use`` takes, beside the name of a single one."""

ENGINE_NAMES: Final[Mapping[str, str]] = {
    "attention_backend": "attention_backend",
    "attention_config.backend": "attention_backend",
    "attention_config.sparse_mla_prefill_workspace_factor": "sparse_mla_prefill_workspace_factor",
    "attention_config.use_prefill_query_quantization": "use_prefill_query_quantization",
    "block_size": "block_size",
    "compilation_config.max_cudagraph_capture_size": "max_cudagraph_capture_size",
    "cp_kv_cache_interleave_size": "interleave",
    "data_parallel_size": "dp",
    "dcp_comm_backend": "dcp_comm_backend",
    "dcp_kv_cache_interleave_size": "interleave",
    "decode_context_parallel_size": "dcp",
    "enable_chunked_prefill": "enable_chunked_prefill",
    "enable_dbo": "enable_dbo",
    "gpu_memory_utilization": "gpu_memory_utilization",
    "kv_cache_dtype": "kv_cache_dtype",
    "long_prefill_token_threshold": "long_prefill_token_threshold",
    "max_cudagraph_capture_size": "max_cudagraph_capture_size",
    "max_model_len": "max_model_len",
    "max_num_active_seqs": "max_num_active_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "max_num_seqs": "max_num_seqs",
    "mla_workspace_rows": "mla_workspace_rows",
    "pipeline_parallel_size": "pp",
    "prefill_area_limit": "prefill_area_limit",
    "prefill_chunk_size": "prefill_chunk_size",
    "prefill_context_parallel_size": "pcp",
    "speculative_config.num_speculative_tokens": "num_speculative_tokens",
    "tensor_parallel_size": "tp",
}
"""Fields of ``EngineShape`` by the names of engine arguments and of our plugin's knobs."""

MUST_BE_KNOWN: Final = ("block_size", "max_num_batched_tokens", "max_num_seqs")
"""Arguments whose value is vLLM's own choice where they are not given, by platform and model: rules over the shape of
an engine need them."""

_DIRECT: Final = ("VLLM_USE_DIRECT_DCP_A2A", "VLLM_USE_DIRECT_DCP_Q_GATHER", "VLLM_USE_DIRECT_DCP_KV_GATHER")
_Found = TypeVar("_Found")
_READ: Final = (*ENGINE_NAMES, *_DIRECT)
_BY_NAME: Final = {constraint.name: constraint for constraint in CONSTRAINTS}
_MOST_KEPT: Final = 65_536


def constraints_rule(names: Sequence[str], model: MlaModel, knobs: Collection[str], *, where: str) -> Rule:
    """One rule for the named sets and constraints, with a member for each constraint that the newest known release of
    vLLM has.

    Args:
        names: Of ``NAMED_SETS``, or of single constraints.
        knobs: Names whose values differ from point to point; all others keep theirs.
        where: File and key, for a message.

    Raises:
        UserError: A name is neither.
    """
    chosen: dict[str, Constraint] = {}
    for name in names:
        if name not in NAMED_SETS and name not in _BY_NAME:
            raise unknown_name("set of constraints", name, {*NAMED_SETS, *_BY_NAME}, where=where)
        chosen.update((member, _BY_NAME[member]) for member in NAMED_SETS.get(name, (name,)))
    varying = [name for name in _READ if name in knobs]
    release = EngineShape(model=model).release
    rules = [rule for rule in chosen.values() if rule.applies(release)]

    def compute(values: Values) -> dict[str, str]:
        shape = _shape_of(model, _flags(values))
        return {rule.name: rule.message(shape) for rule in rules if not rule.holds(shape)}

    all_broken = _remembered(varying, compute)

    def first_broken(values: Values) -> str | None:
        return next((f"{name}: {message}" for name, message in all_broken(values).items()), None)

    def member(name: str) -> Rule:
        return Rule(name, frozenset(varying), lambda values: all_broken(values).get(name))

    members = tuple(member(rule.name) for rule in rules)
    return Rule("use", frozenset(varying), first_broken, ", ".join(names), members)


def memory_rule(
    model: MlaModel,
    sizes: Mapping[str, float | Expression],
    knobs: Collection[str],
    *,
    judged: Collection[str] = (),
    flash_attention_2: bool = False,
) -> Rule:
    """The rule that an engine starts, and that its worst batch fits, by ``planning.memory.fits``.

    Args:
        sizes: Fields of ``planning.memory.Gpu`` in GiB for one GPU, each a number or an expression over the point.
        knobs: Names whose values differ from point to point; all others keep theirs.
        judged: Names of constraints that another rule judges: an engine that breaks one of these is left to that.
        flash_attention_2: Whether the prefill kernel pads values to the width of keys.
    """
    read = {name for size in sizes.values() if isinstance(size, Expression) for name in size.names}
    varying = [name for name in dict.fromkeys((*_READ, *sorted(read))) if name in knobs]

    def broken(values: Values) -> str | None:
        shape = _shape_of(model, _flags(values))
        gpu = Gpu(**{name: _bytes(name, size, values) for name, size in sizes.items()})
        found = fits(shape, gpu, flash_attention_2=flash_attention_2)
        if found.serves or any(constraint.name in judged for constraint in violations(shape)):
            return None
        return found.reasons[0]

    text = f"starts on a GPU and serves its worst batch, {model.name}"
    return Rule("memory", frozenset(varying), _remembered(varying, broken), text)


def _remembered(varying: Sequence[str], compute: Callable[[Values], _Found]) -> Callable[[Values], _Found]:
    """The same, computed once for each combination of the values that vary."""
    known: dict[tuple[Any, ...], _Found] = {}

    def look_up(values: Values) -> _Found:
        key = tuple(map(values.get, varying))
        if key not in known:
            if len(known) >= _MOST_KEPT:
                known.clear()
            known[key] = compute(values)
        return known[key]

    return look_up


def _flags(values: Values) -> tuple[tuple[str, Any], ...]:
    flags = {field: values[name] for name, field in ENGINE_NAMES.items() if values.get(name) is not None}
    if any(values.get(name) in (1, True, "1") for name in _DIRECT):
        flags["direct_dcp"] = True
    return tuple(flags.items())


@functools.lru_cache(maxsize=1024)
def _shape_of(model: MlaModel, flags: tuple[tuple[str, Any], ...]) -> EngineShape:
    try:
        return EngineShape(model=model, **dict(flags))
    except (TypeError, ValueError) as error:
        raise RuleError(f"constraints: {error}") from error


def _bytes(name: str, size: float | Expression, values: Values) -> int:
    if not isinstance(size, Expression):
        return int(size * GIB)
    key = f"constraints.memory.{name.replace('_bytes', '_gib')}"
    try:
        number = size.value(values)
    except ExpressionError as error:
        raise RuleError(f"{key}: {error}") from error
    if isinstance(number, bool) or not isinstance(number, (int, float)) or number < 0:
        raise RuleError(f"{key}: {size.text!r} gives {number!r}; it must be a number of GiB")
    return int(number * GIB)


def require_known(known: set[str], *, where: str) -> None:
    """Check that the arguments are given whose defaults are vLLM's own choice.

    Args:
        known: Names that have a value at every point.

    Raises:
        UserError: One of them is not.
    """
    for name in MUST_BE_KNOWN:
        if name not in known:
            raise UserError(
                f"{where}: needs {name} under engine.args: where it is left out, vLLM chooses it by platform and model"
            )
