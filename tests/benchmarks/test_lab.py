"""The benchmarks of the kernel lab: that they compare what they say, on batches small enough for a test."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from benchmarks import lab_area, lab_roof
from benchmarks._lab_bench import BenchLayer
from benchmarks._lab_chunk_race import AREA_PLAN, FIXED_GROUPS, Plan, Race, Way, lab_for
from benchmarks._lab_roofs import Reached, measure
from benchmarks._mixes import LENGTH, STEP_TOKENS, Prefill, mixes
from benchmarks.gpu import checks, lab_gpu
from benchmarks.gpu.checks import Check, relative_error
from orchestrator.engines.kernel_lab.kernels import TorchKernels
from orchestrator.engines.kernel_lab.sparse import SparseCall

CPU = torch.device("cpu")
TINY = Plan(batches=2, searched=1, turns=1, shrink=64)


@pytest.mark.parametrize("shrink", [1, 16])
def test_no_batch_has_more_queries_than_a_step(shrink: int) -> None:
    found = mixes(5, shrink=shrink)
    assert list(found) == ["uniform short", "one huge", "bimodal", "trace-like"]
    for batches in found.values():
        assert len(batches) == 5
        for batch in batches:
            assert 0 < sum(prefill.query_len for prefill in batch) <= STEP_TOKENS // shrink
            assert all(1 <= prefill.query_len <= prefill.seq_len <= LENGTH // shrink for prefill in batch)
    # Where the huge one comes after the step is full, the batch is without it.
    assert max(prefill.seq_len for batch in found["one huge"] for prefill in batch) == LENGTH // shrink


def test_a_race_counts_the_chunks_and_the_workspace_of_each_way() -> None:
    batches = mixes(1, shrink=64)["uniform short"]
    lab = lab_for("c4a", batches, CPU, torch.float32, shrink=64, seed=1)
    lab.fill()
    # vLLM's limit holds four requests of the largest width, which is far more than all the short ones take.
    small = Way("batch", 64)
    lanes = Race(lab, random.Random(1)).run((FIXED_GROUPS, AREA_PLAN, small), batches, 2)
    requests = len(batches[0])
    assert lanes[FIXED_GROUPS].chunks == [-(-requests // 4)]
    assert lanes[AREA_PLAN].chunks == [1]
    assert lanes[small].chunks[0] > 1
    assert lanes[small].peak_bytes < lanes[AREA_PLAN].peak_bytes < lanes[FIXED_GROUPS].peak_bytes
    assert all(len(lane.seconds) == 1 and lane.seconds[0] >= lane.prefill_s > 0 for lane in lanes.values())


def test_a_search_runs_ways_that_cut_alike_only_once() -> None:
    batches = [[Prefill(40, 8)]]
    lab = lab_for("swaonly", batches, CPU, torch.float32, shrink=64, seed=1)
    lab.fill()
    # One request is one chunk, whatever the order and the limit; the first candidate stands for all.
    assert Race(lab, random.Random(1)).search(batches, 1) == AREA_PLAN


def test_the_area_benchmark_ends_with_its_bounds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab_area, "QUICK", TINY)
    monkeypatch.setattr(lab_area, "KINDS", ("c128a",))
    code = lab_area.main(["--quick"])
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert line["benchmark"] == "lab_area"
    assert {row["way"] for row in line["figures"]["rows"]} >= {"groups of 4", "batch"}
    assert len(line["bounds"]) == 2 * 4
    assert code == (0 if all(bound["holds"] for bound in line["bounds"]) else 1)


def test_the_roof_benchmark_ends_with_its_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    code = lab_roof.main(["--quick", "--threads", "1", "--turns", "2"])
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    rows = {row["name"]: row for row in line["figures"]["rows"]}
    assert {row["bound"] for row in rows.values()} == {0.6, 0.7, None}
    assert all(row["rate"] > 0 and row["roof"] > 0 for row in rows.values())
    assert code == (0 if all(bound["holds"] for bound in line["bounds"]) else 1)


def test_a_rate_is_measured_as_often_as_its_roof() -> None:
    calls: list[str] = []

    def side(name: str, rate: float) -> float:
        calls.append(name)
        return rate

    reached = Reached("x", "GB/s", 0.7)
    measure([(reached, lambda: side("rate", 3.0), lambda: side("roof", 4.0))], 20, random.Random(0))
    assert reached.part.ratio == pytest.approx(0.75)
    turns = [tuple(calls[at : at + 2]) for at in range(0, 40, 2)]
    assert {tuple(sorted(turn)) for turn in turns} == {("rate", "roof")}
    assert len(set(turns)) == 2, "the coin never changed who goes first"


def test_an_error_that_is_no_number_holds_no_check() -> None:
    assert not Check("x", "float32", 1, relative_error(torch.full((1, 2), math.nan), torch.ones(1, 2)), 0.1).holds
    assert Check("x", "float32", 1, relative_error(torch.ones(1, 2), torch.ones(1, 2)), 0.1).holds


class FaultyKernels(TorchKernels):
    """Forgets the sink of sparse attention."""

    def sparse_attention(self, call: SparseCall) -> None:
        super().sparse_attention(
            SparseCall(call.queries, call.rows, call.indices, call.lengths, call.spans, call.sink - 1e4, call.out)
        )


def test_the_checks_find_a_kernel_that_forgets_the_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        checks, "BenchLayer", lambda *args, **given: BenchLayer(*args, kernels=FaultyKernels(CPU), **given)
    )
    found = {check.name: check for check in checks._v4_layer("c4a", CPU, torch.float32, 2)}
    assert not found["c4a layer, fp32 reference"].holds
    assert found["c4a layer, bits under every area limit and order"].holds


@pytest.mark.soak
def test_the_gpu_script_writes_every_table_on_a_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lab_gpu.main(["--device", "cpu", "--quick", "--out", str(tmp_path)]) == 0
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert line["figures"]["skipped"] == []
    assert line["figures"]["failed"] == {}
    for name in ("checks", "roofs", "area", "workspace", "dcp"):
        assert pq.read_table(tmp_path / f"{name}.parquet").num_rows == line["figures"][name] > 0
    assert "## workspace" in (tmp_path / "summary.md").read_text()


def test_the_gpu_script_says_what_it_left_out_for_lack_of_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lab_gpu.main(["--device", "cpu", "--quick", "--budget", "0", "--out", str(tmp_path)]) == 1
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert line["figures"]["skipped"] == ["checks", "roofs", "area", "workspace", "dcp"]
    assert "checks" in (tmp_path / "summary.md").read_text()


@pytest.mark.skipif(torch.cuda.is_available(), reason="There is a GPU")
def test_a_gpu_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lab_gpu.main(["--quick", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.strip() == "lab-shape: device 'cuda' is not there: torch sees no GPU"
