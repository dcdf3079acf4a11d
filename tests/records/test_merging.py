"""Several runs as one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from orchestrator.analysis import best
from orchestrator.errors import ChunksmithError, UserError
from orchestrator.records import RunFolder, SoakRecord, read_arrow
from orchestrator.records.checking import check
from orchestrator.records.merging import merge
from tests.analysis.runs import Run


def make(path: Path, ratios: dict[int, float]) -> Run:
    run = Run(path)
    for number, ratio in ratios.items():
        run.finalist(number, ratio)
        run.trial(number, ratio=ratio, study=path.name)
    run.folder.provenance.write_text(json.dumps({"engines": [{"kind": path.name}], "processes": [], "other": 1}))
    return run


@pytest.fixture
def runs(tmp_path: Path) -> list[RunFolder]:
    return [make(tmp_path / "monday", {0: 0.9, 2: 0.8}).folder, make(tmp_path / "tuesday", {0: 0.7}).folder]


def test_the_second_runs_trials_are_numbered_on(runs: list[RunFolder], tmp_path: Path) -> None:
    rows = merge(runs, tmp_path / "both")
    both = RunFolder.open(tmp_path / "both")
    trials = read_arrow(both.path, "trials").sort_by("trial").to_pylist()
    assert [(row["trial"], row["study"]) for row in trials] == [(0, "monday"), (2, "monday"), (3, "tuesday")]
    assert rows == {table: sum(read_arrow(run.path, table).num_rows for run in runs) for table in rows}
    answer = best(both.path)
    assert (answer.study, answer.trial) == ("both", 3)
    assert answer.ratio == best(runs[1].path).ratio
    assert all(not table.faults and not table.unlisted for table in check(both))
    provenance = json.loads(both.provenance.read_text())
    assert [engine["kind"] for engine in provenance["engines"]] == ["monday", "tuesday"]
    assert [source["first_trial"] for source in provenance["merged_from"]] == [0, 3]


def test_soaks_go_with_their_trials(runs: list[RunFolder], tmp_path: Path) -> None:
    record = SoakRecord(
        study="tuesday", trial=0, point={}, passed=True, rounds=1, blocks=1, seconds=1.0, lost_engines=0,
        batches=["x"], serve_args=[], env={},
    )  # fmt: skip
    record.write(runs[1].path)
    merge(runs, tmp_path / "both")
    assert SoakRecord.read(tmp_path / "both", 0) is None
    found = SoakRecord.read(tmp_path / "both", 3)
    assert found is not None
    assert (found.trial, found.study) == (3, "tuesday")


def test_a_sweep_refuses_a_merged_run(runs: list[RunFolder], tmp_path: Path) -> None:
    from orchestrator.sweep import load_spec

    merge(runs, tmp_path / "both")
    with pytest.raises(UserError, match="merged_from"):
        load_spec(tmp_path / "both" / "spec.yaml")


def test_runs_that_do_not_compare_are_refused(runs: list[RunFolder], tmp_path: Path) -> None:
    spec = yaml.safe_load(runs[1].spec.read_text())
    runs[1].spec.write_text(yaml.safe_dump({**spec, "accuracy": {"tolerance": 0.5}}))
    with pytest.raises(UserError, match=r"tuesday/spec\.yaml: accuracy differs from that of .*monday/spec\.yaml"):
        merge(runs, tmp_path / "both")
    assert not (tmp_path / "both").exists()
    with pytest.raises(UserError, match="is an earlier run"):
        merge(runs[:1], runs[1].path)


def test_a_damaged_run_leaves_no_half_made_one(runs: list[RunFolder], tmp_path: Path) -> None:
    path = runs[1].table("blocks") / "merged-00000.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ChunksmithError, match=r"merged-00000\.parquet: is damaged"):
        merge(runs, tmp_path / "both")
    assert not (tmp_path / "both").exists()
