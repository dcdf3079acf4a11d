"""SIGKILL of every process of a sweep, a thousand times, on an engine of stated times: nothing is lost.

Each study is killed over and over, and has to end with every result, and the very recommendation, of the study that
nobody touched. Victims and moments are drawn from a seed. ``make test`` runs a sample of it, in which no process but
the raylet is left out. CHUNKSMITH_SOAK_KILLS and CHUNKSMITH_SOAK_SEED choose other numbers than 1,000 and 0.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from orchestrator.records.store import PASSWORD_ENV
from tests.postgres import PASSWORD, Postgres, postgres
from tests.soak.clusters import Nodes, ray_nodes
from tests.soak.killing import Plan, Study, Tally, check_end, compare, plans
from tests.soak.stated_times import CORE
from tests.soak.victims import (
    ACTOR,
    DATABASE,
    DRIVER,
    ENGINE,
    JOURNAL_WRITER,
    RAYLET,
    WORKER,
    WRITER,
    actor_of,
    engine_of,
    kill,
    raylet_of,
    starting_worker,
)

pytestmark = pytest.mark.ray

KILLS = int(os.environ.get("CHUNKSMITH_SOAK_KILLS", "1000"))
ON_POSTGRESQL = KILLS // 10
SEED = int(os.environ.get("CHUNKSMITH_SOAK_SEED", "0"))
PER_STUDY = 40
TRIALS = 60
"""Of 96 points: some pass between two kills."""
SAMPLE, SAMPLE_TRIALS = 30, 24

SPEC = """
version: 1
study: kill
model: org/model
seed: {seed}
engine: {{args: {{max_model_len: 8192, max_num_batched_tokens: 1024, max_num_seqs: 4}}}}
space:
  mla_workspace_rows: {{scope: live, low: 256, high: 6144, step: 256}}
  max_num_batched_tokens: {{scope: live, values: [256, 512, 768, 1024]}}
workload: {{prompts: 2, input_len: 2048}}
trials: {trials}
blocks: {{warmup: 1, min_pairs: 2, max_pairs: 3}}
confirm: {{points: 2, pairs: 3}}
accuracy: {{prompts: 2, input_len: 1500, output_len: 4}}
soak: {{rounds: 0}}
"""
VICTIMS = {DRIVER: 7.0, WRITER: 3.0, JOURNAL_WRITER: 2.0, WORKER: 2.0, ACTOR: 4.0, ENGINE: 5.0, RAYLET: 1.0}
SAMPLE_VICTIMS = sorted(VICTIMS.keys() - {RAYLET})
"""Ray takes its time to miss a raylet."""
SCALE_S = {"open": 0.3, "ask": 0.02, "start": 2.5, "block": 0.02, "record": 0.02, "tell": 0.01, "confirm": 0.02}
"""Longest delay of a kill after its phase began: somewhat more than the phase takes."""


Storage = Callable[[str], tuple[str, ...]]
Draw = Callable[[Tally], list[Plan]]
"""The kills of the next study after those so far; none when these are enough."""


def in_the_run(study: str) -> tuple[str, ...]:
    return ()


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with ray_nodes(2) as nodes:
        yield nodes


class Kills:
    """Kills victims by their names."""

    def __init__(self, nodes: Nodes, database: Callable[[], None] | None = None) -> None:
        self._nodes, self._database = nodes, database

    def __call__(self, victim: str, run: Path) -> bool:
        if victim == ACTOR:
            return kill(actor_of(run))
        if victim == ENGINE:
            return kill(engine_of(run, CORE))
        if victim == WORKER:
            return kill(starting_worker(self._nodes.raylets(), run))
        if victim == DATABASE:
            assert self._database is not None
            self._database()
            return True
        assert victim == RAYLET
        raylet = raylet_of(run)
        if raylet is None:
            return False
        self._nodes.kill_raylet(raylet)
        return True


def drawn(number: int, victims: Mapping[str, float] = VICTIMS) -> Draw:
    """So many kills, victims by their weights."""
    rng = random.Random(SEED)
    return lambda tally: plans(rng, victims, SCALE_S, min(PER_STUDY, number - tally.total))


def one_of_each(victims: Iterable[str]) -> Draw:
    """One kill of each victim; another study for those that were not there when their moment came."""
    rng = random.Random(SEED)

    def draw(tally: Tally) -> list[Plan]:
        missing = set(victims) - {victim for victim, _ in tally.kills}
        one_each = [plan for victim in sorted(missing) for plan in plans(rng, {victim: 1.0}, SCALE_S, 1)]
        return sorted(one_each, key=lambda plan: plan.phase == "confirm")

    return draw


def soak(
    folder: Path,
    nodes: Nodes,
    kills: Kills,
    draw: Draw,
    *,
    trials: int = TRIALS,
    storage: Storage = in_the_run,
    say: Callable[[str], None] = lambda text: None,
) -> Tally:
    """All kills that are drawn, in as many studies as they take. After each, ``say`` gets the matrix so far."""
    tally = Tally()
    options = ("--address", nodes.address, "--ray-auth", "disabled", "--parallel", "1")
    references: dict[int, Path] = {}
    while to_come := draw(tally):
        seed = tally.studies % 3
        if seed not in references:
            references[seed] = _folder(folder, f"undisturbed-{seed}", seed, trials)
            Study(references[seed], references[seed] / "kill.yaml", options).undisturbed()
        own = _folder(folder, f"study-{tally.studies}", seed, trials)
        study = Study(own, own / "kill.yaml", (*options, *storage(own.name)), kills)
        study.killed(to_come, tally)
        check_end(study.run, trials, tally)
        compare(study.run, references[seed] / "run", tally)
        say(tally.matrix())
        if not any(tally.faults.values()):
            shutil.rmtree(own)
    return tally


def _folder(folder: Path, name: str, seed: int, trials: int) -> Path:
    own = folder / name
    own.mkdir()
    (own / "kill.yaml").write_text(SPEC.format(seed=seed, trials=trials))
    return own


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Writes to the terminal while the test runs."""

    def shown(text: str) -> None:
        with capsys.disabled():
            sys.stderr.write(f"\n{text}\n")

    return shown


