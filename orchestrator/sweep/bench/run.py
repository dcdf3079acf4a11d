"""Measure a target in blocks, or search for the largest rate that it stands."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime

from orchestrator.engines import StopRule
from orchestrator.errors import ChunksmithError
from orchestrator.measurement import (
    GOODPUT_AT_SLO,
    MeasuredBlock,
    Probe,
    RateSearch,
    StopHopeless,
    as_of_arrival,
    count_failures,
)
from orchestrator.sweep.bench.blocks import serve_block
from orchestrator.sweep.bench.plan import BenchPlan, FindPlan
from orchestrator.sweep.bench.records import BenchRecords
from orchestrator.sweep.bench.report import RateReport, Report, ServedProbe
from orchestrator.sweep.bench.rows import BenchEnd
from orchestrator.sweep.bench.targets import BenchTarget, ServeFailure
from orchestrator.workloads import AllAtOnce, ArrivalKind

MOST_LEFT_OUT = 3
"""So many invalid blocks are replaced by others, and so many probes in a row."""

WARM_UP_REQUESTS = 10
"""Requests in front of a search for a rate, all at once."""


class BenchFailure(ChunksmithError):
    """The benchmark could not be made; one line, which says where the records are."""


class Benchmark:
    """One benchmark. Call ``measure``, or ``find_rate`` when the plan has a search, once.

    Blocks are independent of each other: each has prompts and arrivals of its own, and begins when the one before has
    ended. One in front is dropped as warm-up.

    Args:
        records: Where to keep the blocks; None keeps nothing.
        say: Called with a line for each block.
    """

    def __init__(
        self, plan: BenchPlan, target: BenchTarget, records: BenchRecords | None, say: Callable[[str], None]
    ) -> None:
        self._plan, self._target, self._records, self._say = plan, target, records, say
        self._started_at = datetime.now(UTC)
        self._blocks: list[MeasuredBlock] = []

    def measure(self) -> Report:
        """Serve blocks until as many as the plan wants are complete, or too many are not.

        Raises:
            BenchFailure: The target died, no request of a block ended well, or no block is complete.
        """
        self._say(f"warm-up block: {_described(self._serve(self._plan.load, dropped=True))}, dropped")
        complete = left_out = 0
        while complete < self._plan.blocks and left_out <= MOST_LEFT_OUT:
            block = self._serve(self._plan.load)
            if block.outcome == "complete":
                complete += 1
                self._say(f"block {complete} of {self._plan.blocks}: {_described(block)}")
            else:
                left_out += 1
                self._say(f"{block.outcome}, left out: {block.failure}")
        if not complete:
            raise self._failure("no-block", f"no block counts; the last one is {_why(self._blocks[-1])}")
        report = Report.of(self._plan, self._target.describe(), self._blocks)
        figure = report.figures.get(self._plan.metric)
        self._end(BenchEnd(outcome="complete", started_at=self._started_at, value=figure.value if figure else None))
        return report

    def find_rate(self, find: FindPlan) -> RateReport:
        """Search for the largest rate at which the SLO holds.

        A request keeps the SLO if it does so as of its intended arrival. A probe ends early when it cannot hold the SLO
        any more. Of the blocks the last at the rate found counts; all others are dropped.

        Raises:
            BenchFailure: The target died, no request of a probe ended well, or too many probes in a row were invalid.
        """
        slo = self._plan.slo
        assert slo is not None
        warm_up = self._serve(AllAtOnce(), dropped=True, requests=min(find.requests, WARM_UP_REQUESTS))
        self._say(f"warm-up block: {_described(warm_up)}, dropped")
        search, probes, left_out = RateSearch(find.rates), list[ServedProbe](), 0
        while (rate := search.next_rate()) is not None:
            block = self._serve(
                self._plan.at_rate(rate),
                dropped=True,
                requests=find.requests,
                stop=StopHopeless(slo=slo, requests=find.requests),
            )
            if block.outcome == "invalid":
                left_out += 1
                self._say(f"probe at {rate:.4g}/s: {_why(block)}")
                if left_out == MOST_LEFT_OUT:
                    raise self._failure(
                        "no-probe", f"{left_out} probes in a row do not count; the last one is {_why(block)}"
                    )
                continue
            left_out = 0
            kept = slo.kept(as_of_arrival(block.result.requests))
            probe = Probe(rate=rate, kept=kept, requests=find.requests, stopped=block.outcome == "stopped")
            search.add(probe)
            probes.append(ServedProbe(probe=probe, block=len(self._blocks) - 1, why=block.failure))
            self._say(probes[-1].described(slo.share))
        report = RateReport(plan=self._plan, target=self._target.describe(), result=search.result(), probes=probes)
        self._let_count(report)
        self._end(BenchEnd(outcome="complete", started_at=self._started_at, value=report.result.rate))
        return report

    def _serve(
        self,
        load: ArrivalKind,
        *,
        dropped: bool = False,
        requests: int | None = None,
        stop: StopRule | None = None,
    ) -> MeasuredBlock:
        number = len(self._blocks)
        block, failure = serve_block(
            self._target, self._plan, load, number, dropped=dropped, requests=requests, stop=stop
        )
        self._keep(number, block)
        if block.outcome == "failed":
            raise self._failed(block, failure) from failure
        return block

    def _keep(self, number: int, block: MeasuredBlock) -> None:
        self._blocks[number : number + 1] = [block]
        if self._records is not None:
            self._records.block(number, block)

    def _let_count(self, report: RateReport) -> None:
        """The last complete block at the rate found, marked as such."""
        for served in reversed(report.probes):
            if served.probe.rate == report.result.rate and not served.probe.stopped:
                block = self._blocks[served.block]
                metrics = {**block.metrics, GOODPUT_AT_SLO: served.probe.rate}
                self._keep(served.block, dataclasses.replace(block, dropped=False, metrics=metrics))
                return

    def _failed(self, block: MeasuredBlock, failure: ServeFailure | None) -> BenchFailure:
        label, _, detail = (block.failure or "").partition(": ")
        ended = sum(request.error is None for request in block.result.requests)
        log = f" (engine log: {failure.log_path})" if failure is not None and failure.log_path else ""
        detail = f"{detail}{log}; {ended} of {len(block.result.requests)} requests of the block ended well"
        return self._failure(label, detail, lost=failure is not None and failure.lost)

    def _failure(self, label: str, detail: str, *, lost: bool = False) -> BenchFailure:
        """Record the end, and say it in one line."""
        self._end(
            BenchEnd(outcome="lost" if lost else "failed", started_at=self._started_at, failure=label, detail=detail)
        )
        where = f"the records are in {self._records.path}" if self._records else "no records were asked for (--run)"
        return BenchFailure(f"{label}: {detail}; {where}")

    def _end(self, end: BenchEnd) -> None:
        if self._records is not None:
            self._records.end(self._blocks, end)


def _described(block: MeasuredBlock) -> str:
    requests = block.result.requests
    text = f"{len(requests)} requests in {block.result.duration_s:.2f} s"
    median = block.metrics["median_ttft_ms"]
    if median is not None:
        text += f", median TTFT {median:.2f} ms"
    if failures := count_failures(requests):
        text += (
            f", {sum(failures.values())} failed ({', '.join(f'{count} {name}' for name, count in failures.items())})"
        )
    return text


def _why(block: MeasuredBlock) -> str:
    return f"{block.outcome}: {block.failure}"
