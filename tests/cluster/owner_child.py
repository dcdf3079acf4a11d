"""Run by the reaper's tests: an owner in custody, with a child, an own-session grandchild, shared memory and a
semaphore."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
from multiprocessing import shared_memory
from multiprocessing.synchronize import Lock

from orchestrator.cluster.custody import Custody


def child(lock: Lock) -> None:
    memory = shared_memory.SharedMemory(create=True, size=4096)
    grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    with lock:
        print(f"{multiprocessing.current_process().pid} {grandchild.pid} {memory.name}", flush=True)
        time.sleep(600)


if __name__ == "__main__":
    custody = Custody(sys.argv[1])
    context = multiprocessing.get_context("spawn")
    lock = context.Lock()  # held here: the semaphore goes when its maker forgets it
    process = context.Process(target=child, args=(lock,))
    process.start()
    if sys.argv[2] == "release":
        sys.stdin.readline()
        custody.release()
        print("released", flush=True)
    time.sleep(600)
