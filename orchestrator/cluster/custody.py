"""The owner's side of the reaper: take an engine into custody before it starts, and remove it when it stops."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import psutil

from orchestrator.cluster import reaper


class Custody:
    """From here on, every child of this process belongs to the engine, and a reaper watches this process.

    Enter it before the engine's first child is started: children are known by an environment variable that they
    inherit.
    """

    def __init__(self, engine_id: str) -> None:
        self._engine_id = engine_id
        self._lease = reaper.lease_folder() / f"{engine_id}.json"
        reaper.reap_stale()
        # In this order: adopted, the reaper would be a child of this process, and Ray kills those with its worker.
        self._start_reaper()
        _adopt_orphans()
        os.environ[reaper.ENGINE_ID_ENV] = engine_id
        # vLLM renames its processes, and setproctitle would write the new name over the environment that tells whose
        # they are.
        os.environ["SPT_NOENV"] = "1"

    def release(self) -> None:
        """Kill every process of the engine. The reaper removes the shared files, and itself, when this process ends."""
        reaper.kill_engine(self._engine_id)
        _collect_children()

    def _start_reaper(self) -> None:
        command = [
            *(sys.executable, str(Path(reaper.__file__))),
            *("--engine-id", self._engine_id),
            *("--owner-pid", str(os.getpid())),
            *("--owner-start", str(psutil.Process().create_time())),
            *("--lease", str(self._lease)),
        ]
        # The command returns once the reaper has left this process tree.
        subprocess.run(command, check=True, timeout=30, stdin=subprocess.DEVNULL)


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
