"""The owner's side of the reaper: take an engine into custody before it starts, and remove it when it stops."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from orchestrator.cluster import duty, gpus, reaper
from orchestrator.cluster.watchdog import SILENCE_S
from orchestrator.vllm_plugin import STEPS_FILE_ENV, make_steps_file

_ROOT: Final = Path(__file__).parents[2]
_REAPER: Final = "orchestrator.cluster.reaper_process"
_CLEAN_TIMEOUT_S = 30.0


class Custody:
    """From here on, every child of this process belongs to the engine, and the machine's reaper watches this process.

    Enter it before the engine's first child is started: children are known by an environment variable that they
    inherit. Their temporary files and sockets go to a folder of the engine's own.

    Args:
        log_path: Where the watchdog writes its verdict; empty for nowhere.
        silence_s: See ``Watchdog``.
    """

    def __init__(self, engine_id: str, *, log_path: str = "", silence_s: float = SILENCE_S) -> None:
        self._engine_id = engine_id
        reaper.reap_stale()
        _wait_for_reaper()
        # First, so that whatever is made from here on is removed.
        self._lease, self._path = _new_lease(engine_id, os.getpid(), log_path, silence_s), _lease_path(engine_id)
        self._lease.write(self._path)
        _ensure_reaper()
        _adopt_orphans(True)
        os.environ.update({**_scratch_env(engine_id), reaper.ENGINE_ID_ENV: engine_id})
        # What was looked up before goes by what was in force before.
        tempfile.tempdir = None
        # vLLM renames its processes, and setproctitle would write the new name over the environment that tells whose
        # they are.
        os.environ["SPT_NOENV"] = "1"

    def renew(self) -> None:
        """Start another reaper if somebody killed it, and write the lease again if somebody removed it; where that
        fails, the next call tries again."""
        if reaper.is_guarded(self._path):
            return
        # Or the reaper would be a child of this process, and Ray kills those with its worker.
        _adopt_orphans(False)
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            if not self._path.exists():
                self._path = _lease_path(self._engine_id)
                self._lease.write(self._path)
            _ensure_reaper()
        _adopt_orphans(True)

    def release(self) -> None:
        """Kill every process of the engine. The reaper removes its files when this process ends."""
        reaper.kill_engine(self._engine_id)
        _collect_children()


def start_reaper(
    engine_id: str,
    owner_pid: int,
    *,
    log_path: str = "",
    silence_s: float = SILENCE_S,
    lease_name: str | None = None,
) -> Path:
    """Have the machine's reaper guard an engine, and start it if there is none; return the engine's lease, which goes
    when the owner has died and nothing is left.

    Args:
        owner_pid: A process. When it dies, every process that carries the engine's id is killed.
        log_path, silence_s: See ``Custody``.
        lease_name: Of the lease; None for the engine's id. An engine with several owners on a machine has as many.
    """
    path = _lease_path(lease_name or engine_id)
    _new_lease(engine_id, owner_pid, log_path, silence_s).write(path)
    _ensure_reaper()
    return path


def _new_lease(engine_id: str, owner_pid: int, log_path: str, silence_s: float) -> reaper.Lease:
    """The GPUs are those of this process, as they are now."""
    own = gpus.own_gpus()
    return reaper.Lease(
        engine_id,
        owner_pid,
        # What one has left that died already is removed at once.
        reaper.start_ticks(owner_pid) or 0,
        # The reaper works in another folder.
        log_path=str(Path(log_path).absolute()) if log_path else "",
        silence_s=silence_s,
        gpus=own,
        gpu_before_mib=gpus.memory_used_mib(own),
    )


def _lease_path(name: str) -> Path:
    return reaper.lease_folder() / f"{name}.json"


def _ensure_reaper() -> None:
    """Called when a lease is written: a reaper that leaves looks for new ones before."""
    duty.ensure(reaper.lease_folder(), _start_reaper)


def _start_reaper() -> None:
    # It must not be taken for a process of the engine, and finds this package wherever that was imported from.
    environment = {name: value for name, value in os.environ.items() if name != reaper.ENGINE_ID_ENV}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_ROOT), environment.get("PYTHONPATH"))))
    # The command returns once the reaper has left this process tree.
    command = [sys.executable, "-m", _REAPER, "--root", str(reaper.ROOT)]
    subprocess.run(command, check=True, timeout=30, stdin=subprocess.DEVNULL, env=environment)


def _scratch_env(engine_id: str) -> Mapping[str, str]:
    """Where the engine's processes put what nobody needs after them. A cache of compiled code is none of that."""
    scratch = reaper.scratch_folder(engine_id)
    scratch.mkdir(mode=0o700, exist_ok=True)
    steps = reaper.steps_path(engine_id)
    make_steps_file(steps)
    return {
        "TMPDIR": str(scratch),
        "VLLM_RPC_BASE_PATH": str(scratch),
        "TORCHINDUCTOR_CACHE_DIR": os.environ.get("TORCHINDUCTOR_CACHE_DIR") or str(reaper.own_folder("torchinductor")),
        STEPS_FILE_ENV: str(steps),
    }


def _wait_for_reaper() -> None:
    """Wait for engines that are being removed from this machine: their memory is this engine's next."""
    deadline = time.monotonic() + _CLEAN_TIMEOUT_S
    while reaper.is_removing() and time.monotonic() < deadline:
        time.sleep(0.05)


def _adopt_orphans(does: bool) -> None:
    """Become the parent of the engine's grandchildren when their own parent dies, so that they do not stay as zombies;
    or no longer.

    Linux ``prctl(PR_SET_CHILD_SUBREAPER)``; without it they go to the machine's first process, which in a container
    may never collect them.
    """
    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, int(does), 0, 0, 0)


def _collect_children() -> None:
    """Take the exit status of every child that has ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return
