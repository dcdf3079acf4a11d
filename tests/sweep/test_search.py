"""The sampler in the sweep: what it is told, that a resumed study goes on as it would have, and when it ends."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engines.faulty import Faults, FaultyEngines
from orchestrator.records import RunFolder
from orchestrator.search.portfolio import GAIN_ATTR, NOISE_ATTR, START_SECONDS_ATTR, TRIAL_SECONDS_ATTR
from orchestrator.sweep.ledger import Ledger
from tests.sweep.studies import journal, make_spec, new_run, points, read, require_whole, run_sweep

GROUPS = {"scope": "engine", "values": [16, 32, 64, 128]}


def ordered(run: RunFolder) -> list[dict[str, Any]]:
    found = points(run)
    return [found[number] for number in sorted(found)]


@pytest.mark.parametrize("kind", ["portfolio", "tpe", "nsga2", "random"])
@pytest.mark.parametrize("stop", [14, 40])
def test_a_resumed_study_goes_on_as_an_undisturbed_one(tmp_path: Path, kind: str, stop: int) -> None:
    # An engine without noise: what was measured does not depend on where the study was stopped.
    spec = make_spec(trials=12, sampler={"kind": kind, "startup": 4}, confirm={"points": 0}, blocks__warmup=0)
    undisturbed, run = new_run(tmp_path / "undisturbed", spec), new_run(tmp_path / "run", spec)
    run_sweep(spec, undisturbed, FaultyEngines(noise=0.0))
    stopping = FaultyEngines(Faults(run_errors={stop: KeyboardInterrupt()}), noise=0.0)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(spec, run, stopping)
    run_sweep(spec, run, FaultyEngines(noise=0.0))
    require_whole(run, spec)
    assert ordered(run) == ordered(undisturbed)


def test_the_noise_of_a_trial_is_what_the_pairs_so_far_say(tmp_path: Path) -> None:
    spec = make_spec(trials=8)
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run, FaultyEngines(noise=0.02))
    told = journal(run)
    last, ledger = told[-1], Ledger(spec, run)
    pairs = {row["trial"]: row["pairs"] for row in read(run, "trials")}
    assert last.user_attrs[NOISE_ATTR] == pytest.approx(ledger.noise.sd**2 / pairs[7])
    assert all(0.0 < trial.user_attrs[NOISE_ATTR] < 0.01 for trial in told)
    # Where there is one engine, seconds decide nothing.
    assert all(TRIAL_SECONDS_ATTR not in trial.user_attrs for trial in told)


def test_with_engines_to_choose_from_their_seconds_are_told_and_recorded(tmp_path: Path) -> None:
    spec = make_spec(space__block_size=GROUPS, baseline={"block_size": 16}, trials=16, confirm={"points": 0})
    run, engines = new_run(tmp_path / "run", spec), FaultyEngines(noise=0.005)
    run_sweep(spec, run, engines)
    require_whole(run, spec)
    rows = {row["trial"]: row for row in read(run, "trials")}
    started = [number for number, row in rows.items() if row["starting_s"] > 0]
    told = {trial.number: trial.user_attrs for trial in journal(run)}
    # A made-up start takes 1 s. The first trial is on the baseline's engine, which stays warm.
    assert rows[0]["starting_s"] == pytest.approx(1.0, abs=0.3)
    assert json.loads(rows[0]["engine_group"]) == {"block_size": 16}
    assert [number for number in told if START_SECONDS_ATTR in told[number]] == started
    assert len(started) == len(engines.made)
    assert all(attrs[TRIAL_SECONDS_ATTR] >= 0.1 for attrs in told.values())
    # Going back and forth would start an engine for nearly every trial.
    assert len(engines.made) <= 8


def test_no_more_is_to_be_gained(tmp_path: Path) -> None:
    spec = make_spec(trials=12, stop={"expected_gain": 0.01, "after": 2}, sampler={"startup": 4}, confirm__points=1)
    run, output = new_run(tmp_path / "run", spec), io.StringIO()
    run_sweep(spec, run, FaultyEngines(noise=0.001), output)
    count = len(read(run, "trials"))
    assert 6 <= count < 12
    require_whole(run, spec, ended_after=count)
    assert (
        f"search ended after {count} of 12 trials: less than 1 % of the best ratio was to be gained, 2 times in a row"
        in output.getvalue()
    )
    assert all(trial.system_attrs[GAIN_ATTR] < 0.01 for trial in journal(run)[-2:])
    # The best one had been found, and resumed, the study is left as it is.
    assert min(read(run, "trials"), key=lambda row: row["ratio"])["point"] == json.dumps(
        {"max_num_batched_tokens": 512, "mla_workspace_rows": 1024}
    )
    engines, again = FaultyEngines(), io.StringIO()
    run_sweep(spec, run, engines, again)
    assert engines.made == []
    assert "search ended after" in again.getvalue()


def test_a_failed_point_teaches_where_others_fail(tmp_path: Path) -> None:
    from orchestrator.engines import EngineError

    def is_64(config: Any) -> bool:
        return bool(config.args.get("block_size") == 64)

    spec = make_spec(space__block_size=GROUPS, baseline={"block_size": 16}, trials=24, confirm={"points": 0})
    refusal = EngineError("engine-start", "ValueError: block size", log_path="x.log")
    engines = FaultyEngines(*[Faults(start_error=refusal, start_error_if=is_64)] * 40)
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run, engines)
    require_whole(run, spec)
    failed = [row["trial"] for row in read(run, "trials") if row["outcome"] == "failed"]
    assert 1 <= len(failed) <= 4
    assert all(journal(run)[number].constraints["engine-start"] == 1.0 for number in failed)
