"""A sweep of the kernel lab through Ray whose actor is killed, and in ``make soak`` the sweep itself as well."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.analysis import best
from orchestrator.cluster import reaper
from orchestrator.cluster.reaper import Lease, lease_folder
from orchestrator.records import RunFolder, read_arrow
from orchestrator.sweep import load_spec
from tests.sweep.studies import require_whole

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]

SPEC: dict[str, Any] = {
    "version": 1,
    "study": "lab",
    "engine": {
        "kind": "kernel_lab",
        "args": {
            "layers": {"dense": 1, "c4a": 1},
            "heads": 2,
            "kv_lora_rank": 64,
            "qk_rope_head_dim": 16,
            "qk_nope_head_dim": 32,
            "v_head_dim": 32,
            "head_dim": 64,
            "max_model_len": 1024,
            "max_num_batched_tokens": 256,
            "max_num_seqs": 4,
        },
        "env": {"OMP_NUM_THREADS": "1"},
    },
    "space": {
        "mla_workspace_rows": {"scope": "live", "values": [64, 128, 256]},
        "chunk_order": {"scope": "live", "values": ["width", "fixed"]},
    },
    "workload": {"prompts": 4, "input_len": 600, "output_len": 1},
    "load": {"concurrency": None},
    "trials": 6,
    "blocks": {"warmup": 1, "min_pairs": 3, "max_pairs": 3},
    "confirm": {"points": 1, "pairs": 2},
    "accuracy": {"prompts": 1, "input_len": 600, "output_len": 3},
    "soak": {"rounds": 0},
}


class Sweeps:
    """Sweeps of one run, each a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.spec = folder / "lab.yaml"
        self.spec.write_text(yaml.safe_dump(SPEC))
        self.run = RunFolder(folder / "run")
        self.drivers: list[subprocess.Popen[bytes]] = []

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        with self._log(len(self.drivers)).open("wb") as log:
            driver = subprocess.Popen(
                [sys.executable, "-m", "orchestrator.cli", "sweep", "--run", str(self.run.path), *words],
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.drivers.append(driver)
        return driver

    def output(self) -> str:
        return self._log(len(self.drivers) - 1).read_text()

    def recorded(self) -> int:
        return read_arrow(self.run.path, "trials", columns=["trial"]).num_rows if self.run.is_run() else 0

    def engine_ids(self) -> list[str]:
        return sorted(log.stem for log in self.run.logs.glob("engine-*.log"))

    def left(self) -> list[str]:
        """Leases and live processes of the run's engines."""
        names = self.engine_ids()
        leases = [name for name in names if (lease_folder() / f"{name}.json").exists()]
        return [*leases, *(str(process.pid) for name in names for process in reaper.engine_processes(name))]

    def _log(self, number: int) -> Path:
        return self.run.path.parent / f"driver-{number}.log"


def wait_for(condition: Callable[[], object], timeout_s: float = 60.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.fixture
def sweeps(tmp_path: Path) -> Iterator[Sweeps]:
    """No process may be left when the test ends."""
    sweeps = Sweeps(tmp_path)
    yield sweeps
    for driver in sweeps.drivers:
        if driver.poll() is None:
            driver.kill()
            driver.wait()
    assert wait_for(lambda: not sweeps.left()), sweeps.left()


def kill_the_actor(sweeps: Sweeps) -> None:
    """Kill it once a trial is recorded, and wait until the sweep goes on with a fresh one."""
    (driver,) = sweeps.drivers
    assert wait_for(lambda: sweeps.recorded() >= 1 or driver.poll() is not None, 120)
    assert driver.poll() is None, sweeps.output()
    (first,) = sweeps.engine_ids()
    os.kill(Lease.read(lease_folder() / f"{first}.json").owner_pid, signal.SIGKILL)
    at_kill = sweeps.recorded()
    assert wait_for(lambda: sweeps.recorded() > at_kill or driver.poll() is not None), sweeps.output()
    assert "lost: ray-actor-died" in sweeps.output()
    assert len(sweeps.engine_ids()) == 2


def require_all_of_it(run: RunFolder) -> None:
    """Every trial is complete and recorded once, and the lab's own columns tell what was in force."""
    require_whole(run, load_spec(run.spec))
    trials = read_arrow(run.path, "trials").to_pylist()
    assert {row["outcome"] for row in trials} == {"complete"}
    assert all(row["serve_args"] == [] for row in trials)
    blocks = [row for row in read_arrow(run.path, "blocks").to_pylist() if row["outcome"] == "complete"]
    assert all(row["lab_chunks"] > 0 and row["lab_gather_bytes"] > 0 for row in blocks)
    assert {row["chunk_order"] for row in blocks if row["role"] == "candidate"} == {"width", "fixed"}
    assert {row["chunk_order"] for row in blocks if row["role"] == "baseline"} == {"batch"}
    assert best(run.path).counts["trials"] == {"complete": SPEC["trials"]}


def test_an_actor_is_killed_and_the_sweep_ends(sweeps: Sweeps) -> None:
    driver = sweeps.start(str(sweeps.spec))
    kill_the_actor(sweeps)
    assert driver.wait(timeout=120) == 0, sweeps.output()
    assert len(sweeps.engine_ids()) == 2
    require_all_of_it(sweeps.run)


@pytest.mark.soak
def test_actor_and_sweep_killed_and_resumed(sweeps: Sweeps) -> None:
    driver = sweeps.start(str(sweeps.spec))
    kill_the_actor(sweeps)
    driver.kill()
    driver.wait()
    assert sweeps.recorded() < SPEC["trials"]
    assert sweeps.start("--resume").wait(timeout=120) == 0, sweeps.output()
    assert len(sweeps.engine_ids()) == 3
    require_all_of_it(sweeps.run)
