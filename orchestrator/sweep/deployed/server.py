"""``vllm serve`` as an exported script starts it, on a free port that no other host can reach."""

from __future__ import annotations

import os
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from orchestrator.engines.serve import ServerProcess, names_environment
from orchestrator.errors import ChunksmithError, UserError
from orchestrator.measurement.loadgen import Target, check_target

_HOST: Final = "127.0.0.1"
_POLL_S: Final = 0.2
_LINES: Final = 3
"""Of a failed server's log, that a message shows."""


@dataclass(frozen=True, kw_only=True)
class ServedScript:
    """A script that becomes ``vllm serve``.

    Attributes:
        text: Of the script, which hands further arguments on.
        model: Name under which the server has the model: what ``vllm serve`` is given first.
    """

    text: str
    model: str


class Server:
    """One running script.

    Args:
        folder: For the script and its log, ``<name>.sh`` and ``<name>.log``; a folder of this server's own.
        start_s: Seconds after which a server that does not answer has failed.

    Raises:
        ChunksmithError: It ended, or did not answer in time; nothing is left running then.
    """

    def __init__(self, script: ServedScript, name: str, folder: Path, *, start_s: float) -> None:
        self.log_path = folder / f"{name}.log"
        path = folder / f"{name}.sh"
        path.write_text(script.text, encoding="utf-8")
        port = _free_port()
        self.target = Target(url=f"http://{_HOST}:{port}", model=script.model)
        command = ["sh", str(path), "--host", _HOST, "--port", str(port)]
        self._process = ServerProcess(command, _environment(script.model, folder), str(self.log_path))
        try:
            self._wait(time.monotonic() + start_s)
        except BaseException:
            self._process.kill()
            raise

    def stop(self) -> None:
        """End it in good order; nothing of it is left."""
        self._process.end()

    @property
    def memory_bytes(self) -> int:
        """What its processes hold."""
        held = 0
        for process in self._process.members():
            try:
                held += process.memory_info().rss
            except psutil.Error:
                continue  # it has ended meanwhile
        return held

    def _wait(self, deadline: float) -> None:
        while True:
            try:
                check_target(self.target)
            except UserError as error:
                if self._process.exit_code is not None:
                    raise self._failed(f"ended with exit code {self._process.exit_code}") from error
                if time.monotonic() > deadline:
                    raise self._failed(f"is not ready in time ({error})") from error
                time.sleep(_POLL_S)
            else:
                return

    def _failed(self, how: str) -> ChunksmithError:
        last = [line.strip() for line in self._process.log_lines() if line.strip()][-_LINES:]
        return ChunksmithError(f"vllm serve {how}; its last words: {' / '.join(last)} (log: {self.log_path})")


def _environment(model: str, folder: Path) -> dict[str, str]:
    """This process's own, with the programs of this interpreter first, and nothing asked from anybody."""
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    quiet = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    offline = {"HF_HUB_OFFLINE": "1"} if Path(model).is_dir() else {}
    return {**os.environ, "PATH": programs, **quiet, **offline, **names_environment(folder)}


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((_HOST, 0))
        port: int = found.getsockname()[1]
    return port
