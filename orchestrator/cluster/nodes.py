"""What a sweep learns of its cluster's nodes: those that lose one engine after another are put aside for a while, and
those that were there once may come back. Pure; imports no Ray."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from orchestrator.cluster.placement import NodeShape, Parallel, PlacementError, place

LOSSES: Final = 2
"""So many engines in a row, with no served block between them, put a node aside: the third attempt of a trial then goes
elsewhere."""

ASIDE_S: Final = 1800.0
"""For how long. After that, one more loss puts it aside again."""

NODE_LABEL: Final = "ray.io/node-id"
"""Ray's own label of every node; its value is the node's id."""

ASKED: Final = ("CPU", "GPU")
"""What engines ask of a node, by Ray's names."""


class NodeWatch:
    """Which nodes of a cluster lose engines, and what nodes there have been, over one sweep. Its engines share it, from
    whatever thread they are used.

    Args:
        say: Given one line for the user when a node is put aside.
        clock: Seconds; another one for tests.
    """

    def __init__(
        self, say: Callable[[str], None] = lambda _: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say, self._clock = say, clock
        self._lock = threading.Lock()
        self._losses: dict[str, int] = {}
        self._until: dict[str, float] = {}
        self._clusters: list[Counter[_Kind]] = []

    def lost(self, nodes: Iterable[str], why: str) -> None:
        """An engine on these nodes was lost. ``why`` is the label of its failure."""
        for node in dict.fromkeys(nodes):
            with self._lock:
                losses = self._losses[node] = self._losses.get(node, 0) + 1
                if losses < LOSSES:
                    continue
                self._until[node] = self._clock() + ASIDE_S
            self._say(
                f"node {node[:12]} is put aside for {ASIDE_S / 60:.0f} minutes: it lost {losses} engines in a row, the "
                f"last with {why}. It is used all the same where no other has room for the engine"
            )

    def served(self, nodes: Iterable[str]) -> None:
        """An engine on these nodes served a block: what they lost before is forgotten."""
        with self._lock:
            for node in nodes:
                self._losses.pop(node, None)

    def aside(self) -> frozenset[str]:
        """Nodes that are to be left alone, by Ray's ids."""
        with self._lock:
            return frozenset(node for node, until in self._until.items() if self._clock() < until)

    def saw(self, nodes: Sequence[NodeShape]) -> None:
        """These are the live nodes now, with all that they have."""
        kinds = Counter(
            _Kind(tuple((name, node.resources.get(name, 0.0)) for name in ASKED), node.domain) for node in nodes
        )
        with self._lock:
            # A cluster that is part of an earlier one could hold nothing that the earlier one could not.
            if not any(kinds <= earlier for earlier in self._clusters):
                self._clusters = [*(earlier for earlier in self._clusters if not earlier <= kinds), kinds]

    def could_hold(self, parallel: Parallel, per_rank: Mapping[str, float], *, spread: bool = False) -> bool:
        """Whether the nodes that were live at one time could hold an engine. Arguments are those of ``place``."""
        with self._lock:
            clusters = list(self._clusters)
        return any(_holds(kinds, parallel, per_rank, spread) for kinds in clusters)


class _Kind(NamedTuple):
    """What nodes of one kind have of ``ASKED``, and their domain."""

    resources: tuple[tuple[str, float], ...]
    domain: str | None


def _holds(kinds: Counter[_Kind], parallel: Parallel, per_rank: Mapping[str, float], spread: bool) -> bool:
    nodes = [NodeShape(str(number), dict(one.resources), one.domain) for number, one in enumerate(kinds.elements())]
    try:
        place(parallel, nodes, per_rank, spread=spread)
    except PlacementError:
        return False
    return True


def elsewhere(nodes: Collection[str]) -> dict[str, str]:
    """Ray's label selector of any node but these."""
    return {NODE_LABEL: f"!in({','.join(sorted(nodes))})"} if nodes else {}
