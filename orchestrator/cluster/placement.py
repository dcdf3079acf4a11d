"""Where the ranks of an engine go: from its degrees of parallelism and the nodes to bundles. Pure; imports no Ray.

One bundle is one rank, in vLLM's order of ranks, in which tensor parallel neighbours follow each other. The more of an
engine stays on a node, the better: all of it, else whole pipelines, else whole stages, else at least whole groups of
decode context parallelism (DCP), which all-gather every chunk of a prefill.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from orchestrator.errors import ChunksmithError

Strategy = Literal["STRICT_PACK", "PACK"]
"""Ray's: all bundles on one node, whichever has room, or on the nodes that are named for them."""

LEAST_CPU = 0.0001
"""What Ray counts in. A bundle must ask for something."""


class PlacementError(ChunksmithError):
    """An engine that the cluster can never hold. Ray itself would wait for ever, in the hope of a new node."""


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """Degrees of parallelism, by vLLM's names.

    Raises:
        ValueError: One is below 1, or DCP does not divide what it shares its ranks with. Source of the rule:
            ``ParallelConfig`` of vLLM 0.32.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    prefill_context: int = 1
    decode_context: int = 1

    def __post_init__(self) -> None:
        for name, degree in self.__dict__.items():
            if degree < 1:
                raise ValueError(f"{name} parallelism must be at least 1, got {degree}")
        dcp = self.decode_context
        if self.prefill_context == 1 and self.tensor % dcp:
            raise ValueError(f"decode context parallelism must divide tensor parallelism {self.tensor}, got {dcp}")
        if self.prefill_context > 1 and dcp not in (1, self.prefill_context, self._stage):
            raise ValueError(
                f"decode context parallelism must be 1, {self.prefill_context} or {self._stage} beside prefill context "
                f"parallelism {self.prefill_context} and tensor parallelism {self.tensor}, got {dcp}"
            )

    @classmethod
    def of_vllm(cls, args: Mapping[str, Any]) -> Parallel:
        """The degrees that fields of vLLM's ``AsyncEngineArgs`` give."""
        names = ("tensor", "pipeline", "data", "prefill_context", "decode_context")
        return cls(**{name: args.get(f"{name}_parallel_size") or 1 for name in names})

    @property
    def ranks(self) -> int:
        """Of the engine; with GPUs each takes one. DCP shares those of tensor parallelism."""
        return self._stage * self.pipeline * self.data

    @property
    def _stage(self) -> int:
        return self.tensor * self.prefill_context

    @property
    def units(self) -> list[int]:
        """Sizes of runs of ranks that are worth a node of their own, the best first; each divides the ranks.

        Beside prefill context parallelism only whole stages hold whole DCP groups, whose ranks lie apart.
        """
        replica = self._stage * self.pipeline
        return sorted({self.ranks, replica, self._stage, self.tensor, self.decode_context, 1}, reverse=True)


@dataclass(frozen=True)
class NodeShape:
    """What a node has, or has left.

    Attributes:
        node_id: Ray's.
        resources: Amounts by Ray's names.
        domain: Nodes with the same one reach each other's GPUs over NVLink; None for a node alone.
    """

    node_id: str
    resources: Mapping[str, float]
    domain: str | None = None

    def slots(self, per_rank: Mapping[str, float], most: int) -> int:
        """Ranks that it holds, ``most`` at most."""
        return min([most, *(_times(name, self.resources.get(name, 0.0), need) for name, need in per_rank.items())])


@dataclass(frozen=True)
class Placement:
    """Bundles for one placement group.

    Attributes:
        bundles: What each rank asks for.
        nodes: Node of each rank; None where Ray is free to choose the one node of all.
        unit: So many consecutive ranks are never split over nodes, wherever a run of them begins at a multiple.
    """

    bundles: Sequence[Mapping[str, float]]
    strategy: Strategy
    nodes: Sequence[str] | None = None
    unit: int = 1


