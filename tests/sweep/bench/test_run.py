"""Benchmarks on the faulty engine, and on the mock server over real sockets. No time is asserted."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from orchestrator.engines import EngineError
from orchestrator.engines.faulty import Faults, FaultyEngines
from orchestrator.measurement import RatePlan, Slo, block_metrics
from orchestrator.measurement.loadgen import Target
from orchestrator.measurement.testing import MODEL, MockServer, MockSettings
from orchestrator.records import RunFolder, read_arrow
from orchestrator.sweep.bench import (
    BenchFailure,
    Benchmark,
    BenchPlan,
    BenchRecords,
    EngineTarget,
    FindPlan,
    RateReport,
    Report,
    UrlTarget,
)
from orchestrator.workloads import ConstantRate, MultiTurn, PoissonArrivals
from tests.sweep.bench.blocks import plan, timeline
from tests.sweep.studies import make_spec, read


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


def on_engine(
    faults: Faults | None,
    plan: BenchPlan,
    run: RunFolder | None = None,
    say: Callable[[str], None] = print,
    **spec: Any,
) -> Report | RateReport:
    engines = FaultyEngines(*([faults] if faults else []))
    try:
        with EngineTarget(make_spec(**spec), engines) as target:
            records = None if run is None else BenchRecords(run, plan, target)
            return _measured(Benchmark(plan, target, records, say), plan)
    finally:
        assert not any(engine.is_running for engine in engines.made)


def on_server(
    settings: MockSettings, plan: BenchPlan, run: RunFolder | None = None, *, timeout_s: float = 60.0
) -> Report | RateReport:
    with MockServer(settings) as server:
        target = UrlTarget(Target(url=server.url, model=MODEL, timeout_s=timeout_s), vocab_size=1000)
        records = None if run is None else BenchRecords(run, plan, target)
        return _measured(Benchmark(plan, target, records, print), plan)


def _measured(benchmark: Benchmark, plan: BenchPlan) -> Report | RateReport:
    return benchmark.measure() if plan.find is None else benchmark.find_rate(plan.find)


def report_of(found: Report | RateReport) -> Report:
    assert isinstance(found, Report)
    return found


def test_blocks_of_an_engine_and_one_in_front_that_is_dropped(run: RunFolder) -> None:
    said: list[str] = []
    report = report_of(on_engine(None, plan(blocks=5), run, said.append))
    assert [one.dropped for one in report.blocks] == [True] + [False] * 5
    assert report.counts["completed"] == 20
    assert report.counts["failed"] == 0
    assert len(said) == 6
    trials, blocks, requests = (read(run, table) for table in ("trials", "blocks", "requests"))
    assert [(row["outcome"], row["trial"], row["metric"]) for row in trials] == [("complete", 0, "median_ttft_ms")]
    median = report.figures["median_ttft_ms"]
    assert median is not None
    assert trials[0]["baseline_value"] == pytest.approx(median.value)
    assert trials[0]["serve_args"][0] == "org/model"
    assert [row["block"] for row in blocks] == list(range(6))
    assert {row["phase"] for row in [*blocks, *requests]} == {"bench"}
    assert [row["dropped"] for row in blocks] == [True] + [False] * 5
    assert {row["engine_id"] for row in blocks} == {"faulty-0"}
    assert len({row["prompts_seed"] for row in blocks}) == 6
    assert len(requests) == 24
    assert json.loads((run.path / "bench.json").read_text())["target"]["engine_id"] == "faulty-0"
    assert json.loads(run.provenance.read_text())["processes"]
    assert not run.spec.exists()


def test_the_tables_hold_what_the_report_says(run: RunFolder) -> None:
    report = report_of(on_server(MockSettings(ttft_s=0.005, itl_s=0.001, short={9}), plan(blocks=5), run))
    counted = pd.read_parquet(run.table("blocks")).query("not dropped")
    requests = pd.read_parquet(run.table("requests"))
    requests = requests[requests["block"].isin(counted["block"])]
    ended = requests[requests["error"].isna()]
    assert report.counts["completed"] == len(ended) == 19
    assert report.counts["failed"] == counted["failed_requests"].sum() == 1
    assert report.counts["duration"] == pytest.approx(counted["duration_s"].sum())
    rate, mean = report.figures["request_throughput"], report.figures["mean_ttft_ms"]
    assert rate is not None
    assert mean is not None
    assert rate.value == pytest.approx(len(ended) / counted["duration_s"].sum())
    assert mean.value == pytest.approx((ended["first_token_s"] - ended["send_s"]).mean() * 1000)
    for one, row in zip(
        [block for block in report.blocks if not block.dropped], counted.to_dict("records"), strict=True
    ):
        expected = block_metrics(one.result.requests, one.result.duration_s, slo=report.plan.slo)
        assert row["median_ttft_ms"] == pytest.approx(expected["median_ttft_ms"])


@pytest.mark.parametrize(
    ("fault", "label"), [("refuse", "http_503"), ("drop", "disconnect"), ("short", "short"), ("stall", "timeout")]
)
def test_requests_that_fail_are_counted_by_class_and_never_averaged_in(fault: str, label: str, run: RunFolder) -> None:
    settings = MockSettings(ttft_s=0.005, itl_s=0.001, **{fault: {5, 6, 9}})  # type: ignore[arg-type]
    report = report_of(on_server(settings, plan(blocks=2), run, timeout_s=1.0))
    assert report.failures == {label: 3}
    assert (report.counts["completed"], report.counts["failed"]) == (5, 3)
    blocks = read(run, "blocks")
    assert [json.loads(row["failures"]).get(label, 0) for row in blocks] == [0, 2, 1]
    assert [row["outcome"] for row in blocks] == ["complete"] * 3
    share = report.figures["slo_share"]
    assert share is not None
    assert share.value == pytest.approx(5 / 8)


def test_a_server_that_dies_leaves_its_block_as_failed_and_what_did_finish(run: RunFolder) -> None:
    with pytest.raises(
        BenchFailure, match=r"^server-gone: .* requests of the block ended well; the records are in "
    ) as error:
        on_server(MockSettings(ttft_s=0.005, itl_s=0.001, die_at=10), plan(blocks=5), run)
    assert str(run.path) in str(error.value)
    assert "\n" not in str(error.value)
    blocks, requests, trials = (read(run, table) for table in ("blocks", "requests", "trials"))
    assert [row["outcome"] for row in blocks] == ["complete", "complete", "failed"]
    assert blocks[-1]["dropped"]
    assert blocks[-1]["failure"].startswith("server-gone: ")
    last = [row for row in requests if row["block"] == 2]
    assert len(last) == 4
    ended = [row for row in last if pd.isna(row["error"])]
    # Two at a time: the end of one of the first two released the third, which killed the server.
    assert ended
    assert all(row["end_s"] > 0 and len(row["token_times_s"]) == 4 for row in ended)
    assert [(row["outcome"], row["failure"]) for row in trials] == [("lost", "server-gone")]


def test_a_server_that_is_gone_when_a_block_begins(run: RunFolder) -> None:
    with MockServer() as server:

        def stop_after_the_first(line: str) -> None:
            if line.startswith("block 1"):
                server.__exit__()

        target = UrlTarget(Target(url=server.url, model=MODEL), vocab_size=1000)
        benchmark = Benchmark(plan(), target, BenchRecords(run, plan(), target), stop_after_the_first)
        with pytest.raises(BenchFailure, match=r"^server-gone: .*cannot be reached: Connection refused"):
            benchmark.measure()
    blocks = read(run, "blocks")
    assert [(row["outcome"], row["requests"]) for row in blocks] == [("complete", 4), ("complete", 4), ("failed", 0)]


def test_without_a_run_folder_a_failure_says_how_to_get_one() -> None:
    with pytest.raises(BenchFailure, match=r"no records were asked for \(--run\)$"):
        on_server(MockSettings(ttft_s=0.005, die_at=0), plan())


def test_a_block_in_which_nothing_ends_well_ends_the_benchmark(run: RunFolder) -> None:
    with pytest.raises(BenchFailure, match=r"^request-failed: all 4 requests failed, the first with: http_503: "):
        on_server(MockSettings(refuse=set(range(4, 8))), plan(), run)
    assert [row["outcome"] for row in read(run, "blocks")] == ["complete", "failed"]
    assert [(row["outcome"], row["failure"]) for row in read(run, "trials")] == [("failed", "request-failed")]


def dying(partial: bool) -> Faults:
    error = EngineError("engine-dead", "EngineCore died", lost=True, log_path="e.log")
    if partial:
        error.partial = [timeline(0, 0.0, 0.1), timeline(1, 0.0, 0.1, error="engine: it died")]
    return Faults(run_errors={2: error})


@pytest.mark.parametrize("partial", [True, False])
def test_an_engine_that_dies_leaves_the_same(partial: bool, run: RunFolder) -> None:
    with pytest.raises(BenchFailure, match=r"^engine-dead: EngineCore died \(engine log: .*; the records are in "):
        on_engine(dying(partial), plan(), run)
    blocks, requests, trials = (read(run, table) for table in ("blocks", "requests", "trials"))
    assert [row["outcome"] for row in blocks] == ["complete", "complete", "failed"]
    assert blocks[-1]["failure"] == "engine-dead: EngineCore died"
    assert blocks[-1]["requests"] == (2 if partial else 0)
    assert blocks[-1]["failed_requests"] == (1 if partial else 0)
    left = [row["error"] for row in requests if row["block"] == 2 and not pd.isna(row["error"])]
    assert left == (["engine: it died"] if partial else [])
    assert sum(row["block"] == 2 for row in requests) == (2 if partial else 0)
    assert [(row["outcome"], row["failure"]) for row in trials] == [("lost", "engine-dead")]


def test_fresh_prompts_that_were_in_the_prefix_cache_make_a_block_invalid(run: RunFolder) -> None:
    said: list[str] = []
    report = report_of(on_engine(Faults(cached_tokens={2: 16, 3: 16}), plan(blocks=3), run, said.append))
    assert [one.outcome for one in report.blocks] == ["complete"] * 2 + ["invalid"] * 2 + ["complete"] * 2
    assert report.counts["completed"] == 12
    assert [row["dropped"] for row in read(run, "blocks")] == [True, False, True, True, False, False]
    assert sum("left out: prefix-cache-hit: 64 prompt tokens" in line for line in said) == 2


def test_when_no_block_counts_there_is_no_report(run: RunFolder) -> None:
    with pytest.raises(BenchFailure, match=r"^no-block: no block counts; the last one is invalid: prefix-cache-hit: "):
        on_engine(Faults(cached_tokens=dict.fromkeys(range(20), 16)), plan(), run)
    assert [row["outcome"] for row in read(run, "trials")] == ["failed"]
    assert {row["outcome"] for row in read(run, "blocks")} == {"invalid"}


def test_hits_that_are_wanted_are_none_in_the_first_request_of_an_empty_cache() -> None:
    """Two conversations of three turns: of their requests the first turn can find nothing."""
    value = {"conversations": 2, "turns": 3, "first_len": 64, "next_len": 8, "output_len": 2}
    wanted = plan(workload=MultiTurn.model_validate(value), wants_hits=True, blocks=2)
    with pytest.raises(BenchFailure, match="prefix-cache-hit: 16 prompt tokens of the first request"):
        on_engine(Faults(cached_tokens=dict.fromkeys(range(20), 16)), wanted)


def test_a_late_load_generator_makes_a_block_invalid() -> None:
    """No generator is as exact as 2 % of a nanosecond."""
    with pytest.raises(BenchFailure, match="late-load-generator: the load generator was late: p99 dispatch slip "):
        on_server(MockSettings(ttft_s=0.0, itl_s=0.0), plan(slo=Slo(ttft_ms=1e-6)))


def test_a_knob_that_the_baseline_names_must_be_in_force() -> None:
    spec: dict[str, Any] = {"baseline": {"max_num_batched_tokens": 256}}
    long = make_spec().block_workload()
    with pytest.raises(BenchFailure, match=r"^knob-not-in-force: max_num_batched_tokens: asked 256"):
        on_engine(Faults(ignored_knobs={"max_num_batched_tokens"}), plan(workload=long), **spec)
    report = report_of(on_engine(None, plan(workload=long), **spec))
    assert report.target["point"] == {"mla_workspace_rows": None, "max_num_batched_tokens": 256}


def test_one_seed_gives_the_same_prompts_and_another_gives_others() -> None:
    first, again, other = plan(seed=1), plan(seed=1), plan(seed=2)
    tokens = [
        [request.prompt.token_ids for request in one.draw(one.seed, vocab_size=1000)] for one in (first, again, other)
    ]
    assert tokens[0] == tokens[1] != tokens[2]


def find(low: float, high: float, *, requests: int, slo: Slo, probes: int = 12, **changes: Any) -> BenchPlan:
    rates = RatePlan(low=low, high=high, probes=probes, precision=0.05, share=slo.share)
    changes.setdefault("load", PoissonArrivals(rate=low))
    return plan(slo=slo, find=FindPlan(rates=rates, requests=requests), **changes)


def test_the_largest_rate_that_an_engine_stands(run: RunFolder) -> None:
    said: list[str] = []
    wanted = find(20.0, 4000.0, requests=200, slo=Slo(ttft_ms=20.0, share=0.9), load=ConstantRate(rate=1.0))
    found = on_engine(None, wanted, run, said.append)
    assert isinstance(found, RateReport)
    rate = found.result.rate
    assert rate is not None
    assert 20.0 < rate < 4000.0
    assert not found.result.is_capped
    assert found.result.low <= rate < found.result.high
    # What holds is below what does not, and every probe was told.
    held = [one.probe.rate for one in found.probes if not one.probe.stopped and one.probe.kept >= 180]
    assert max(held) == rate
    assert sum(line.startswith("probe at ") for line in said) == len(found.probes)
    blocks, trials = read(run, "blocks"), read(run, "trials")
    assert len(blocks) == 1 + len(found.probes)
    counted = [row for row in blocks if not row["dropped"]]
    assert len(counted) == 1
    assert counted[0]["goodput_at_slo"] == rate
    assert json.loads(counted[0]["load"]) == {"kind": "constant", "rate": rate}
    assert [(row["metric"], row["direction"], row["baseline_value"]) for row in trials] == [
        ("goodput_at_slo", "maximize", rate)
    ]


def test_a_rate_that_nothing_limits_is_the_highest_allowed() -> None:
    found = on_engine(None, find(20.0, 50.0, requests=30, slo=Slo(ttft_ms=1e6)))
    assert isinstance(found, RateReport)
    assert found.result.rate == 50.0
    assert found.result.is_capped
    assert "the true rate may be any above it" in found.sentence


def test_an_slo_that_never_holds_has_no_rate_and_its_probes_end_early(run: RunFolder) -> None:
    wanted = find(20.0, 40.0, requests=60, probes=2, slo=Slo(ttft_ms=1.0), load=PoissonArrivals(rate=1.0))
    # Every probe would last for three seconds and more, and the rule is asked after one.
    found = on_server(MockSettings(ttft_s=0.05, itl_s=0.0), wanted, run)
    assert isinstance(found, RateReport)
    assert found.result.rate is None
    assert found.sentence.startswith("The SLO does not hold at ")
    assert found.to_dict()["find_rate"]["rate"] is None
    blocks = read(run, "blocks")
    assert [row["outcome"] for row in blocks[1:]] == ["stopped"] * 2
    assert all(row["failure"].startswith("slo: ") and row["dropped"] for row in blocks[1:])
    assert math.isnan(read(run, "trials")[0]["baseline_value"])


def test_probes_that_do_not_count_end_the_search() -> None:
    hits = Faults(cached_tokens=dict.fromkeys(range(1, 20), 16))
    with pytest.raises(BenchFailure, match=r"^no-probe: 3 probes in a row do not count; the last one is invalid: "):
        on_engine(hits, find(20.0, 40.0, requests=10, slo=Slo(ttft_ms=1e6)))


def test_one_probe_that_does_not_count_is_made_again() -> None:
    found = on_engine(Faults(cached_tokens={1: 16, 2: 16}), find(20.0, 40.0, requests=10, slo=Slo(ttft_ms=1e6)))
    assert isinstance(found, RateReport)
    assert [one.block for one in found.probes] == [3, 4]


def test_an_engine_that_dies_in_a_search(run: RunFolder) -> None:
    with pytest.raises(BenchFailure, match=r"^engine-dead: "):
        on_engine(dying(partial=True), find(20.0, 40.0, requests=10, slo=Slo(ttft_ms=1e6)), run)
    assert [row["outcome"] for row in read(run, "blocks")] == ["complete", "complete", "failed"]


def test_every_record_fits_the_schemas(run: RunFolder) -> None:
    on_engine(None, plan(blocks=1), run)
    for table, rows in {"trials": 1, "blocks": 2, "requests": 8}.items():
        assert read_arrow(run.path, table).num_rows == rows


def test_a_url_is_recorded_without_its_password() -> None:
    target = UrlTarget(Target(url="http://me:secret@localhost:9/v1", model="m"), vocab_size=100)
    assert target.name == "http://localhost:9/v1"
    assert "secret" not in str(target.describe())
