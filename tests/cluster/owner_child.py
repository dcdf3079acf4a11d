"""Run by the reaper's tests: an owner in custody, with a child, an own-session grandchild, shared memory, a semaphore
and a temporary file."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from multiprocessing import shared_memory
from multiprocessing.synchronize import Lock
from pathlib import Path

from orchestrator.cluster import reaper
from orchestrator.cluster.custody import Custody
from orchestrator.cluster.heartbeat import Heartbeat
from orchestrator.cluster.reaper import beat_path
from orchestrator.engines import Progress


def child(lock: Lock) -> None:
    memory = shared_memory.SharedMemory(create=True, size=4096)
    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    _, name = tempfile.mkstemp()
    with lock:
        print(f"{multiprocessing.current_process().pid} {grandchild.pid} {memory.name} {name}", flush=True)
        time.sleep(600)


def serve_and_spin(heart: Heartbeat, progress: Progress) -> None:
    """Three blocks of one kind, and a fourth in which nothing comes and a thread computes for ever."""
    for _ in range(3):
        with heart.during("block", 1):
            progress.sent += 1
            for _ in range(20):
                progress.chunks += 1
                time.sleep(0.1)
            progress.ended += 1
    print("spins", flush=True)
    with heart.during("block", 1):
        progress.sent += 1
        while True:
            pass


if __name__ == "__main__":
    # A machine of the test's own: nothing else has a reaper there.
    reaper.ROOT = Path(os.environ["CHUNKSMITH_TEST_ROOT"])
    custody = Custody(sys.argv[1], log_path=sys.argv[3])
    context = multiprocessing.get_context("spawn")
    lock = context.Lock()  # held here: the semaphore goes when its maker forgets it
    process = context.Process(target=child, args=(lock,))
    process.start()
    if sys.argv[2] == "spin":
        counted = Progress()
        serve_and_spin(Heartbeat(beat_path(sys.argv[1]), counted, each=custody.renew), counted)
    if sys.argv[2] in ("sleep", "compute"):
        progress = Progress()
        with Heartbeat(beat_path(sys.argv[1]), progress, each=custody.renew).during("block"):
            progress.sent = 1
            while sys.argv[2] == "compute":
                pass
            time.sleep(600)
    if sys.argv[2] in ("release", "renew"):
        sys.stdin.readline()
        getattr(custody, sys.argv[2])()
        print("done", flush=True)
    time.sleep(600)