def require_no_fault(tally: Tally, kills: int) -> None:
    assert tally.faults == dict.fromkeys(tally.faults, 0), tally.matrix()
    assert tally.total >= kills


@pytest.mark.timeout(600)
def test_a_sample_of_kills_loses_nothing(tmp_path: Path, nodes: Nodes) -> None:
    each, others = one_of_each(SAMPLE_VICTIMS), drawn(SAMPLE, {one: VICTIMS[one] for one in SAMPLE_VICTIMS})
    tally = soak(tmp_path, nodes, Kills(nodes), lambda tally: each(tally) or others(tally), trials=SAMPLE_TRIALS)
    require_no_fault(tally, SAMPLE)
    assert {victim for victim, _ in tally.kills} == set(SAMPLE_VICTIMS)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
def test_a_thousand_kills_lose_nothing(tmp_path: Path, nodes: Nodes, say: Callable[[str], None]) -> None:
    require_no_fault(soak(tmp_path, nodes, Kills(nodes), drawn(KILLS), say=say), KILLS)


@pytest.mark.soak
@pytest.mark.timeout(2 * 3600)
def test_kills_on_postgresql_lose_nothing(
    tmp_path: Path, nodes: Nodes, say: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD_ENV, PASSWORD)
    # There is no journal to tear.
    draw = drawn(ON_POSTGRESQL, {**VICTIMS, JOURNAL_WRITER: 0.0, DATABASE: 3.0})
    with postgres() as server:
        kills = Kills(nodes, _Restarts(server))
        tally = soak(
            *(tmp_path, nodes, kills, draw),
            storage=lambda study: ("--storage", server.create(study)),
            say=say,
        )
    require_no_fault(tally, ON_POSTGRESQL)


class _Restarts:
    """The database goes at once, as in a crash, and is back a second later."""

    def __init__(self, server: Postgres) -> None:
        self._server, self._back = server, threading.Thread()

    def __call__(self) -> None:
        if self._back.ident is not None:
            self._back.join()
        self._server.stop()
        self._back = threading.Timer(1.0, self._server.start)
        self._back.start()
