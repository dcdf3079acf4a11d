"""Print a benchmark as the table that a user of ``vllm bench serve`` knows, with an interval beside each figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.search import Point
from orchestrator.sweep.bench.figures import SLO_SHARE
from orchestrator.sweep.bench.intervals import LEVEL, Figure
from orchestrator.sweep.bench.plan import BenchPlan, shown
from orchestrator.sweep.bench.report import RateReport, Report
from orchestrator.sweep.progress import describe
from orchestrator.workloads import ClosedLoop

COUNTS = (
    ("Successful requests:", "completed"),
    ("Failed requests:", "failed"),
    ("Benchmark duration (s):", "duration"),
    ("Total input tokens:", "total_input_tokens"),
    ("Total generated tokens:", "total_output_tokens"),
)
RATES = (
    ("Request throughput (req/s):", "request_throughput"),
    ("Request goodput (req/s):", "request_goodput"),
    ("Output token throughput (tok/s):", "output_throughput"),
    ("Total token throughput (tok/s):", "total_token_throughput"),
    ("Prefill token throughput (tok/s):", "prefill_token_throughput"),
)
LATENCIES = (
    ("Time to First Token", "TTFT", "ttft"),
    ("Time per Output Token (excl. 1st token)", "TPOT", "tpot"),
    ("Inter-token Latency", "ITL", "itl"),
    ("End-to-end Latency", "E2EL", "e2el"),
    ("TTFT from the Intended Arrival", "arrival TTFT", "arrival_ttft"),
    ("E2EL from the Intended Arrival", "arrival E2EL", "arrival_e2el"),
    ("GuideLLM's TPOT (incl. 1st token)", "GuideLLM TPOT", "guidellm_tpot"),
)
_LEAST_WIDTH = 80
"""Columns below which figures would be cut off; a narrower terminal wraps the lines itself."""

_STATISTICS = {"Mean": "mean", "Median": "median", "P90": "p90", "P95": "p95", "P99": "p99"}


def heading(plan: BenchPlan, target: Mapping[str, Any]) -> str:
    """What is about to be measured, in one line."""
    where = target["url"] if target["kind"] == "url" else f"{target['engine_id']} at its baseline"
    point: Point = target.get("point", {})
    at = f" ({describe(point)})" if point else ""
    find = plan.find
    load = f"search for a rate from {find.rates.low:g} to {find.rates.high:g}/s" if find else shown(plan.load)
    return f"bench of {target['model']} on {where}{at}: {load}, seed {plan.seed}"


def render(report: Report, console: Console) -> None:
    """Print the table, and under it what stands behind it."""
    table = Table(box=None, show_header=True, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("Serving Benchmark Result", no_wrap=True, min_width=40)
    table.add_column("", no_wrap=True, min_width=10)
    table.add_column(f"{LEVEL * 100:g} % interval", no_wrap=True, min_width=24)
    for label, value, interval in _rows(report):
        is_title = value is None
        table.add_row(Text(label, style="bold" if is_title else ""), Text(value or ""), Text(interval))
    console.width = max(console.width, _LEAST_WIDTH)
    console.print(table)
    for line in _notes(report):
        console.print(Text(line), soft_wrap=True)


def render_rate(report: RateReport, console: Console) -> None:
    """Print the answer of a search, and what it rests on. The probes were told as they ended."""
    console.print(Text(f"{report.sentence}."), soft_wrap=True)
    console.print(Text(f"Interval: {report.basis}."), soft_wrap=True)


def number(value: float) -> str:
    """Two decimals as ``vllm bench serve`` prints them, more where three digits would be lost otherwise."""
    return str(value) if isinstance(value, int) else f"{value:.2f}" if value == 0 or abs(value) >= 1 else f"{value:.3g}"


def interval(figure: Figure) -> str:
    """The ends, for instance ``1.20 to 1.40``."""
    if figure.low is None and figure.high is None:
        return "unbounded"
    low, high = ("unbounded" if end is None else number(end) for end in (figure.low, figure.high))
    return f"{low} to {high}"


def _rows(report: Report) -> Iterator[tuple[str, str | None, str]]:
    """Label, value (None for a title) and interval."""
    load = report.plan.load
    for label, key in COUNTS:
        yield label, number(report.counts[key]), ""
        if key == "failed" and isinstance(load, ClosedLoop):
            yield "Maximum request concurrency:", str(load.concurrency), ""
        if key == "failed" and (rate := getattr(load, "rate", None)) is not None:
            yield "Request rate configured (RPS):", number(float(rate)), ""
    for label, key in RATES:
        yield from _row(report, label, key)
    if (share := report.figures[SLO_SHARE]) is not None:
        yield "Requests within the SLO (%):", number(share.value * 100), interval(share.scaled(100.0))
    if report.plan.gpus > 0:
        yield f"Per GPU, of {report.plan.gpus:g}", None, ""
        for label, key in RATES:
            yield from _row(report, label.replace("/s)", "/s/GPU)"), f"{key}_per_gpu")
    for title, name, latency in LATENCIES:
        if report.figures[f"mean_{latency}_ms"] is None:
            continue
        yield title, None, ""
        for word, stat in _STATISTICS.items():
            yield from _row(report, f"{word} {name} (ms):", f"{stat}_{latency}_ms")
    if report.slip is not None:
        yield "Dispatch Slip (send minus arrival)", None, ""
        yield "Median dispatch slip (ms):", number(report.slip.p50_s * 1e3), ""
        yield "P99 dispatch slip (ms):", number(report.slip.p99_s * 1e3), ""


def _row(report: Report, label: str, key: str) -> Iterator[tuple[str, str, str]]:
    figure = report.figures[key]
    if figure is not None:
        yield label, number(figure.value), interval(figure)


def _notes(report: Report) -> Iterator[str]:
    yield f"{report.basis}."
    if report.failures:
        classes = ", ".join(f"{count} {name}" for name, count in sorted(report.failures.items()))
        yield f"Failed requests by class: {classes}. They are in no latency and no throughput."
    left_out = [(index, block) for index, block in enumerate(report.blocks) if block.dropped and block.failure]
    for index, block in left_out:
        yield f"Block {index} is {block.outcome} and left out: {block.failure}."
    yield f"Steady state: {_steady(report)}."
    if report.saturation is not None:
        yield f"Over-saturation: {_saturation(report)}."


def _steady(report: Report) -> str:
    steady = report.steady
    if steady.judged == 0:
        return "not judged; a block needs 50 requests that ended well"
    text = f"reached in {steady.reached} of {steady.judged} blocks"
    return text if not steady.first else f"{text}, after {steady.first} requests at most"


def _saturation(report: Report) -> str:
    found = report.saturation
    assert found is not None
    if found.judged == 0:
        return "not judged; the arrivals of a block need at least 5.5 s and 132 requests"
    if found.over == 0:
        return f"none in {found.judged} blocks"
    return (
        f"in {found.over} of {found.judged} blocks requests arrived faster than they were served, and the TTFT grew by "
        f"up to {found.ttft_slope:.2f} s a second: the latencies say how long the block was, not how fast the server is"
    )
