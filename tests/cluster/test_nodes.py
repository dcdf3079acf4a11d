"""Nodes that lose one engine after another are put aside."""

from __future__ import annotations

from orchestrator.cluster.nodes import ASIDE_S, NodeWatch, elsewhere
from orchestrator.cluster.placement import NodeShape, Parallel

A, B = "a" * 56, "b" * 56


def test_two_losses_in_a_row_put_a_node_aside_with_a_word() -> None:
    lines: list[str] = []
    nodes = NodeWatch(lines.append)
    nodes.lost([A], "hang")
    nodes.lost([B], "hang")
    assert (nodes.aside(), lines) == (frozenset(), [])
    nodes.lost([A], "ray-actor-died")
    assert nodes.aside() == {A}
    (line,) = lines
    assert line.startswith(
        "node aaaaaaaaaaaa is put aside for 30 minutes: it lost 2 engines in a row, the last with ray-"
    )


def test_a_served_block_forgives() -> None:
    nodes = NodeWatch()
    nodes.lost([A], "hang")
    nodes.served([A, B])
    nodes.lost([A], "hang")
    assert not nodes.aside()


def test_an_engine_counts_once_on_a_node_however_many_ranks_it_had_there() -> None:
    nodes = NodeWatch()
    nodes.lost([A, A, B, B], "rank-lost")
    assert not nodes.aside()
    nodes.lost([B, B], "rank-lost")
    assert nodes.aside() == {B}


def test_it_comes_back_and_one_more_loss_puts_it_aside_again() -> None:
    now = [0.0]
    nodes = NodeWatch(clock=lambda: now[0])
    for _ in range(2):
        nodes.lost([A], "hang")
    now[0] = ASIDE_S
    assert not nodes.aside()
    nodes.lost([A], "hang")
    assert nodes.aside() == {A}


def test_rays_selector_names_the_others() -> None:
    assert elsewhere([]) == {}
    assert elsewhere([B, A]) == {"ray.io/node-id": f"!in({A},{B})"}


RANK = {"CPU": 1.0, "GPU": 1.0}


def gpu_nodes(*gpus: float) -> list[NodeShape]:
    own = [(f"n{number}", count) for number, count in enumerate(gpus)]
    return [NodeShape(name, {"CPU": 8.0, "GPU": count, f"node:{name}": 1.0}) for name, count in own]


def test_what_nodes_could_hold_is_remembered_when_they_are_gone() -> None:
    nodes = NodeWatch()
    assert not nodes.could_hold(Parallel(), RANK)
    nodes.saw(gpu_nodes(4, 4))
    nodes.saw([])
    nodes.saw(gpu_nodes(8))
    assert nodes.could_hold(Parallel(tensor=8), RANK)
    assert nodes.could_hold(Parallel(tensor=2), RANK, spread=True)
    assert not nodes.could_hold(Parallel(tensor=16), RANK)


def test_nodes_that_were_never_there_together_do_not_add_up() -> None:
    nodes = NodeWatch()
    for count in (4, 2, 3):
        nodes.saw(gpu_nodes(count))
    assert nodes.could_hold(Parallel(tensor=4), RANK)
    assert not nodes.could_hold(Parallel(tensor=5), RANK)


def test_a_cluster_is_remembered_once_whatever_its_nodes_are_called() -> None:
    nodes = NodeWatch()
    for _ in range(50):
        nodes.saw(gpu_nodes(4, 4))
        nodes.saw(gpu_nodes(4))
    assert len(nodes._clusters) == 1
