"""The end of an engine in an actor, where Ray itself fails, or another thread has ended it."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import OutOfMemoryError, RayError

from orchestrator.cluster import actor
from orchestrator.engines import EngineConfig, EngineError
from orchestrator.workloads import Schedule

CALL = SimpleNamespace(remote=lambda *_: "a reference")
ACTOR = SimpleNamespace(stop=CALL, home=CALL, start=CALL, facts=CALL, retune=CALL, run=CALL, retune_and_run=CALL)
"""Fault: an actor of which Ray gives what the test wants."""


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Actors that were killed."""
    killed: list[Any] = []
    monkeypatch.setattr(ray, "kill", lambda one, no_restart: killed.append(one))
    monkeypatch.setattr(actor, "leave", lambda engine_id: None)
    monkeypatch.setattr(actor, "wait_until_gone", lambda engine_id: None)
    return killed


@pytest.mark.parametrize(
    "error", [OutOfMemoryError("killed"), RayError("its environment is gone"), KeyboardInterrupt()]
)
def test_an_engine_is_ended_whatever_its_stop_meets(
    error: BaseException, ended: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(ray, "get", get)
    engine = actor.RayEngine(tmp_path)
    engine._actor = ACTOR
    # What Ray says of an engine that is being stopped is nobody's trouble; an interrupt is for the caller.
    with pytest.raises(KeyboardInterrupt) if isinstance(error, KeyboardInterrupt) else nullcontext():
        engine.stop()
    assert ended == [ACTOR]
    engine.stop()
    assert ended == [ACTOR]


def test_what_another_thread_has_ended_counts_as_lost(ended: list[Any], tmp_path: Path) -> None:
    engine = actor.RayEngine(tmp_path)
    engine._actor = ACTOR
    engine.abort()
    schedule = Schedule(concurrency=1)
    for call in (
        lambda: engine.retune({}),
        lambda: engine.run([], schedule),
        lambda: engine.retune_and_run({}, [], schedule),
    ):
        with pytest.raises(EngineError, match="the sweep has ended this engine") as caught:
            call()
        assert caught.value.lost


def test_an_engine_that_is_ended_while_it_starts_counts_as_lost(
    ended: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = actor.RayEngine(tmp_path)

    def get(*_: Any, **__: Any) -> tuple[str, str, str]:
        # Between two calls of the start.
        engine.abort()
        return ("node", "machine", "python")

    class Remote:
        def options(self, **_: Any) -> Remote:
            return self

        def remote(self, *_: Any) -> Any:
            return ACTOR

    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setattr(actor, "_of_ray", lambda _: Remote())
    monkeypatch.setattr(actor.RayEngine, "_placed", lambda *_, **__: {})
    with pytest.raises(EngineError, match="the sweep has ended this engine"):
        engine.start(EngineConfig(model="tiny"))
    assert ended == [ACTOR]
