"""What a benchmark found, ready to be printed or written as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.engines import RequestTimeline
from orchestrator.measurement import DispatchSlip, MeasuredBlock, Probe, RateResult, count_failures, dispatch_slip
from orchestrator.sweep.bench.figures import Figures, figures_of
from orchestrator.sweep.bench.intervals import LEVEL, basis
from orchestrator.sweep.bench.plan import BenchPlan
from orchestrator.sweep.bench.verdicts import SaturationVerdict, SteadyVerdict, saturation_verdict, steady_verdict
from orchestrator.workloads import ClosedLoop


@dataclass(frozen=True, kw_only=True)
class Report:
    """A benchmark in blocks.

    Attributes:
        target: What was measured.
        blocks: All blocks, those that do not count included.
        figures: Of the blocks that count; so are the others:
        counts: ``completed`` and ``failed`` requests, ``duration`` in seconds, ``total_input_tokens`` and
            ``total_output_tokens`` of the completed ones; the names are those of ``vllm bench serve --save-result``.
        failures: Failed requests by their class.
        slip: How late the requests were sent.
        saturation: None in a closed loop, which cannot be over-saturated.
    """

    plan: BenchPlan
    target: Mapping[str, Any]
    blocks: Sequence[MeasuredBlock]
    figures: Figures
    counts: Mapping[str, float]
    failures: Mapping[str, int]
    slip: DispatchSlip | None
    steady: SteadyVerdict
    saturation: SaturationVerdict | None

    @classmethod
    def of(cls, plan: BenchPlan, target: Mapping[str, Any], blocks: Sequence[MeasuredBlock]) -> Report:
        """The report of blocks, at least one of which counts."""
        counted = [block for block in blocks if not block.dropped]
        requests: list[RequestTimeline] = [one for block in counted for one in block.result.requests]
        ended = [one for one in requests if one.error is None]
        is_closed = isinstance(plan.load, ClosedLoop)
        return cls(
            plan=plan,
            target=target,
            blocks=blocks,
            figures=figures_of(counted, slo=plan.slo, gpus=plan.gpus),
            counts={
                "completed": len(ended),
                "failed": len(requests) - len(ended),
                "duration": math.fsum(block.result.duration_s for block in counted),
                "total_input_tokens": sum(one.prompt_tokens for one in ended),
                "total_output_tokens": sum(one.output_tokens for one in ended),
            },
            failures=count_failures(requests),
            slip=dispatch_slip(requests, is_closed=is_closed),
            steady=steady_verdict(counted),
            saturation=None if is_closed else saturation_verdict(counted),
        )

    @property
    def basis(self) -> str:
        """What the intervals rest on."""
        return basis(sum(not block.dropped for block in self.blocks))

    def to_dict(self) -> dict[str, Any]:
        """As one JSON object. An end of an interval is null where the measurements cannot bound it."""
        slip = self.slip
        return {
            "target": dict(self.target),
            "plan": self.plan.to_dict(),
            "level": LEVEL,
            "intervals": self.basis,
            **self.counts,
            "failures": dict(self.failures),
            "metrics": {name: figure and asdict(figure) for name, figure in self.figures.items()},
            "dispatch_slip_ms": slip and {"p50": slip.p50_s * 1e3, "p99": slip.p99_s * 1e3, "max": slip.max_s * 1e3},
            "steady_state": asdict(self.steady),
            "over_saturation": self.saturation and asdict(self.saturation),
            "blocks": [_block(number, block) for number, block in enumerate(self.blocks)],
        }


@dataclass(frozen=True, kw_only=True)
class ServedProbe:
    """A probe with its block's number, and why that ended early, if it did."""

    probe: Probe
    block: int
    why: str | None

    def described(self, share: float) -> str:
        """In one line. What a probe alone says is not yet the verdict on its rate."""
        probe = self.probe
        text = f"probe at {probe.rate:.4g}/s: {probe.kept} of {probe.requests} requests kept the SLO"
        if probe.stopped:
            return f"{text}, ended early: {self.why}"
        return f"{text}, {'enough' if probe.kept >= share * probe.requests else 'too few'} for {share:.4g}"


@dataclass(frozen=True, kw_only=True)
class RateReport:
    """A search for the largest rate at which the SLO holds."""

    plan: BenchPlan
    target: Mapping[str, Any]
    result: RateResult
    probes: Sequence[ServedProbe]

    @property
    def sentence(self) -> str:
        """The answer in one line."""
        found = self.result
        if found.rate is None:
            lowest = min(one.probe.rate for one in self.probes)
            return f"The SLO does not hold at {lowest:.4g} requests/s, the lowest rate probed"
        low = f"{found.low:.4g}" if found.low > 0 else "unproven"
        high = f"{found.high:.4g}" if math.isfinite(found.high) else "unproven"
        ends = "too few requests to prove either end" if low == high else f"{low} to {high}"
        text = f"Largest rate at which the SLO holds: {found.rate:.4g} requests/s ({LEVEL * 100:g} % interval: {ends})"
        return f"{text}. It is the highest allowed: the true rate may be any above it" if found.is_capped else text

    @property
    def basis(self) -> str:
        """What the interval rests on."""
        requests = self.probes[0].probe.requests
        return (
            f"{len(self.probes)} probes of {requests} requests; the ends are proven by their counts, as if requests "
            "were independent, which in a queue they are not: another search may differ by more"
        )

    def to_dict(self) -> dict[str, Any]:
        """As one JSON object. An end of the interval is null where the probes prove none."""
        found = self.result
        return {
            "target": dict(self.target),
            "plan": self.plan.to_dict(),
            "find_rate": {
                "rate": found.rate,
                "low": found.low if found.low > 0 else None,
                "high": found.high if math.isfinite(found.high) else None,
                "level": found.level,
                "is_capped": found.is_capped,
                "interval": self.basis,
            },
            "probes": [{**asdict(one.probe), "block": one.block, "why": one.why} for one in self.probes],
        }


def _block(number: int, block: MeasuredBlock) -> dict[str, Any]:
    failures = count_failures(block.result.requests)
    return {
        "block": number,
        "dropped": block.dropped,
        "outcome": block.outcome,
        "failure": block.failure,
        "requests": len(block.result.requests),
        "failed": sum(failures.values()),
        "failures": dict(failures),
        "duration": block.result.duration_s,
        "median_ttft_ms": block.metrics["median_ttft_ms"],
    }
