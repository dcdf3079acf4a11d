"""How many engines and slots a cluster has room for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cluster import room
from orchestrator.cluster.placement import NodeShape, Parallel
from orchestrator.cluster.room import ClusterRoom, engines_on, ranks_of
from orchestrator.engines import EngineConfig
from tests.cluster.small_lab import ARGS

GPU = {"CPU": 1.0, "GPU": 1.0}


def nodes(*gpus: float, cpus: float = 64.0) -> list[NodeShape]:
    return [NodeShape(f"n{index}", {"CPU": cpus, "GPU": count}) for index, count in enumerate(gpus)]


@pytest.mark.parametrize(
    ("ranks", "gpus", "expected"),
    [
        (1, (8, 8, 2), 18),
        (8, (8, 8, 2), 2),
        (4, (8, 6), 3),
        # Two of four ranks on one node each; the rest of both nodes holds a third, which spans them.
        (4, (6, 6), 3),
        (16, (8, 8, 8), 1),
        (16, (8,), 0),
        (1, (), 0),
    ],
)
def test_engines_of_whole_gpus(ranks: int, gpus: tuple[float, ...], expected: int) -> None:
    assert engines_on(nodes(*gpus), Parallel(tensor=ranks), GPU) == expected


def test_engines_that_share_gpus_do_not_split_over_two() -> None:
    assert engines_on(nodes(2.0), Parallel(), {"CPU": 0.0, "GPU": 0.4}) == 4


def test_cpus_bind_where_gpus_do_not() -> None:
    assert engines_on(nodes(8.0, cpus=3.0), Parallel(), {"CPU": 2.0, "GPU": 1.0}) == 1


@given(
    gpus=st.lists(st.integers(0, 9), max_size=5),
    ranks=st.sampled_from([1, 2, 4, 8]),
)
def test_no_gpu_is_promised_twice_and_none_is_left_that_would_do(gpus: list[int], ranks: int) -> None:
    found = engines_on(nodes(*map(float, gpus)), Parallel(tensor=ranks), GPU)
    assert found == sum(gpus) // ranks


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> dict[bool, list[NodeShape]]:
    """All that the cluster has, and what is free of it (key True)."""
    has: dict[bool, list[NodeShape]] = {False: nodes(8, 8), True: nodes(8, 8)}
    monkeypatch.setattr(room, "node_shapes", lambda free=False: has[free])
    return has


def test_with_gpus_there_are_as_many_slots_as_fit(shapes: dict[bool, list[NodeShape]]) -> None:
    slots = ClusterRoom(2, Parallel(tensor=2), GPU)
    assert slots(0) == 4
    # Others hold one node: no more than what is there and what is free.
    shapes[True] = nodes(0, 8)
    assert slots(0) == 2
    assert slots(1) == 3
    assert slots(4) == 4
    # A node leaves.
    shapes[False], shapes[True] = nodes(8), nodes(0)
    assert slots(4) == 2
    # And a large one joins.
    shapes[False], shapes[True] = nodes(8, 64), nodes(0, 64)
    assert slots(2) == 18


def test_what_was_asked_for_is_not_exceeded(shapes: dict[bool, list[NodeShape]]) -> None:
    assert ClusterRoom(1, Parallel(tensor=2), GPU, most=3)(0) == 3
    assert ClusterRoom(1, Parallel(tensor=16), GPU, most=3)(0) == 1


def test_without_gpus_a_node_has_one_slot_unless_more_are_asked_for(shapes: dict[bool, list[NodeShape]]) -> None:
    cpu = {"CPU": 4.0, "GPU": 0.0}
    assert ClusterRoom(2, Parallel(), cpu)(0) == 2
    assert ClusterRoom(2, Parallel(), cpu, most=99)(0) == 16
    shapes[False] = shapes[True] = nodes(0, 0, cpus=4.0)
    assert ClusterRoom(2, Parallel(), cpu)(0) == 0


def test_ranks_that_ray_places() -> None:
    assert ranks_of("vllm", EngineConfig(model="m", args={"tensor_parallel_size": 8})).ranks == 1
    lab = EngineConfig(model="m", args={**ARGS, "decode_context_parallel_size": 4})
    assert ranks_of("kernel_lab", lab) == Parallel(tensor=4, decode_context=4)
