"""kill -9 of the driver, of the Ray worker and of vLLM's engine core, each in the middle of a real sweep.

After ``--resume`` the study holds its trials once each in every table, and neither a process nor a shared file is left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import optuna
import pandas as pd
import psutil
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from orchestrator.cluster import reaper
from orchestrator.cluster.reaper import Lease, lease_folder

pytestmark = [pytest.mark.soak, pytest.mark.engine, pytest.mark.ray, pytest.mark.timeout(600)]

TRIALS = 4
SPEC = f"""
version: 1
study: kill
model: tiny-mla
engine:
  args: {{dtype: bfloat16, max_model_len: 4096, max_num_batched_tokens: 512, max_num_seqs: 4, enforce_eager: true,
          enable_chunked_prefill: true, enable_prefix_caching: false}}
  plugin: {{cpu_chunked_prefill: true}}
  env: {{OMP_NUM_THREADS: "1", VLLM_CPU_OMP_THREADS_BIND: nobind, VLLM_CPU_KVCACHE_SPACE: "1"}}
space:
  mla_workspace_rows: {{scope: live, values: [128, 512, 2048, 16384]}}
workload: {{input_len: 3500}}
trials: {TRIALS}
blocks: {{min_pairs: 2, max_pairs: 2}}
confirm: {{points: 1, pairs: 2}}
accuracy: {{prompts: 2, input_len: 2000, output_len: 4}}
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    """A run folder with the spec beside it; no process and no shared file may be left when the test ends."""
    before = ownerless_files()
    (tmp_path / "kill.yaml").write_text(SPEC)
    run = tmp_path / "run"
    yield run
    assert wait_for(lambda: not engine_processes(run)), engine_processes(run)
    assert wait_for(lambda: ownerless_files() <= before), ownerless_files() - before


def start(run: Path, *, resume: bool = False) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "orchestrator.cli", "sweep", "--run", str(run)]
    words += ["--resume"] if resume else [str(run.parent / "kill.yaml")]
    with (run.parent / f"driver-{resume}.log").open("wb") as log:
        return subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)


def until_trials(driver: subprocess.Popen[bytes], run: Path, number: int) -> None:
    """Wait until so many trials are recorded, and the next has begun to measure."""
    assert wait_for(lambda: trials_begun(run) > number or driver.poll() is not None, 240)
    assert driver.poll() is None, (run.parent / "driver-False.log").read_text()
    assert len(trials_of(run)) == number


def require_whole(run: Path) -> None:
    """The study holds its trials once each, in all three tables and in the journal, and none is running."""
    for table in ("trials", "blocks", "requests"):
        frame = pd.read_parquet(run / table)
        search = frame[frame["phase"] == "search"] if "phase" in frame else frame
        assert sorted(search["trial"].unique()) == list(range(TRIALS)), table
        keys = ["trial"] if table == "trials" else ["trial", "phase", "block"]
        keys += ["request"] if table == "requests" else []
        # The accuracy phase holds the two roles under their own block numbers, so that the keys are unique there too.
        assert not frame.duplicated(keys).any(), table
    assert (pd.read_parquet(run / "trials")["outcome"] == "complete").all()
    storage = JournalStorage(JournalFileBackend(str(run / "study.journal")))
    trials = optuna.load_study(study_name="kill", storage=storage).get_trials()
    assert [trial.number for trial in trials] == list(range(TRIALS))
    assert all(trial.state.is_finished() for trial in trials)


def test_driver_killed(run: Path) -> None:
    driver = start(run)
    until_trials(driver, run, 1)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    assert wait_for(lambda: not engine_processes(run), 30), engine_processes(run)
    assert start(run, resume=True).wait(timeout=240) == 0
    require_whole(run)


def test_ray_worker_killed(run: Path) -> None:
    driver = start(run)
    until_trials(driver, run, 1)
    os.kill(the_process(run, "ray::EngineActor").pid, signal.SIGKILL)
    assert driver.wait(timeout=240) == 0
    assert start(run, resume=True).wait(timeout=240) == 0
    require_whole(run)


def test_engine_core_killed(run: Path) -> None:
    driver = start(run)
    until_trials(driver, run, 1)
    os.kill(the_process(run, "VLLM::EngineCor").pid, signal.SIGKILL)
    assert driver.wait(timeout=240) == 0
    assert start(run, resume=True).wait(timeout=240) == 0
    require_whole(run)


def trials_begun(run: Path) -> int:
    """Trials that Optuna's journal has handed out (its operation 4 creates one)."""
    journal = run / "study.journal"
    return journal.read_text().count('"op_code":4,') if journal.exists() else 0


def trials_of(run: Path) -> list[Path]:
    return list((run / "trials").glob("trial-*.parquet"))


def the_process(run: Path, name: str) -> psutil.Process:
    """The one process of this run's engine (its actor is the owner of the lease) that bears the name."""
    (engine_id,) = engine_ids(run)
    lease = Lease.read(lease_folder() / f"{engine_id}.json")
    owner = psutil.Process(lease.owner_pid)
    found = [process for process in (owner, *owner.children(recursive=True)) if process_name(process).startswith(name)]
    assert len(found) == 1, found
    return found[0]


def process_name(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def engine_ids(run: Path) -> list[str]:
    return [log.stem for log in (run / "logs").glob("engine-*.log")]


def engine_processes(run: Path) -> list[str]:
    """Live processes of the run's engines, and their reapers."""
    leases = [engine_id for engine_id in engine_ids(run) if (lease_folder() / f"{engine_id}.json").exists()]
    living = [process for engine_id in engine_ids(run) for process in reaper.engine_processes(engine_id)]
    return [*leases, *(f"{process.pid} {process_name(process)}" for process in living)]


def ownerless_files() -> set[str]:
    """Files in shared memory that no live process maps: leaked ones."""
    mapped = {name for pid in psutil.pids() for name in reaper.shared_files(pid)}
    return {str(entry) for entry in Path("/dev/shm").iterdir()} - mapped


def wait_for(condition: Callable[[], bool], timeout_s: float = 30.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
