"""Texts and numbers of the command line, as parts of a plan. Every mistake is one line that names the option."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.errors import UserError, unknown_name
from orchestrator.measurement import Slo
from orchestrator.sweep.bench.plan import with_rate
from orchestrator.workloads import AllAtOnce, ArrivalKind, ClosedLoop

SLO_METRICS = ("ttft", "tpot", "e2el")
"""Latencies that ``--goodput`` of ``vllm bench serve`` knows too (vLLM 0.32, ``check_goodput_args``)."""


def parse_slo(texts: Sequence[str], share: float | None, given: Slo | None) -> Slo | None:
    """The SLO of ``--slo ttft:500,tpot:50`` (milliseconds; comma or repeated) and ``--slo-share``.

    Args:
        given: The spec's. Limits in ``texts`` replace all of its limits.

    Raises:
        UserError: An unknown metric, a limit that is none, or a share without an SLO.
    """
    limits: dict[str, float] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        name, colon, value = (word.strip() for word in part.partition(":"))
        if not colon:
            raise UserError(f"--slo: must be METRIC:MILLISECONDS, for instance ttft:500,tpot:50; got {part!r}")
        if name not in SLO_METRICS:
            raise unknown_name("metric", name, SLO_METRICS, where="--slo")
        if name in limits:
            raise UserError(f"--slo: {name} is given twice")
        limits[name] = _number(value, f"--slo: {name}", "milliseconds above 0")
    if share is not None and not 0 < share <= 1:
        raise UserError(f"--slo-share: must be above 0 and at most 1, got {share:g}")
    if not limits:
        if share is not None and given is None:
            raise UserError("--slo-share: needs an SLO; give --slo, for instance --slo ttft:500")
        return given if share is None or given is None else given.model_copy(update={"share": share})
    kept = share if share is not None else given.share if given is not None else None
    values = {f"{name}_ms": limit for name, limit in limits.items()}
    return Slo(**values) if kept is None else Slo(**values, share=kept)


def parse_rates(text: str) -> tuple[float, float]:
    """Both rates of ``--find-rate LOW:HIGH``, in requests per second. Raises UserError unless 0 < LOW < HIGH."""
    first, colon, last = text.partition(":")
    if not colon:
        raise UserError(f"--find-rate: must be LOW:HIGH, two rates in requests per second; got {text!r}")
    low, high = (
        _number(one, f"--find-rate: {name}", "a rate above 0") for one, name in ((first, "low"), (last, "high"))
    )
    if low >= high:
        raise UserError(f"--find-rate: low {low:g} must be below high {high:g}")
    return low, high


def choose_load(given: ArrivalKind | None, rate: float | None, concurrency: int | None) -> ArrivalKind:
    """The load of the blocks: ``--rate`` or ``--concurrency`` in place of the spec's.

    A rate keeps the kind of the spec's load, if that has one; ``inf`` sends all requests at once, as with
    ``vllm bench serve``.

    Raises:
        UserError: Both, neither where no spec has a load, or a number out of range.
    """
    if rate is not None and concurrency is not None:
        raise UserError("--rate: cannot go with --concurrency; give one of them")
    if concurrency is not None:
        if concurrency < 1:
            raise UserError(f"--concurrency: must be 1 or more, got {concurrency}")
        return ClosedLoop(concurrency=concurrency)
    if rate is not None:
        if not rate > 0:
            raise UserError(f"--rate: must be above 0 requests per second, got {rate:g}")
        return AllAtOnce() if rate == math.inf else with_rate(given, rate)
    if given is None:
        raise UserError("--rate: is missing; without a spec give --rate or --concurrency")
    return given


def parse_body(text: str) -> Mapping[str, Any]:
    """The object of ``--body``. Raises UserError if it is none."""
    try:
        body = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"--body: not JSON: {error}") from error
    if not isinstance(body, dict):
        raise UserError(f"--body: must be a JSON object, got {text!r}")
    return body


def _number(text: str, key: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise UserError(f"{key}: must be {what}, got {text!r}")
    return value
