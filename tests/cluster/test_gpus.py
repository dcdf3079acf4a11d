"""What is made of the answers of ``nvidia-smi``, which a script stands for here: no GPU is needed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.cluster import gpus

Tell = Callable[[str], None]


@pytest.fixture
def tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tell:
    """Fake: a command ``nvidia-smi`` that notes its arguments and says what it was told to."""
    command = tmp_path / "nvidia-smi"
    command.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\ncat {tmp_path}/answer\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def answer(text: str) -> None:
        new = tmp_path / "new"
        new.write_text(text)
        new.replace(tmp_path / "answer")

    return answer


def test_it_is_asked_for_the_engines_gpus_alone(tell: Tell, tmp_path: Path) -> None:
    tell("512\n1024\n")
    assert gpus.memory_used_mib(["0", "GPU-1a"]) == [512, 1024]
    (asked,) = (tmp_path / "asked").read_text().splitlines()
    assert asked == "--query-gpu=memory.used --format=csv,noheader,nounits --id=0,GPU-1a"


@pytest.mark.parametrize(("answer", "at_work"), [("0\n", False), ("0\n37\n", True), ("[N/A]\n", False), ("", False)])
def test_a_gpu_that_computes_is_at_work(tell: Tell, answer: str, at_work: bool) -> None:
    tell(answer)
    assert gpus.are_at_work(["0", "1"]) is at_work


def test_own_gpus_are_those_that_are_named(tell: Tell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-1a")
    assert gpus.own_gpus() == ["2", "GPU-1a"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpus.own_gpus() == []
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert gpus.own_gpus() == []


def test_memory_that_comes_back_is_waited_for(tell: Tell) -> None:
    tell("9000\n")
    freed = threading.Timer(1.0, tell, ["600\n"])
    freed.start()
    begin = time.monotonic()
    gpus.wait_for_memory(["0"], [500], timeout_s=30.0)
    assert 1.0 <= time.monotonic() - begin < 20.0
    freed.join()


def test_memory_that_does_not_come_back_is_waited_for_so_long(tell: Tell) -> None:
    tell("9000\n")
    begin = time.monotonic()
    gpus.wait_for_memory(["0"], [500], timeout_s=0.6)
    assert time.monotonic() - begin >= 0.6


def test_without_the_command_there_is_nothing_to_wait_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert gpus.own_gpus() == []
    assert gpus.memory_used_mib(["0"]) == []
    assert not gpus.are_at_work(["0"])
    gpus.wait_for_memory(["0"], [500], timeout_s=60.0)
