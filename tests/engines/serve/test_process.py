"""The processes of a server are removed with all that they started, shared memory included."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from orchestrator.engines.serve import ServerProcess, names_environment

PARENT = """
import subprocess, sys, time
from multiprocessing.shared_memory import SharedMemory
block = SharedMemory(create=True, size=4096)
deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", deaf])
print(block.name, flush=True)
time.sleep(60)
"""


def started(tmp_path: Path) -> tuple[ServerProcess, Path]:
    """A process with a child that will not end when it is asked to, and a file of shared memory."""
    server = ServerProcess([sys.executable, "-c", PARENT], os.environ, str(tmp_path / "log"))
    deadline = time.monotonic() + 30
    while not server.log_lines() or len(server.members()) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    shared = Path("/dev/shm", server.log_lines()[0])
    assert shared.exists()
    return server, shared


def wait_for_end(server: ServerProcess) -> None:
    deadline = time.monotonic() + 30
    while server.exit_code is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("is_orderly", [True, False])
def test_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_orderly: bool) -> None:
    monkeypatch.setattr("orchestrator.engines.serve.process.TERM_TIMEOUT_S", 0.2)
    server, shared = started(tmp_path)
    server.end() if is_orderly else server.kill()
    assert server.members() == []
    assert server.exit_code is not None
    assert not shared.exists()


def test_the_log_is_appended_to_and_only_the_new_part_is_this_servers(tmp_path: Path) -> None:
    log = tmp_path / "folder" / "log"
    log.parent.mkdir()
    log.write_text("another\n")
    server = ServerProcess([sys.executable, "-c", "print('mine')"], os.environ, str(log))
    wait_for_end(server)
    server.end()
    assert server.log_lines() == ["mine"]
    assert log.read_text() == "another\nmine\n"


def test_a_distribution_called_vllm_is_found(tmp_path: Path) -> None:
    environment = names_environment(tmp_path)
    code = "from importlib import metadata; print(metadata.version('vllm'))"
    server = ServerProcess([sys.executable, "-c", code], {**os.environ, **environment}, str(tmp_path / "log"))
    wait_for_end(server)
    assert server.exit_code == 0
    assert server.log_lines()[0].startswith("0.")
