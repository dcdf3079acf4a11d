"""Placement: every rank once, no node over-used, DCP groups whole where they fit, and what does not fit refused."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.cluster.placement import NodeShape, Parallel, Placement, PlacementError, place

GPU = {"GPU": 1.0, "CPU": 1.0}
CPU = {"CPU": 1.0}


def gpu_nodes(*gpus: int, cpus: float = 64, domains: str = "") -> list[NodeShape]:
    """Nodes ``n0``, ``n1``, ... with so many GPUs; ``domains`` has a letter for each, or none for nodes alone."""
    names = domains or " " * len(gpus)
    shapes = zip(gpus, names, strict=True)
    return [
        NodeShape(f"n{index}", {"GPU": gpu, "CPU": cpus}, name.strip() or None)
        for index, (gpu, name) in enumerate(shapes)
    ]


def counts(placement: Placement) -> dict[str, int]:
    assert placement.nodes is not None
    return dict(Counter(placement.nodes))


def test_an_engine_that_fits_on_a_node_is_packed_there() -> None:
    placement = place(Parallel(tensor=8, decode_context=8), gpu_nodes(4, 8, 8), GPU)
    assert placement == Placement([GPU] * 8, "STRICT_PACK", None, 8)


def test_an_engine_of_four_nodes_has_a_group_of_bundles_on_each() -> None:
    parallel = Parallel(tensor=16, pipeline=2, decode_context=8)
    placement = place(parallel, gpu_nodes(8, 8, 4, 8, 8, 8), GPU)
    assert placement.strategy == "PACK"
    assert placement.nodes == [node for node in ("n0", "n1", "n3", "n4") for _ in range(8)]
    assert placement.bundles == [GPU] * 32


def test_groups_of_decode_context_parallelism_stay_whole() -> None:
    nodes = gpu_nodes(4, 6)
    assert counts(place(Parallel(tensor=8, decode_context=4), nodes, GPU)) == {"n0": 4, "n1": 4}
    # Without any, fuller nodes leave more room elsewhere.
    assert counts(place(Parallel(tensor=8), nodes, GPU)) == {"n0": 2, "n1": 6}


def test_data_parallel_replicas_stay_whole_before_stages_do() -> None:
    parallel = Parallel(tensor=2, pipeline=2, data=3)
    assert counts(place(parallel, gpu_nodes(6, 6), GPU)) == {"n0": 6, "n1": 6}
    # Six on each of two nodes would split a replica.
    assert counts(place(parallel, gpu_nodes(6, 6, 4), GPU)) == {"n0": 4, "n1": 4, "n2": 4}


def test_groups_beside_prefill_context_parallelism_take_a_whole_stage() -> None:
    parallel = Parallel(tensor=2, prefill_context=2, decode_context=2, pipeline=3)
    assert parallel.ranks == 12
    assert counts(place(parallel, gpu_nodes(6, 6, 6), GPU)) == {"n0": 4, "n1": 4, "n2": 4}


def test_the_fewest_nodes_and_the_tightest_of_them() -> None:
    assert counts(place(Parallel(tensor=10), gpu_nodes(4, 8, 2, 8), GPU)) == {"n1": 8, "n2": 2}


def test_an_engine_stays_within_a_domain_where_it_fits() -> None:
    parallel = Parallel(tensor=8, decode_context=4)
    assert counts(place(parallel, gpu_nodes(4, 4, 4, 4, domains="abab"), GPU)) == {"n0": 4, "n2": 4}
    assert counts(place(parallel, gpu_nodes(4, 2, 4, 2, domains="aabb"), GPU)) == {"n0": 4, "n2": 4}


def test_the_other_nodes_come_in_the_order_of_their_ids() -> None:
    placement = place(Parallel(pipeline=7), gpu_nodes(1, 2, 4), GPU)
    assert placement.nodes == ["n2", "n2", "n2", "n2", "n0", "n1", "n1"]


def test_of_two_equal_nodes_the_first_that_is_given_has_the_first_ranks() -> None:
    nodes = gpu_nodes(2, 2, 2)[::-1]
    assert place(Parallel(tensor=4), nodes, GPU).nodes == ["n2", "n2", "n1", "n1"]
    assert place(Parallel(tensor=4), nodes, GPU, spread=True).nodes == ["n2", "n2", "n0", "n1"]


def test_spread_takes_every_node_evenly() -> None:
    four = Parallel(tensor=4, decode_context=4)
    assert place(four, gpu_nodes(8, 8), GPU, spread=True).nodes == ["n0", "n0", "n1", "n1"]
    assert counts(place(four, gpu_nodes(8, 1, 8), GPU, spread=True)) == {"n0": 2, "n2": 1, "n1": 1}
    with pytest.raises(PlacementError, match="4 ranks"):
        place(four, gpu_nodes(1, 2), GPU, spread=True)


@pytest.mark.parametrize(
    ("parallel", "nodes", "per_rank", "message"),
    [
        (
            Parallel(tensor=16, pipeline=2),
            gpu_nodes(8, 8, 1),
            GPU,
            "an engine of 32 ranks with 1 GPU and 1 CPU each does not fit; "
            "the cluster has 1 node with 1 GPU and 64 CPUs, 2 nodes with 8 GPUs and 64 CPUs",
        ),
        (
            Parallel(),
            gpu_nodes(0, 0, cpus=2),
            {"CPU": 3.0, "GPU": 0.0},
            "an engine with 3 CPUs does not fit; the cluster has 2 nodes with 2 CPUs",
        ),
        (Parallel(), [], CPU, "an engine with 1 CPU does not fit; the cluster has no nodes"),
        (Parallel(), gpu_nodes(8), {"GPU": 1.5}, "GPUs of one rank must be a whole number or a share of one, got 1.5"),
    ],
)
def test_what_the_cluster_can_never_hold_is_refused(
    parallel: Parallel, nodes: list[NodeShape], per_rank: dict[str, float], message: str
) -> None:
    with pytest.raises(PlacementError) as error:
        place(parallel, nodes, per_rank)
    assert str(error.value) == message


def test_shares_of_gpus_lie_on_one_gpu_each() -> None:
    three = Parallel(tensor=3)
    assert place(three, gpu_nodes(2), {"GPU": 0.5}).strategy == "STRICT_PACK"
    with pytest.raises(PlacementError):
        place(three, gpu_nodes(2), {"GPU": 0.6})  # 1.8 in all, and no two on one GPU


def test_a_third_of_a_cpu_fits_three_times() -> None:
    assert place(Parallel(tensor=3), gpu_nodes(0, cpus=1), {"CPU": 1 / 3}).strategy == "STRICT_PACK"


def test_ranks_that_ask_for_nothing_get_the_least_of_cpu() -> None:
    assert place(Parallel(tensor=2), gpu_nodes(0), {"CPU": 0.0, "GPU": 0.0}).bundles == [{"CPU": 0.0001}] * 2


@pytest.mark.parametrize(
    ("degrees", "message"),
    [
        ({"tensor": 8, "decode_context": 3}, "decode context parallelism must divide tensor parallelism 8, got 3"),
        ({"tensor": 4, "prefill_context": 2, "decode_context": 4}, "must be 1, 2 or 8 beside prefill context"),
        ({"pipeline": 0}, "pipeline parallelism must be at least 1, got 0"),
    ],
)
def test_degrees_that_vllm_refuses_too(degrees: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Parallel(**degrees)


SMALL = st.sampled_from([1, 2, 4, 8])


@st.composite
def engines(draw: st.DrawFn) -> Parallel:
    tensor, prefill = draw(SMALL), draw(st.sampled_from([1, 2]))
    shared = [1, prefill, tensor * prefill] if prefill > 1 else [one for one in (1, 2, 4, 8) if tensor % one == 0]
    return Parallel(
        tensor=tensor,
        prefill_context=prefill,
        pipeline=draw(st.integers(1, 3)),
        data=draw(st.integers(1, 2)),
        decode_context=draw(st.sampled_from(shared)),
    )


@st.composite
def clusters(draw: st.DrawFn) -> list[NodeShape]:
    gpus = draw(st.lists(st.integers(0, 9), min_size=1, max_size=6))
    domains = draw(st.text(" ab", min_size=len(gpus), max_size=len(gpus)))
    return gpu_nodes(*gpus, cpus=draw(st.integers(5, 20)), domains=domains)


def dcp_groups(parallel: Parallel) -> list[list[int]]:
    """Ranks of each group, by vLLM's order: ``[data, pipeline, prefill, tensor]``, prefill before tensor in a group."""
    stage, groups = parallel.tensor * parallel.prefill_context, []
    for first in range(0, parallel.ranks, stage):
        order = [
            first + prefill * parallel.tensor + tensor
            for tensor in range(parallel.tensor)
            for prefill in range(parallel.prefill_context)
        ]
        dcp = parallel.decode_context
        groups += [order[at : at + dcp] for at in range(0, stage, dcp)]
    return groups


