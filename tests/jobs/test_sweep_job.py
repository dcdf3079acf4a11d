from __future__ import annotations

from pathlib import Path

import pytest

from jobs.sweep import arguments, run


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHUNKSMITH_RUNS", raising=False)
    monkeypatch.setenv("HOME", "/home/engineer")


@pytest.mark.parametrize(
    ("given", "folder"),
    [
        (["search_spaces/cpu_demo.yaml"], "/home/engineer/chunksmith-runs/cpu_demo"),
        (["--trials", "5", "spec.yml"], "/home/engineer/chunksmith-runs/spec"),
        (["--resume", "a.b.yaml"], "/home/engineer/chunksmith-runs/a.b"),
    ],
)
def test_a_job_joins_its_cluster_and_keeps_its_run_outside_the_working_folder(given: list[str], folder: str) -> None:
    assert arguments(given) == ["sweep", "--address", "auto", *given, "--run", folder]


def test_the_folder_of_runs_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHUNKSMITH_RUNS", "/shared/runs")
    assert arguments(["demo.yaml"])[-1] == "/shared/runs/demo"
    monkeypatch.setenv("CHUNKSMITH_RUNS", "")
    assert arguments(["demo.yaml"])[-1] == "/home/engineer/chunksmith-runs/demo"


@pytest.mark.parametrize("given", [["demo.yaml", "--run", "/data/run"], ["--run=/data/run", "demo.yaml"]])
def test_a_run_folder_that_is_given_is_kept(given: list[str]) -> None:
    assert arguments(given) == ["sweep", "--address", "auto", *given]


@pytest.mark.parametrize("given", [["--resume"], ["--resume", "--trials", "5"]])
def test_a_job_cannot_guess_which_run_to_resume(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(given) == 2
    assert capsys.readouterr() == (
        "",
        "chunksmith: error: --resume: say which run by its spec or by --run; runs lie under "
        "/home/engineer/chunksmith-runs on this node\n",
    )
    assert arguments([*given, "--run", "/data/run"])[-2:] == ["--run", "/data/run"]


def test_an_address_that_is_given_comes_later_and_so_wins() -> None:
    words = arguments(["demo.yaml", "--address", "host:6379"])
    assert words.index("host:6379") > words.index("auto")


def test_the_script_is_the_command_with_its_errors(tmp_path: Path) -> None:
    import subprocess
    import sys

    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "jobs/sweep.py", str(tmp_path / "gone.yaml")],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert (
        done.stderr == f"chunksmith: error: {tmp_path / 'gone.yaml'}: cannot read the spec: No such file or directory\n"
    )
