from __future__ import annotations

from collections.abc import Callable

import pytest
from optuna.exceptions import StorageInternalError
from sqlalchemy.exc import IntegrityError, OperationalError

from orchestrator.errors import ChunksmithError
from orchestrator.records.store import Retrying


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def __call__(self) -> float:
        return self.now


def outage() -> Exception:
    return OperationalError("SELECT 1", {}, Exception("server closed at postgresql://ann:s3cret@h/d\nmore"))


def failing(times: int, error: Callable[[], Exception]) -> Callable[[], int]:
    calls = 0

    def call() -> int:
        nonlocal calls
        calls += 1
        if calls <= times:
            raise error()
        return calls

    return call


def test_a_call_is_made_again_after_growing_pauses_until_it_succeeds() -> None:
    clock, said = Clock(), list[str]()
    retrying = Retrying(said.append, sleep=clock.sleep, clock=clock)
    assert retrying.call(failing(8, outage)) == 9
    assert clock.pauses == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert said == [
        "study storage: no answer ((builtins.Exception) server closed at postgresql://ann@h/d); "
        "trying again for up to 600 s",
        "study storage: answers again after 92 s",
    ]
    assert retrying.call(failing(0, outage)) == 1
    assert len(said) == 2


def test_it_does_not_wait_for_ever() -> None:
    clock = Clock()
    with pytest.raises(ChunksmithError, match=r"has been away for 10 s: .*go on with --resume") as error:
        Retrying(lambda line: None, limit_s=10, sleep=clock.sleep, clock=clock).call(failing(99, outage))
    assert clock.now <= 10
    assert "s3cret" not in str(error.value)


def wrapped() -> Exception:
    try:
        try:
            raise outage()
        except OperationalError as error:
            raise StorageInternalError("in the commit") from error
    except StorageInternalError as error:
        return error


@pytest.mark.parametrize("error", [wrapped, ConnectionResetError, lambda: TimeoutError("slow")])
def test_what_counts_as_no_answer(error: Callable[[], Exception]) -> None:
    clock = Clock()
    assert Retrying(lambda line: None, sleep=clock.sleep, clock=clock).call(failing(1, error)) == 2


@pytest.mark.parametrize("error", [lambda: ValueError("a bug"), lambda: IntegrityError("INSERT", {}, Exception())])
def test_every_other_error_is_raised_at_once(error: Callable[[], Exception]) -> None:
    clock = Clock()
    with pytest.raises(type(error())):
        Retrying(lambda line: None, sleep=clock.sleep, clock=clock).call(failing(1, error))
    assert clock.pauses == []
