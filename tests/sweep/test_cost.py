from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.errors import UserError
from orchestrator.records import RunFolder
from orchestrator.sweep.cost import Seconds, cost_of, seconds_of
from tests.sweep.studies import make_spec, new_run, read, run_sweep

GIVEN = Seconds(60.0, 6.0, "given")


def test_a_space_of_live_knobs_costs_one_start() -> None:
    spec = make_spec()
    cost = cost_of(spec, spec.search_space(), GIVEN)
    assert cost.starts == (1, 1)
    # 6 trials of a warm-up and 2 or 3 pairs; 2 confirmations of a warm-up, 3 pairs and both sides' greedy tokens.
    assert cost.blocks == (6 * 5 + 2 * 9, 6 * 7 + 2 * 9)
    assert cost.minutes == pytest.approx(((60 + 6 * 48) / 60, (60 + 6 * 60) / 60))


def test_a_confirmation_over_several_starts_costs_these_and_their_warm_ups() -> None:
    spec = make_spec(confirm__pairs=6, confirm__starts=3)
    cost = cost_of(spec, spec.search_space(), GIVEN)
    # For each of 2 points 3 engines of both roles, each with a warm-up; 6 pairs, and both sides' greedy tokens, for
    # which one engine at a time takes another.
    assert cost.starts == (1 + 2 * 6, 1 + 2 * 7)
    assert cost.blocks[0] == 6 * 5 + 2 * (6 + 12 + 2)


@pytest.mark.parametrize(
    ("values", "starts"),
    # Of the groups one is the baseline's, where a value is null.
    [([None], (1, 1)), ([None, 16], (1, 4)), ([16], (2, 4)), ([16, 32, 48, 64, 80, 96, 112, 128], (2, 9))],
)
def test_each_group_but_the_baselines_costs_a_start_and_so_may_a_confirmation(
    values: list[int | None], starts: tuple[int, int]
) -> None:
    spec = make_spec(space__block_size={"scope": "engine", "values": values})
    assert cost_of(spec, spec.search_space(), GIVEN).starts == starts


@pytest.mark.parametrize(("starts", "engines", "groups"), [(1, 2, 3), (3, 2, 3), (3, 1, 1), (3, 2, 1)])
def test_a_sweep_stays_within_the_bounds(tmp_path: Path, starts: int, engines: int, groups: int) -> None:
    values = [None, 32, 64][:groups]
    spec = make_spec(space__block_size={"scope": "engine", "values": values}, trials=8, confirm__starts=starts)
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run, engines=engines)
    cost = cost_of(spec, spec.search_space(), GIVEN)
    started = len(json.loads(run.provenance.read_text())["engines"])
    assert cost.starts[0] <= started <= cost.starts[1]
    assert cost.blocks[0] <= len(read(run, "blocks")) <= cost.blocks[1]


def test_seconds_are_given_measured_or_assumed_and_it_is_said_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = make_spec()
    assert seconds_of(spec, start_s=3, block_s=2) == Seconds(
        3, 2, "3 s for an engine start (given), 2 s for a block (given)"
    )
    assert seconds_of(spec).source == "60 s for an engine start (assumed), 10 s for a block (assumed)"
    run = new_run(tmp_path / "runs" / spec.study, spec)
    run_sweep(spec, run)
    durations = [row["duration_s"] for row in read(run, "blocks")]
    measured = seconds_of(spec)
    assert measured.block_s == pytest.approx(sum(durations) / len(durations))
    assert measured.source.endswith("s for a block (mean of runs/small)")
    assert seconds_of(spec, run.path, start_s=9).start_s == 9
    with pytest.raises(UserError, match="does not exist"):
        seconds_of(spec, tmp_path / "other")


def test_a_run_that_nobody_asked_for_and_nobody_can_read_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = make_spec()
    run = RunFolder.create(tmp_path / "runs" / spec.study)
    run.spec.write_text(spec.to_yaml())
    for file in run.table("blocks").glob("*"):
        file.unlink()
    run.table("blocks").rmdir()
    assert seconds_of(spec).source == "60 s for an engine start (assumed), 10 s for a block (assumed)"
