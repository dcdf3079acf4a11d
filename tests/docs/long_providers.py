"""What the blocks need that take minutes, for ``make test-docs``: engines, clusters, environments."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.cli import main
from tests.docs.blocks import ROOT
from tests.docs.commands import run_long, run_measured, run_resolved
from tests.docs.provided import Provided, Provider
from tests.jobs.test_ray_job import free_port, wait_for_dashboard
from tools.light_install import SOURCES

BIN = Path(sys.executable).parent
SHORTENED: dict[str, Any] = {
    "trials": 2,
    "blocks": {"warmup": 0, "min_pairs": 2, "max_pairs": 2},
    "confirm": {"points": 1, "pairs": 2},
}
"""Of the specs that ship, where the point is that they run."""


@contextmanager
def _engine(_: Path, __: pytest.MonkeyPatch) -> Iterator[Provided]:
    """Time for vLLM."""
    # A round is 40 s on a CPU, and the second is as the first.
    yield Provided({"--rounds 20": "--rounds 1", "--rounds 3": "--rounds 2"}, run_long)


@contextmanager
def _servers(_: Path, __: pytest.MonkeyPatch) -> Iterator[Provided]:
    """Time for two servers, over and over."""
    yield Provided(run=run_measured)


@contextmanager
def _short_sweeps(folder: Path, _: pytest.MonkeyPatch) -> Iterator[Provided]:
    """Time for sweeps, specs that take little of it, and no runs yet."""
    shutil.rmtree(folder / "runs")
    assert main(["init", "--model", "tiny-mla", "--input-len", "8192", "-o", "rehearsal.yaml", "--quiet"]) == 0
    for path in (*(folder / "search_spaces").glob("*.yaml"), folder / "rehearsal.yaml"):
        _shorten(path)
    yield Provided(run=run_long)
    for run in (folder / "runs").iterdir():
        assert (run / "trials").is_dir(), run


@contextmanager
def _ray_cluster(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Provided]:
    """A Ray head node that takes jobs, and a working folder to submit."""
    for name in ("jobs", "orchestrator"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    patch.setenv("RAY_AUTH_MODE", "token")
    patch.setenv("RAY_AUTH_TOKEN", "a-token-for-this-test-only-0123456789")
    patch.setenv("CHUNKSMITH_RUNS", str(folder / "runs"))
    dashboard = free_port()
    command = [str(BIN / "ray"), "start", "--head", "--block", "--num-cpus=2", f"--port={free_port()}"]
    command += [f"--dashboard-port={dashboard}", "--dashboard-host=127.0.0.1", "--node-ip-address=127.0.0.1"]
    # Where Ray's own choice of a port is taken, by another Ray, the agent goes on without starting jobs.
    command += ["--object-store-memory=134217728", f"--dashboard-agent-listen-port={free_port()}"]
    with (folder / "head.log").open("wb") as log:
        head = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        wait_for_dashboard(f"http://127.0.0.1:{dashboard}", head, folder / "head.log")
        address = f"http://127.0.0.1:{dashboard}"
        yield Provided({"http://127.0.0.1:8265": address}, run_long)
    finally:
        head.terminate()
        head.wait(timeout=60)


@contextmanager
def _checkout(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Provided]:
    """This checkout, where ``make`` sweeps for a short time into another folder."""
    patch.chdir(ROOT)
    patch.setenv("ARGS", f"--trials 2 --run {folder / 'run'}")
    # `make test` is what runs the other blocks, and would take its 10 minutes once more.
    yield Provided({"make test": "make --dry-run test"}, run_long)
    assert (folder / "run/trials").is_dir()


@contextmanager
def _on_cpu(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Provided]:
    """What a script for a GPU can do without one, in this checkout."""
    patch.chdir(ROOT)
    words = {"[--out FOLDER]": f"--device cpu --quick --out {folder / 'lab'}"}
    yield Provided(words, run_long)
    assert (folder / "lab/summary.md").is_file()


@contextmanager
def _dry_run(_: Path, __: pytest.MonkeyPatch) -> Iterator[Provided]:
    """Engines that are told and not started, for their GPUs are not here."""
    yield Provided({"deepseek_v3_dcp.yaml": "deepseek_v3_dcp.yaml --dry-run"})


def _empty_environment(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Make a virtual environment with nothing in it, and copy the sources."""
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    python = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True)
    patch.setenv("PATH", f"{folder / 'venv/bin'}{os.pathsep}{os.environ['PATH']}")
    patch.delenv("PYTHONPATH")
    patch.delenv("PIP_NO_INDEX")


@contextmanager
def _fresh_environment(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Provided]:
    """Such an environment; what is installed there can read a run."""
    _empty_environment(folder, patch)
    yield Provided(run=run_long)
    subprocess.run([str(folder / "venv/bin/chunksmith"), "best", "runs/cpu-demo"], check=True, capture_output=True)


@contextmanager
def _environment_for_gpus(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Provided]:
    """Such an environment, in which nothing is installed."""
    _empty_environment(folder, patch)
    yield Provided(run=run_resolved)


def _shorten(path: Path) -> None:
    """Write the spec with fewer trials and blocks."""
    content: dict[str, Any] = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(content | SHORTENED, sort_keys=False))


LONG: dict[str, Provider] = {
    "engine": _engine,
    "servers": _servers,
    "short-sweeps": _short_sweeps,
    "ray-cluster": _ray_cluster,
    "dry-run": _dry_run,
    "on-cpu": _on_cpu,
    "checkout": _checkout,
    "fresh-environment": _fresh_environment,
    "environment-for-gpus": _environment_for_gpus,
}
"""What a comment can ask for, by name."""
