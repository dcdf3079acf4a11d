"""What is made of the answers of ``nvidia-smi``, which a script stands for here: no GPU is needed."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

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


@pytest.mark.parametrize(
    ("answer", "at_work"),
    [("0\n0\n", False), ("0\n37\n", True), ("[N/A]\n0\n", True), ("", True), ("No devices were found\n", True)],
)
def test_a_gpu_that_computes_is_at_work_and_one_of_which_nobody_can_say(tell: Tell, answer: str, at_work: bool) -> None:
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
    assert not gpus.are_at_work([])
    gpus.wait_for_memory(["0"], [], timeout_s=60.0)


class FaultyQuery(subprocess.Popen[str]):
    """Fault: it sits in the driver, where SIGKILL does not end it until the driver lets it go."""

    made: ClassVar[list[FaultyQuery]] = []

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__(["sleep", "600"], stdout=subprocess.PIPE, text=True)
        self.made.append(self)
        self.was_killed = False

    def kill(self) -> None:
        self.was_killed = True

    def wait(self, timeout: float | None = None) -> int:
        assert timeout is not None, "this would wait for ever"
        return super().wait(timeout)

    def let_go(self) -> None:
        super().kill()
        super().wait(20.0)


@pytest.fixture
def stuck_driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FaultyQuery]]:
    monkeypatch.setattr(subprocess, "Popen", FaultyQuery)
    monkeypatch.setattr(gpus, "_ASK_TIMEOUT_S", 0.1)
    monkeypatch.setattr(gpus, "_unanswered", [])
    monkeypatch.setattr(FaultyQuery, "made", [])
    yield FaultyQuery.made
    for one in FaultyQuery.made:
        one.let_go()


def test_a_query_that_survives_being_killed_is_not_waited_for(stuck_driver: list[FaultyQuery]) -> None:
    assert gpus.memory_used_mib(["0"]) == []
    assert gpus.are_at_work(["0"])
    # Nor is there another one beside it.
    (query,) = stuck_driver
    assert query.was_killed
    query.let_go()
    assert gpus.memory_used_mib(["0"]) == []
    assert len(stuck_driver) == 2


def test_memory_of_a_driver_that_does_not_answer_is_waited_for_so_long(stuck_driver: list[FaultyQuery]) -> None:
    begin = time.monotonic()
    gpus.wait_for_memory(["0"], [500], timeout_s=0.6)
    assert 0.6 <= time.monotonic() - begin < 20.0


def test_a_query_that_was_late_is_collected_by_the_next(
    tell: Tell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell("512\n")
    slow = tmp_path / "nvidia-smi"
    text = slow.read_text()
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    with monkeypatch.context() as patched:
        patched.setattr(gpus, "_ASK_TIMEOUT_S", 0.1)
        assert gpus.memory_used_mib(["0"]) == []
    slow.write_text(text)
    deadline = time.monotonic() + 20.0
    while gpus.memory_used_mib(["0"]) != [512]:
        assert time.monotonic() < deadline
