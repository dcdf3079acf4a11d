"""What every engine's actor imports when a sweep begins, and whom the driver asks for the facts of a node."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import RayActorError

from orchestrator.cluster import NodeWatch, RayEngine, Timeouts
from orchestrator.cluster.actor import RETUNE_TIMEOUT_S
from orchestrator.cluster.engine_actor import EngineActor, Home
from orchestrator.cluster.heartbeat import Beat, Heartbeat
from orchestrator.engines import (
    BlockResult,
    EngineConfig,
    EngineError,
    KnobValue,
    Progress,
    RejectedError,
    StopRule,
    TunedRuns,
)
from orchestrator.engines.faulty import Faults, FaultyEngine
from orchestrator.records import collect
from orchestrator.workloads import Request, Schedule, random_requests

HEAVY = ("optuna", "pandas", "pyarrow", "ray", "torch", "vllm")


def test_an_actor_imports_nothing_that_one_in_many_needs() -> None:
    code = (
        "import sys, orchestrator.cluster.engine_actor; print(*(name for name in sys.argv[1:] if name in sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", code, *HEAVY], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.split() == []


@pytest.mark.parametrize(
    ("node", "python", "is_asked"),
    [("here", sys.prefix, False), ("elsewhere", sys.prefix, True), ("here", "/another/python", True)],
)
def test_the_facts_of_a_node_are_the_drivers_own_only_on_its_node_with_its_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, node: str, python: str, is_asked: bool
) -> None:
    def answer(reference: str, timeout_s: float, phase: str) -> dict[str, Any]:
        return {"asked by": reference}

    monkeypatch.setattr(Home, "here", lambda: Home(1, "here", sys.prefix))
    engine = RayEngine(tmp_path)
    engine._home = Home(2, node, python)
    engine._actor = SimpleNamespace(facts=SimpleNamespace(remote=lambda: "actor"))
    monkeypatch.setattr(engine, "_get", answer)
    facts = engine._facts()
    if is_asked:
        assert facts == {"asked by": "actor"}
    else:
        assert facts["versions"] == collect()["versions"]


class Watched(FaultyEngine):
    """Notes the phase of its heart at each call."""

    def __init__(self, page: Path, faults: Faults | None = None) -> None:
        super().__init__(faults)
        self._page = page
        self.phases: list[str] = []

    def retune(self, live_values: Mapping[str, KnobValue]) -> float:
        self._note()
        return super().retune(live_values)

    def run(
        self, requests: Sequence[Request], schedule: Schedule, *, top2: bool = False, stop: StopRule | None = None
    ) -> BlockResult:
        self._note()
        return super().run(requests, schedule, top2=top2, stop=stop)

    def _note(self) -> None:
        beat = Beat.read(self._page)
        assert beat is not None
        self.phases.append(beat.phase)


REQUESTS = random_requests(2, input_len=64, output_len=2, seed=[1], vocab_size=1024)


def actor_with(folder: Path, faults: Faults | None = None) -> tuple[EngineActor, Watched]:
    """An actor in this process, its engine started."""
    actor, engine = EngineActor.__new__(EngineActor), Watched(folder / "beat", faults)
    actor._heart, actor._live, actor._engine = Heartbeat(folder / "beat", Progress()), {}, engine
    engine.start(EngineConfig(model="none"))
    return actor, engine


def test_retune_and_block_in_one_call_are_two_phases(tmp_path: Path) -> None:
    actor, engine = actor_with(tmp_path)
    _, block = actor.retune_and_run({"mla_workspace_rows": 512}, REQUESTS, Schedule(), False, None)
    assert block.in_force.workspace_rows == 512
    assert engine.phases == ["retune", "block"]
    with pytest.raises(RejectedError):
        actor.retune_and_run({"mla_workspace_rows": -1}, REQUESTS, Schedule(), False, None)
    assert engine.phases == ["retune", "block", "retune"]


def test_what_a_block_raises_is_not_taken_for_a_refused_retune(tmp_path: Path) -> None:
    actor, _ = actor_with(tmp_path, Faults(run_errors={0: ValueError("the block's")}))
    with pytest.raises(ValueError, match="the block's") as caught:
        actor.retune_and_run({"mla_workspace_rows": 512}, REQUESTS, Schedule(), False, None)
    assert not isinstance(caught.value, RejectedError)


def test_the_driver_asks_for_both_in_one_call_and_waits_as_long_as_for_two(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Any] = []

    def answer(reference: Any, timeout_s: float, phase: str) -> tuple[float, str]:
        asked.append((reference, timeout_s))
        return 0.5, "block"

    engine = RayEngine(tmp_path, timeouts=Timeouts(block_s=100.0))
    assert isinstance(engine, TunedRuns)
    engine._actor = SimpleNamespace(retune_and_run=SimpleNamespace(remote=lambda *given: given))
    monkeypatch.setattr(engine, "_get", answer)
    ended: Any = engine.retune_and_run({"mla_workspace_rows": 512}, REQUESTS, Schedule(), top2=True)
    assert ended == (0.5, "block")
    assert asked == [(({"mla_workspace_rows": 512}, REQUESTS, Schedule(), True, None), RETUNE_TIMEOUT_S + 100.0)]


@pytest.mark.parametrize("is_aborted", [True, False])
def test_an_engine_that_was_aborted_is_not_its_nodes_loss(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_aborted: bool
) -> None:
    engine, told = RayEngine(tmp_path, nodes=NodeWatch(print)), list[str]()
    engine.rank_nodes = ["here"]
    monkeypatch.setattr(engine._nodes, "lost", lambda nodes, why: told.extend(nodes))
    engine._actor = SimpleNamespace()

    def faulty_get(*_: Any, **__: Any) -> None:
        """Fault: the actor dies while it is waited for."""
        if is_aborted:
            engine._actor = None
        raise RayActorError

    monkeypatch.setattr(ray, "get", faulty_get)
    with pytest.raises(EngineError) as caught:
        engine._get("reference", 1.0, "engine-start")
    assert caught.value.lost
    assert told == ([] if is_aborted else ["here"])


def test_its_process_ends_without_what_the_interpreter_would_still_do() -> None:
    code = (
        "import atexit, time; from orchestrator.cluster import engine_actor;"
        "atexit.register(time.sleep, 60); atexit.register(engine_actor.leave_at_once); print('printed before')"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert ended.stdout == "printed before\n"
