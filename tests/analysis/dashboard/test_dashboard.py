"""Optuna's dashboard over a run: through its own API, and in a browser."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from orchestrator.analysis.dashboard import Dashboard
from orchestrator.analysis.dashboard.view import ReadOnlyError, RunView
from orchestrator.errors import UserError
from tests.analysis.dashboard.planned import record
from tests.analysis.dashboard.reach import require_this_host_alone
from tests.analysis.runs import Run
from tests.browsers import chromium


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run of three trials: one that wins, one that failed, one that is not recorded yet."""
    run = Run(tmp_path / "run")
    study = optuna.create_study(storage=storage(run), study_name="demo", direction="minimize")
    for ratio, state in ((0.66, TrialState.COMPLETE), (None, TrialState.PRUNED), (None, None)):
        trial = study.ask()
        trial.suggest_categorical("mla_workspace_rows", [128, 256, 512])
        if state is not None:
            study.tell(trial, ratio, state=state)
    run.finalist(0, 0.66)
    log = run.folder.logs / "engine-1.log"
    log.parent.mkdir(exist_ok=True)
    log.write_text("the last words of the engine\n")
    run.trial(
        1,
        outcome="failed",
        failure="oom",
        failure_detail="out of <memory>",
        ratio=None,
        engine_log="/somewhere/else/logs/engine-1.log",
    )
    return run


def storage(run: Run) -> JournalStorage:
    return JournalStorage(JournalFileBackend(str(run.folder.journal)))


@pytest.fixture
def dashboard(run: Run) -> Iterator[Dashboard]:
    with Dashboard(run.folder) as dashboard:
        yield dashboard


def get(dashboard: Dashboard, path: str) -> bytes:
    root = dashboard.url.partition("/dashboard")[0]
    with urllib.request.urlopen(f"{root}{path}", timeout=30) as answer:
        body: bytes = answer.read()
    return body


def test_trials_show_what_the_records_know(dashboard: Dashboard) -> None:
    study = json.loads(get(dashboard, "/api/studies/0"))
    won, failed, running = study["trials"]
    assert (won["constraints"], failed["constraints"], running["constraints"]) == ([0.0], [1.0], [])
    attributes = {one["key"]: one["value"] for one in failed["user_attrs"]}
    assert (attributes["outcome"], attributes["failure"]) == ("failed", "oom")
    assert "engine_group" in attributes
    assert "oom: out of <memory>" in failed["note"]["body"]
    assert running["note"]["body"] == ""


def test_the_note_of_the_study_is_the_present_answer(dashboard: Dashboard) -> None:
    study = json.loads(get(dashboard, "/api/studies/0"))
    assert study["note"]["body"].startswith("## Winner")
    assert "vllm serve" in study["note"]["body"]
    assert {one["id"] for one in study["plotly_graph_objects"]} >= {"Pairs_over_time", "Feasible_and_failed_points"}


def test_artifacts_are_the_files_of_the_run(dashboard: Dashboard) -> None:
    study = json.loads(get(dashboard, "/api/studies/0"))
    contents = {
        one["filename"]: get(dashboard, f"/artifacts/0/1/{one['artifact_id']}")
        for one in study["trials"][1]["artifacts"]
    }
    assert contents["engine-log-tail.txt"] == b"the last words of the engine\n"
    assert json.loads(contents["record.json"])["trials"][0]["failure"] == "oom"


def test_a_trial_with_a_plan_has_its_picture(run: Run) -> None:
    record(run, 0, [2048], candidate={"workspace_rows": 256}, baseline={"workspace_rows": 1024})
    with Dashboard(run.folder) as dashboard:
        won, failed, _ = json.loads(get(dashboard, "/api/studies/0"))["trials"]
        assert "plan.svg" not in {one["filename"] for one in failed["artifacts"]}
        picture = next(one for one in won["artifacts"] if one["filename"] == "plan.svg")
        assert picture["mimetype"] == "image/svg+xml"
        assert b"4 chunks, 1,024 rows" in get(dashboard, f"/artifacts/0/0/{picture['artifact_id']}")


