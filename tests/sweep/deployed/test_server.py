"""A script that serves: started on a loopback port, ready when it answers, and ended with all that it started."""

from __future__ import annotations

import shlex
from pathlib import Path

import psutil
import pytest

from orchestrator.engines.serve import process
from orchestrator.errors import ChunksmithError
from orchestrator.measurement.loadgen import check_target
from orchestrator.sweep.deployed import ServedScript, Server

CHILD = Path(__file__).with_name("serving_child.py")


def script(model: str) -> ServedScript:
    return ServedScript(text=f'exec python {shlex.quote(str(CHILD))} {model} "$@"\n', model=model)


def test_a_script_is_ready_when_it_answers_and_ends_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(script("small"), "candidate", tmp_path, start_s=60.0)
    check_target(server.target)
    assert server.target.url.startswith("http://127.0.0.1:")
    assert server.memory_bytes > 2**20
    log = dict(line.split(maxsplit=1) for line in server.log_path.read_text().splitlines()[:2])
    # The CPU build of vLLM has another name, and the command asks for this one.
    assert log["vllm"]
    child = psutil.Process(int(log["child"]))
    # It does not end by itself, and is not waited for any longer than this.
    monkeypatch.setattr(process, "TERM_TIMEOUT_S", 0.5)
    server.stop()
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_a_script_that_ends_is_told_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(ChunksmithError, match=r"ended with exit code 1; its last words: ValueError: no such model"):
        Server(script("broken"), "candidate", tmp_path, start_s=60.0)


def test_a_script_that_never_answers_is_ended(tmp_path: Path) -> None:
    silent = ServedScript(text="echo $$\nexec sleep 600\n", model="small")
    with pytest.raises(ChunksmithError, match="is not ready in time"):
        Server(silent, "candidate", tmp_path, start_s=0.5)
    assert not psutil.pid_exists(int((tmp_path / "candidate.log").read_text().split()[0]))
