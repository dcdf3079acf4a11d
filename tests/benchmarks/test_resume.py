"""The benchmark of a resume, on a run of 20 trials: it begins a new trial, and leaves the run as it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import resume
from orchestrator.records import RunFolder, read_trials
from tests.sweep.studies import journal


def test_it_times_a_resume_and_leaves_the_run_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(resume, "REPEATS", 1)
    resume.main(["--trials", "20", "--keep", str(tmp_path / "run")])
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert line["benchmark"] == "resume"
    assert line["figures"]["trials"] == 20
    (bound,) = line["bounds"]
    assert (bound["bound"], bound["sense"], bound["holds"]) == (2.0, "at most", bound["value"] <= 2.0)
    assert 0 < bound["value"] == line["figures"]["first_ask_s"][0]
    run = RunFolder(tmp_path / "run")
    trials = read_trials(run.path)
    assert len(trials) == 20
    assert [trial.state.name for trial in journal(run, "resume")] == ["COMPLETE"] * 20
    # The same points and ratios in both.
    assert [trial.value for trial in journal(run, "resume")] == trials["ratio"].tolist()
    assert [trial.params for trial in journal(run, "resume")] == [json.loads(point) for point in trials["point"]]
