"""How many trials at a time a sweep is given. The cluster is made up."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator import cluster
from orchestrator.cli.slots import room_for
from tests.cluster.small_lab import ARGS
from tests.sweep.studies import make_spec


class MadeUpRoom:
    """Fault: a cluster that has room for ``has`` pools."""

    has = 4

    def __init__(self, engines: int, parallel: Any, per_rank: dict[str, float], *, most: int | None) -> None:
        self.asked = (engines, parallel.ranks, per_rank, most)
        self._most = most

    def __call__(self, there: int) -> int:
        return self.has if self._most is None else min(self.has, self._most)


@pytest.fixture(autouse=True)
def _cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "ClusterRoom", MadeUpRoom)


def room(*, parallel: int | None, is_local: bool, said: list[str] | None = None, **changes: Any) -> Any:
    say = (said if said is not None else []).append
    return room_for(make_spec(**changes), 1, parallel=parallel, is_local=is_local, say=say)


def test_one_slot_needs_no_room() -> None:
    assert room(parallel=1, is_local=False) is None
    # The cores of one machine share its memory: nobody is given more than one slot there unasked.
    assert room(parallel=None, is_local=True) is None


def test_there_are_as_many_as_fit_on_gpus_and_on_a_cluster() -> None:
    for found in (room(parallel=None, is_local=True, resources={"gpus": 1.0}), room(parallel=None, is_local=False)):
        assert found(0) == 4
        assert found.asked[3] is None


def test_fewer_than_asked_for_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    assert room(parallel=3, is_local=True, said=said)(0) == 3
    assert said == []
    assert room(parallel=6, is_local=False, said=said)(0) == 4
    assert room(parallel=6, is_local=True, said=said)(0) == 4
    assert said == [
        "the cluster has room for 4 of 6 trials at a time; more begin when nodes join",
        "the cluster has room for 4 of 6 trials at a time",
    ]
    monkeypatch.setattr(MadeUpRoom, "has", 1)
    assert room(parallel=6, is_local=True) is None
    # On a cluster others may leave, and nodes may join.
    assert room(parallel=6, is_local=False)(0) == 1


def test_ranks_share_what_an_engine_takes() -> None:
    lab = {"kind": "kernel_lab", "args": {**ARGS, "decode_context_parallel_size": 4}}
    found = room(parallel=2, is_local=True, engine=lab, resources={"cpus": 8.0, "gpus": 4.0})
    assert found.asked == (1, 4, {"CPU": 2.0, "GPU": 1.0}, 2)
