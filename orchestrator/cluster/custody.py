"""The owner's side of the reaper: take an engine into custody before it starts, and remove it when it stops."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

from orchestrator.cluster import reaper


class Custody:
    """From here on, every child of this process belongs to the engine, and a reaper watches this process.

    Enter it before the engine's first child is started: children are known by an environment variable that they
    inherit.
    """

    def __init__(self, engine_id: str) -> None:
        self._engine_id = engine_id
        reaper.reap_stale()
        # In this order: adopted, the reaper would be a child of this process, and Ray kills those with its worker.
        start_reaper(engine_id, os.getpid())
        _adopt_orphans()
        os.environ[reaper.ENGINE_ID_ENV] = engine_id
        # vLLM renames its processes, and setproctitle would write the new name over the environment that tells whose
        # they are.
        os.environ["SPT_NOENV"] = "1"

    def release(self) -> None:
        """Kill every process of the engine. The reaper removes the shared files, and itself, when this process ends."""
        reaper.kill_engine(self._engine_id)
        _collect_children()


def start_reaper(engine_id: str, owner_pid: int) -> Path:
    """Start the reaper of an engine; return its lease, which goes when the owner has died and nothing is left.

    Args:
        owner_pid: A live process. When it dies, every process that carries the engine's id is killed.
    """
    lease = reaper.lease_folder() / f"{engine_id}.json"
    command = [
        *(sys.executable, str(Path(reaper.__file__))),
        *("--engine-id", engine_id),
        *("--owner-pid", str(owner_pid)),
        *("--owner-start", str(reaper.start_ticks(owner_pid))),
        *("--lease", str(lease)),
    ]
    # The command returns once the reaper has left this process tree.
    subprocess.run(command, check=True, timeout=30, stdin=subprocess.DEVNULL)
    return lease


def _adopt_orphans() -> None:
    """Become the parent of the engine's grandchildren when their own parent dies, so that they do not stay as zombies.

    Linux ``prctl(PR_SET_CHILD_SUBREAPER)``; without it they go to the machine's first process, which in a container
    may never collect them.
    """
    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def _collect_children() -> None:
    """Take the exit status of every child that has ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return