@settings(max_examples=300)
@given(engines(), clusters(), st.booleans())
def test_every_rank_once_no_node_over_used_and_groups_whole_where_they_fit(
    parallel: Parallel, nodes: list[NodeShape], spread: bool
) -> None:
    rooms = {node.node_id: int(min(node.resources["GPU"], node.resources["CPU"])) for node in nodes}
    try:
        placement = place(parallel, nodes, GPU, spread=spread)
    except PlacementError:
        assert sum(rooms.values()) < parallel.ranks
        return
    assert placement.bundles == [GPU] * parallel.ranks
    if placement.nodes is None:
        assert placement.strategy == "STRICT_PACK"
        assert max(rooms.values()) >= parallel.ranks
        return
    used = counts(placement)
    assert sum(used.values()) == parallel.ranks
    assert all(rooms[node] >= count for node, count in used.items())
    # Ranks on a node follow each other.
    assert sum(one != other for one, other in pairwise(placement.nodes)) == len(used) - 1
    if spread:
        most = max(used.values())
        assert all(used.get(node, 0) >= min(room, most - 1) for node, room in rooms.items())
        return
    assert max(rooms.values()) < parallel.ranks
    stage = parallel.tensor * parallel.prefill_context
    span = stage if parallel.prefill_context > 1 and parallel.decode_context > 1 else parallel.decode_context
    if sum(room // span for room in rooms.values()) * span >= parallel.ranks:
        assert all(len({placement.nodes[rank] for rank in group}) == 1 for group in dcp_groups(parallel))


@settings(max_examples=100)
@given(engines(), clusters())
def test_an_engine_leaves_its_domain_only_where_it_must(parallel: Parallel, nodes: list[NodeShape]) -> None:
    domains, rooms = defaultdict(list), {}
    for node in nodes:
        rooms[node.node_id] = int(min(node.resources["GPU"], node.resources["CPU"]))
        if node.domain is not None:
            domains[node.domain].append(node.node_id)
    try:
        placement = place(parallel, nodes, GPU)
    except PlacementError:
        return
    if placement.nodes is None:
        return
    fits = any(
        sum(rooms[node] // placement.unit for node in members) * placement.unit >= parallel.ranks
        for members in domains.values()
    )
    used = set(placement.nodes)
    assert fits == any(used <= set(members) for members in domains.values())