def place(
    parallel: Parallel, nodes: Sequence[NodeShape], per_rank: Mapping[str, float], *, spread: bool = False
) -> Placement:
    """Bundles of an engine.

    On one node where that holds it, as ``STRICT_PACK``. Else on as few nodes as hold it in the largest units, within
    one domain where that suffices; each node has ranks that follow each other: first the node with the most, then the
    others in the order of their ids, which is the order that vLLM's Ray executor brings its workers into.

    Args:
        nodes: Of two that serve equally well, the one that is given first is taken.
        per_rank: CPUs and GPUs of each rank: of GPUs a whole number, or a share of one. Nothing at all becomes the
            least of CPU.
        spread: Over as many nodes as there are ranks or nodes, evenly.

    Raises:
        PlacementError: It does not fit; the message says what there is.
    """
    ranks = parallel.ranks
    _require_whole_gpus(per_rank)
    asked = {name: need for name, need in per_rank.items() if need > 0} or {"CPU": LEAST_CPU}
    bundles = [dict(asked) for _ in range(ranks)]
    slots = {node.node_id: node.slots(asked, ranks) for node in nodes}
    if spread:
        counts = _even(slots, ranks)
        if sum(counts.values()) == ranks:
            return Placement(bundles, "PACK", _in_order(counts, nodes), 1)
        raise _does_not_fit(ranks, asked, nodes)
    if ranks in slots.values():
        return Placement(bundles, "STRICT_PACK", unit=ranks)
    for unit in parallel.units:
        for members in _domains(nodes):
            rooms = {node: slots[node] // unit for node in members}
            if sum(rooms.values()) * unit >= ranks:
                chosen = {node: count * unit for node, count in _fewest(rooms, ranks // unit).items()}
                return Placement(bundles, "PACK", _in_order(chosen, nodes), unit)
    raise _does_not_fit(ranks, asked, nodes)


def _times(name: str, has: float, need: float) -> int:
    """How often a need fits into what a node has. Counted as Ray does, in ten-thousandths."""
    units, asked = round(has / LEAST_CPU), max(1, round(need / LEAST_CPU))
    if name == "GPU" and need < 1:
        # A share lies on one GPU.
        one = round(1 / LEAST_CPU)
        return units // one * (one // asked)
    return units // asked


def _require_whole_gpus(per_rank: Mapping[str, float]) -> None:
    gpus = per_rank.get("GPU", 0.0)
    if gpus > 1 and gpus != int(gpus):
        raise PlacementError(f"GPUs of one rank must be a whole number or a share of one, got {gpus:g}")


def _domains(nodes: Sequence[NodeShape]) -> Iterator[list[str]]:
    """The nodes of each domain, small ones first, so that large ones stay whole; at last all nodes."""
    domains: dict[str, list[str]] = {}
    for node in nodes:
        if node.domain is not None:
            domains.setdefault(node.domain, []).append(node.node_id)
    yield from sorted(domains.values(), key=len)
    yield [node.node_id for node in nodes]


def _fewest(rooms: Mapping[str, int], wanted: int) -> dict[str, int]:
    """Units on as few nodes as can be: on the largest nodes, and at last on the smallest that holds the rest."""
    chosen: dict[str, int] = {}
    while wanted > 0:
        left = [node for node in rooms if node not in chosen]
        enough = [node for node in left if rooms[node] >= wanted]
        node = min(enough, key=rooms.__getitem__) if enough else max(left, key=rooms.__getitem__)
        chosen[node] = min(rooms[node], wanted)
        wanted -= chosen[node]
    return chosen


def _even(slots: Mapping[str, int], ranks: int) -> dict[str, int]:
    """Ranks on each node, one at a time to the node with the fewest; fewer than asked for where no more fit."""
    counts = dict.fromkeys(slots, 0)
    for _ in range(ranks):
        free = [node for node in counts if counts[node] < slots[node]]
        if not free:
            break
        counts[min(free, key=counts.__getitem__)] += 1
    return {node: count for node, count in counts.items() if count}


def _in_order(counts: Mapping[str, int], nodes: Sequence[NodeShape]) -> list[str]:
    """Node of each rank. The first ranks have the most of the others near."""
    first = max((node.node_id for node in nodes), key=lambda node: counts.get(node, 0))
    ordered = [first, *sorted(node for node in counts if node != first)]
    return [node for node in ordered for _ in range(counts[node])]


def _does_not_fit(ranks: int, per_rank: Mapping[str, float], nodes: Sequence[NodeShape]) -> PlacementError:
    asked = _amounts(per_rank, per_rank)
    engine = f"an engine with {asked}" if ranks == 1 else f"an engine of {ranks} ranks with {asked} each"
    kinds = Counter(_amounts(node.resources, per_rank) for node in nodes)
    has = [f"{_counted(count, 'node')} with {kind}" for kind, count in sorted(kinds.items())]
    return PlacementError(f"{engine} does not fit; the cluster has {', '.join(has) or 'no nodes'}")


def _amounts(resources: Mapping[str, float], names: Mapping[str, float]) -> str:
    return " and ".join(_counted(resources.get(name, 0.0), name) for name in sorted(names, reverse=True))


def _counted(amount: float, name: str) -> str:
    return f"{amount:g} {name}{'' if amount == 1 else 's'}"
