from __future__ import annotations

import io
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from orchestrator.measurement import MeasuredBlock, Slo
from orchestrator.sweep.bench import BenchPlan, Report, render
from orchestrator.sweep.bench.render import LATENCIES, RATES, interval, number
from orchestrator.workloads import ArrivalKind, ClosedLoop, PoissonArrivals
from tests.sweep.bench.blocks import block, plan, timeline

SLO = Slo(ttft_ms=300.0)
times = st.floats(0.001, 1.0)
blocks_of = st.lists(st.lists(st.tuples(times, times), min_size=2, max_size=8), min_size=1, max_size=7)


def report_of(content: list[list[tuple[float, float]]], load: ArrivalKind | None = None, gpus: float = 0.0) -> Report:
    blocks = [
        block(
            [timeline(index, 0.1 * index, ttft, itl_s=itl) for index, (ttft, itl) in enumerate(one)],
            number=number,
            duration_s=3.0 + number,
            slo=SLO,
        )
        for number, one in enumerate(content)
    ]
    return made(blocks, plan(load, slo=SLO, gpus=gpus))


def made(blocks: list[MeasuredBlock], wanted: BenchPlan) -> Report:
    return Report.of(wanted, {"kind": "url", "url": "http://localhost", "model": "m"}, blocks)


def shown(report: Report, width: int = 80) -> str:
    output = io.StringIO()
    render(report, Console(file=output, width=width, highlight=False))
    return output.getvalue()


def cells(text: str) -> dict[str, tuple[str, str]]:
    """Value and interval of each line of the table, by its label."""
    found = (re.fullmatch(r"(\S.*?:) +(\S+)(?: +(unbounded|\S+ to \S+))? *", line) for line in text.splitlines())
    return {match[1]: (match[2], match[3] or "") for match in found if match}


@settings(max_examples=30)
@given(blocks_of, st.sampled_from([0.0, 2.0]))
def test_table_and_json_say_the_same(content: list[list[tuple[float, float]]], gpus: float) -> None:
    report = report_of(content, gpus=gpus)
    table, answer = cells(shown(report)), json.loads(json.dumps(report.to_dict(), allow_nan=False))
    labels = dict(RATES)
    labels |= {
        f"{word} {name} (ms):": f"{stat}_{latency}_ms"
        for _, name, latency in LATENCIES
        for word, stat in (("Mean", "mean"), ("Median", "median"), ("P90", "p90"), ("P95", "p95"), ("P99", "p99"))
    }
    if gpus:
        labels |= {label.replace("/s)", "/s/GPU)"): f"{key}_per_gpu" for label, key in RATES}
    for label, key in labels.items():
        figure, theirs = report.figures[key], answer["metrics"][key]
        assert figure is not None
        assert theirs == {"value": figure.value, "low": figure.low, "high": figure.high}
        assert table[label] == (number(theirs["value"]), interval(figure)), label
    assert table["Successful requests:"][0] == str(answer["completed"])
    assert table["Total generated tokens:"][0] == str(answer["total_output_tokens"])
    assert table["Benchmark duration (s):"][0] == number(answer["duration"])
    assert answer["intervals"] in shown(report, 1000)


def test_it_has_the_lines_that_a_user_of_vllm_bench_serve_expects() -> None:
    """Names and order of ``vllm/benchmarks/serve.py`` (vLLM 0.32); ours come between and after."""
    expected = [
        "Successful requests:",
        "Failed requests:",
        "Request rate configured (RPS):",
        "Benchmark duration (s):",
        "Total input tokens:",
        "Total generated tokens:",
        "Request throughput (req/s):",
        "Request goodput (req/s):",
        "Output token throughput (tok/s):",
        "Total token throughput (tok/s):",
    ]
    for name in ("TTFT", "TPOT", "ITL", "E2EL"):
        expected += [f"{word} {name} (ms):" for word in ("Mean", "Median", "P90", "P95", "P99")]
    report = report_of([[(0.1, 0.01)] * 4] * 5, PoissonArrivals(rate=4.0))
    lines = list(cells(shown(report)))
    assert [line for line in lines if line in expected] == expected
    for title in ("Time to First Token", "Time per Output Token (excl. 1st token)", "Inter-token Latency"):
        assert title in [line.strip() for line in shown(report).splitlines()]
    closed = cells(shown(report_of([[(0.1, 0.01)] * 4] * 5, ClosedLoop(concurrency=7))))
    assert closed["Maximum request concurrency:"][0] == "7"


@pytest.mark.parametrize("width", [20, 80, 200])
def test_no_figure_is_cut_off_in_any_terminal(width: int) -> None:
    report = report_of([[(123.456, 0.01)] * 4] * 5, gpus=8.0)
    assert "…" not in shown(report, width)
    assert cells(shown(report, width)) == cells(shown(report, 200))


def test_what_is_not_in_the_figures_is_said_under_the_table() -> None:
    good = [timeline(index, 0.1 * index, 0.1) for index in range(60)]
    bad = [timeline(60, 6.0, 0.1, error="timeout: no end"), timeline(61, 6.1, 0.1, error="short: 1 of 3 tokens")]
    late = block(good, number=1, dropped=True, outcome="invalid", failure="late-load-generator: it was late")
    text = shown(made([block(good + bad), late], plan(PoissonArrivals(rate=10.0))), 1000)
    assert "Failed requests by class: 1 short, 1 timeout." in text
    assert "Block 1 is invalid and left out: late-load-generator: it was late." in text
    assert "Steady state: reached in 1 of 1 blocks" in text
    assert "Over-saturation: not judged; " in text
    assert "P99 dispatch slip (ms):" in text
    assert "none for means and rates" in text
    assert "Over-saturation" not in shown(made([block(good)], plan(ClosedLoop(concurrency=1))))


def test_an_open_end_is_unbounded_in_the_table_and_null_in_json() -> None:
    report = report_of([[(0.1 + 0.001 * index, 0.01) for index in range(8)]] * 2)
    figure = report.figures["p99_ttft_ms"]
    assert figure is not None
    assert figure.high is None
    assert cells(shown(report))["P99 TTFT (ms):"][1].endswith(" to unbounded")
    assert report.to_dict()["metrics"]["p99_ttft_ms"]["high"] is None


@given(st.floats(0, 1e7))
def test_a_number_keeps_two_decimals_or_three_digits(value: float) -> None:
    assert float(number(value)) == pytest.approx(value, rel=0.006, abs=0.0)
