"""kill -9 of the driver, of the Ray worker and of vLLM's engine core, each in the middle of a real sweep.

After ``--resume`` the study holds its trials once each in every table, and neither a process nor a shared file is left.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import psutil
import pytest

from orchestrator.cluster import reaper
from tests.soak.clusters import ray_nodes
from tests.soak.killing import Study, Tally, check_end, plans
from tests.soak.victims import (
    ACTOR,
    DRIVER,
    ENGINE,
    WORKER,
    WRITER,
    actor_of,
    engine_of,
    kill,
    left_of,
    starting_worker,
)

pytestmark = [pytest.mark.soak, pytest.mark.engine, pytest.mark.ray, pytest.mark.timeout(600)]

TRIALS = 4
KILLS = int(os.environ.get("CHUNKSMITH_SOAK_ENGINE_KILLS", "50"))
CORE = "VLLM::EngineCor"
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
SCALE_S = {"open": 0.3, "ask": 0.05, "start": 30.0, "block": 1.0, "record": 0.02, "tell": 0.02, "confirm": 0.02}


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    """A run folder with the spec beside it; no process and no shared file may be left when the test ends."""
    before = ownerless_files()
    (tmp_path / "kill.yaml").write_text(SPEC)
    run = tmp_path / "run"
    yield run
    assert wait_for(lambda: not left_of(run)), left_of(run)
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
    assert len(list((run / "trials").glob("trial-*.parquet"))) == number


def require_whole(run: Path) -> None:
    """The study holds its trials once each, in all three tables and in the journal, and none is running."""
    tally = Tally()
    check_end(run, TRIALS, tally)
    assert tally.faults == dict.fromkeys(tally.faults, 0)
    for table in ("trials", "blocks", "requests"):
        frame = pd.read_parquet(run / table)
        search = frame[frame["phase"] == "search"] if "phase" in frame else frame
        assert sorted(search["trial"].unique()) == list(range(TRIALS)), table
        keys = ["trial"] if table == "trials" else ["trial", "phase", "block"]
        keys += ["request"] if table == "requests" else []
        # The accuracy phase holds the two roles under their own block numbers, so that the keys are unique there too.
        assert not frame.duplicated(keys).any(), table
    assert (pd.read_parquet(run / "trials")["outcome"] == "complete").all()


def test_driver_killed(run: Path) -> None:
    driver = start(run)
    until_trials(driver, run, 1)
    driver.kill()
    driver.wait()
    assert wait_for(lambda: not left_of(run), 30), left_of(run)
    assert start(run, resume=True).wait(timeout=240) == 0
    require_whole(run)


def test_ray_worker_killed(run: Path) -> None:
    driver = start(run)
    until_trials(driver, run, 1)
    assert kill(actor_of(run))
    assert driver.wait(timeout=240) == 0
    assert start(run, resume=True).wait(timeout=240) == 0
    require_whole(run)


def test_engine_core_killed(run: Path) -> None:
    driver = start(run)
    until_trials(driver, run, 1)
    assert kill(engine_of(run, CORE))
    assert driver.wait(timeout=240) == 0
    assert start(run, resume=True).wait(timeout=240) == 0
    require_whole(run)


@pytest.mark.timeout(3 * 3600)
def test_fifty_kills_of_a_real_engine_lose_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its times are measured, and the recommendation may differ where two points are close; all else has to hold."""
    before, tally, rng = ownerless_files(), Tally(), random.Random(0)
    victims = {DRIVER: 2.0, WRITER: 1.0, WORKER: 1.0, ACTOR: 2.0, ENGINE: 3.0}
    with ray_nodes(1) as nodes:
        finders: dict[str, Callable[[Path], psutil.Process | None]] = {
            ACTOR: actor_of,
            ENGINE: lambda run: engine_of(run, CORE),
            WORKER: lambda run: starting_worker(nodes.raylets(), run),
        }
        options = ("--address", nodes.address, "--ray-auth", "disabled", "--parallel", "1")
        while tally.total < KILLS:
            own = tmp_path / f"study-{tally.studies}"
            own.mkdir()
            (own / "kill.yaml").write_text(SPEC)
            study = Study(
                own,
                own / "kill.yaml",
                options,
                lambda victim, run: kill(finders[victim](run)),
                stated_times=False,
            )
            study.killed(plans(rng, victims, SCALE_S, min(12, KILLS - tally.total)), tally)
            check_end(study.run, TRIALS, tally)
            with capsys.disabled():
                sys.stderr.write(f"\n{tally.matrix()}\n")
    assert tally.faults == dict.fromkeys(tally.faults, 0), tally.matrix()
    assert wait_for(lambda: ownerless_files() <= before), ownerless_files() - before


def trials_begun(run: Path) -> int:
    """Trials that Optuna's journal has handed out (its operation 4 creates one)."""
    journal = run / "study.journal"
    return journal.read_text().count('"op_code":4,') if journal.exists() else 0


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
