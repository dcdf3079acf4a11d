"""Run by the reaper's tests: an owner in custody, with a child, an own-session grandchild, shared memory, a semaphore
and a temporary file."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import tempfile
import time
from multiprocessing import shared_memory
from multiprocessing.synchronize import Lock

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


if __name__ == "__main__":
    custody = Custody(sys.argv[1], log_path=sys.argv[3])
    context = multiprocessing.get_context("spawn")
    lock = context.Lock()  # held here: the semaphore goes when its maker forgets it
    process = context.Process(target=child, args=(lock,))
    process.start()
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