def test_a_log_is_never_read_outside_the_run(run: Run, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    run.trial(1, outcome="failed", failure="oom", ratio=None, engine_log=str(tmp_path / "secret"))
    with Dashboard(run.folder) as dashboard:
        study = json.loads(get(dashboard, "/api/studies/0"))
        log = next(one for one in study["trials"][1]["artifacts"] if one["filename"].startswith("engine-log"))
        assert b"secret: not here" in get(dashboard, f"/artifacts/0/1/{log['artifact_id']}")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", "/api/studies/0"),
        ("POST", "/api/studies"),
        ("PUT", "/api/studies/0/note"),
        ("POST", "/api/trials/2/tell"),
    ],
)
def test_nothing_can_be_changed(dashboard: Dashboard, run: Run, method: str, path: str) -> None:
    before = run.folder.journal.read_bytes()
    root = dashboard.url.partition("/dashboard")[0]
    request = urllib.request.Request(f"{root}{path}", data=b"{}", method=method)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)
    assert refused.value.code == 405
    assert run.folder.journal.read_bytes() == before


def test_it_listens_on_the_loopback_alone(dashboard: Dashboard) -> None:
    assert dashboard.url.startswith("http://127.0.0.1:")
    require_this_host_alone(int(dashboard.url.split(":")[2].partition("/")[0]))


def test_a_taken_port_is_one_line(dashboard: Dashboard, run: Run) -> None:
    port = int(dashboard.url.split(":")[2].partition("/")[0])
    with pytest.raises(UserError, match=f"--port {port}: cannot listen there"):
        Dashboard(run.folder, port=port)


def test_a_run_without_a_study_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no study yet"):
        Dashboard(Run(tmp_path / "run").folder)


def test_a_view_follows_the_records_and_the_study(run: Run) -> None:
    view = RunView(storage(run), run.folder, 0)
    assert "outcome" not in view.get_all_trials(0)[2].user_attrs
    run.trial(2, outcome="infeasible", failure="slo", ratio=None)
    assert view.get_all_trials(0)[2].user_attrs["outcome"] == "infeasible"
    assert view.get_trial(2).system_attrs["constraints"] == [1.0]
    # Its artifacts are there too, before it is told.
    assert any(name.startswith("artifacts:") for name in view.get_trial(2).system_attrs)
    study = optuna.load_study(study_name="demo", storage=storage(run))
    study.tell(2, state=TrialState.FAIL)
    assert view.get_all_trials(0, states=(TrialState.FAIL,))[0].number == 2
    assert view.get_all_studies()[0].system_attrs.keys() >= {"dashboard:note_ver"}


def test_a_lost_trial_says_nothing_of_its_point(run: Run) -> None:
    run.trial(1, outcome="lost", failure="node", ratio=None)
    assert "constraints" not in RunView(storage(run), run.folder, 0).get_trial(1).system_attrs


def test_damaged_records_take_the_place_of_the_answer(run: Run) -> None:
    run.trial(1, point="no object")  # type: ignore[arg-type]
    attributes = RunView(storage(run), run.folder, 0).get_study_system_attrs(0)
    assert "cannot be read" in attributes["dashboard:note_str:0"]


@pytest.mark.parametrize(
    "write",
    [
        lambda view: view.create_new_study([]),
        lambda view: view.delete_study(0),
        lambda view: view.set_study_user_attr(0, "a", 1),
        lambda view: view.set_study_system_attr(0, "a", 1),
        lambda view: view.create_new_trial(0),
        lambda view: view.set_trial_param(2, "a", 1.0, optuna.distributions.FloatDistribution(0, 1)),
        lambda view: view.set_trial_state_values(2, TrialState.COMPLETE, [1.0]),
        lambda view: view.set_trial_intermediate_value(2, 0, 1.0),
        lambda view: view.set_trial_user_attr(2, "a", 1),
        lambda view: view.set_trial_system_attr(2, "a", 1),
    ],
)
def test_a_view_refuses_to_write(run: Run, write: Any) -> None:
    with pytest.raises(ReadOnlyError):
        write(RunView(storage(run), run.folder, 0))


def test_a_browser_shows_the_trials_apart(dashboard: Dashboard) -> None:
    with chromium() as browser:
        page = browser.new_page()
        page.goto(f"{dashboard.url}/trials?numbers=1")
        page.get_by_text("oom: out of <memory>").wait_for(timeout=60_000)
        page.goto(f"{dashboard.url}/note")
        page.get_by_role("heading", name="Winner").wait_for(timeout=60_000)
