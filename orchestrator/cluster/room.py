"""How many engines a cluster has room for at a time, now and in all; and asking an autoscaler for more nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from orchestrator.cluster.engine_actor import EngineKind
from orchestrator.cluster.groups import node_shapes
from orchestrator.cluster.placement import NodeShape, Parallel, PlacementError, place
from orchestrator.cluster.vllm_ranks import is_over_ray, parallel_over_ray
from orchestrator.engines import EngineConfig
from orchestrator.engines.kernel_lab import lab_args

_MANY: Final = 10**9


def engines_on(nodes: Sequence[NodeShape], parallel: Parallel, per_rank: Mapping[str, float]) -> int:
    """Engines that fit on some nodes at a time.

    As many as can be lie on one node each; those that must span several take what is left.

    Args:
        per_rank: CPUs and GPUs of each rank, as for ``place``; of one of them more than nothing.
    """
    asked = {name: need for name, need in per_rank.items() if need > 0}
    whole, left = 0, []
    for node in nodes:
        here = node.slots(asked, _MANY) // parallel.ranks
        whole += here
        left.append(_without(node, asked, here * parallel.ranks))
    while parallel.ranks > 1:
        try:
            placement = place(parallel, left, asked)
        except PlacementError:
            break
        assert placement.nodes is not None
        whole += 1
        left = [_without(node, asked, placement.nodes.count(node.node_id)) for node in left]
    return whole


def ranks_of(kind: EngineKind, config: EngineConfig) -> Parallel:
    """The ranks of an engine that Ray places. Those of vLLM are its own processes, on one node, unless it is over Ray.

    Raises:
        LabError: ``lab-shape``.
        PlacementError: See ``parallel_over_ray``.
    """
    if is_over_ray(kind, config):
        return parallel_over_ray(kind, config)
    if kind != "kernel_lab":
        return Parallel()
    ranks = lab_args(config.args).decode_context_parallel_size
    return Parallel(tensor=ranks, decode_context=ranks)


class ClusterRoom:
    """Says how many pools of engines there is room for on the cluster that Ray is connected to; a ``Room`` of a sweep.

    Args:
        engines: Of one pool.
        parallel: Ranks of one engine.
        per_rank: CPUs and GPUs of each rank.
        most: Pools that are wanted. None takes what is there: with GPUs every pool that fits; without, one for each
            node, because engines on the same processor and memory would be measured in each other's noise.
    """

    def __init__(
        self, engines: int, parallel: Parallel, per_rank: Mapping[str, float], *, most: int | None = None
    ) -> None:
        self._engines, self._parallel, self._per_rank, self._most = engines, parallel, per_rank, most

    def __call__(self, there: int) -> int:
        """Room for so many pools, when there are some: all that the live nodes hold, but no more new ones than fit
        beside what others use."""
        whole = self._pools(node_shapes())
        if whole > there:
            whole = min(whole, there + self._pools(node_shapes(free=True)))
        return whole if self._most is None else min(whole, self._most)

    def _pools(self, nodes: Sequence[NodeShape]) -> int:
        if self._most is not None or self._per_rank.get("GPU", 0.0) > 0:
            return engines_on(nodes, self._parallel, self._per_rank) // self._engines
        alone = [engines_on([node], self._parallel, self._per_rank) >= self._engines for node in nodes]
        return sum(alone)


def _without(node: NodeShape, per_rank: Mapping[str, float], ranks: int) -> NodeShape:
    rest = {name: amount - ranks * per_rank.get(name, 0.0) for name, amount in node.resources.items()}
    return replace(node, resources=rest)
