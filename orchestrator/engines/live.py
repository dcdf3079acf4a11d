"""Which live values an engine may take: the check that every engine makes before it changes anything."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.engines.contract import InForce, KnobValue
from orchestrator.vllm_plugin import SCHEDULER_KNOBS, WORKER_KNOBS

LIVE_KNOBS = (*WORKER_KNOBS, *SCHEDULER_KNOBS)
"""Knobs that a running engine takes in about a millisecond. All others need a new engine."""

_BOUNDED_BY_START = frozenset({"prefill_chunk_size", "max_num_batched_tokens", "max_num_seqs"})
"""Buffers were sized for the value at engine start, so these can only be lowered."""


def check_live_values(values: Mapping[str, KnobValue], start: InForce) -> dict[str, int | None]:
    """Return the value of every live knob, None for those that go to their value at engine start.

    Args:
        values: By knob; a whole number, or None.
        start: What the engine had in force when it started.

    Raises:
        ValueError: An unknown knob, a value that is no whole number, or one out of its range: at least 1 (at least 0
            for ``long_prefill_token_threshold``, where 0 is off), and at most the start value where the engine's
            buffers were sized for that.
    """
    if unknown := sorted(set(values) - set(LIVE_KNOBS)):
        raise ValueError(f"unknown live knob {unknown[0]!r}; known: {', '.join(sorted(LIVE_KNOBS))}")
    return {knob: _checked(knob, values.get(knob), start) for knob in LIVE_KNOBS}


def _checked(knob: str, value: KnobValue, start: InForce) -> int | None:
    if value is None:
        return None
    least = 0 if knob == "long_prefill_token_threshold" else 1
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{knob} must be a whole number of at least {least}, got {value!r}")
    most = getattr(start, knob) if knob in _BOUNDED_BY_START else None
    if most is not None and value > most:
        raise ValueError(f"{knob} must be at most {most}, its value at engine start; got {value}")
    return value
