"""An analysis needs no engine, and none of the large libraries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import light_install
from tools.light_install import COMMANDS, ROOT, size_of

BLOCKED = ("jinja2", "numba", "optuna", "plotly", "ray", "scipy", "torch", "vllm")
"""Belong to the extras."""

_RUN = """
import sys
for name in sys.argv[1].split(","):
    sys.modules[name] = None  # importing it is then a ModuleNotFoundError
from orchestrator.cli import main
run, failed = sys.argv[2], []
for command in sys.argv[3:]:
    if main([run if word == "RUN" else word for word in command.split()]):
        failed.append(command)
sys.exit(f"failed: {failed}" if failed else 0)
"""


def answers(folder: Path, *commands: str) -> subprocess.CompletedProcess[str]:
    run = str(ROOT / "results/data/cpu-demo")
    return subprocess.run(
        [sys.executable, "-c", _RUN, ",".join(BLOCKED), run, *commands],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_analysis_works_without_the_libraries_of_the_extras(tmp_path: Path) -> None:
    done = answers(tmp_path, *(" ".join(command) for command in COMMANDS))
    assert done.returncode == 0, done.stderr


def test_what_needs_one_says_in_one_line_where_it_comes_from(tmp_path: Path) -> None:
    done = answers(tmp_path, "report RUN", "dashboard RUN")
    assert done.stderr.splitlines()[:2] == [
        "chunksmith: error: the library 'jinja2' is missing; see: pip install 'chunksmith[report]'",
        "chunksmith: error: the library 'optuna' is missing; see: chunksmith doctor",
    ]


def test_a_file_with_two_names_is_counted_once(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(bytes(8192))
    before = size_of(tmp_path)
    (tmp_path / "two").hardlink_to(tmp_path / "one")
    assert size_of(tmp_path) == before >= 8192


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_fresh_environment_is_small_and_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert light_install.main() == 0, capsys.readouterr().out
