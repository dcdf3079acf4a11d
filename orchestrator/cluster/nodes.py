"""Nodes that lose one engine after another are put aside for a while. Pure; imports no Ray."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import Final

LOSSES: Final = 2
"""So many engines in a row, with no served block between them, put a node aside: the third attempt of a trial then goes
elsewhere."""

ASIDE_S: Final = 1800.0
"""For how long. After that, one more loss puts it aside again."""

NODE_LABEL: Final = "ray.io/node-id"
"""Ray's own label of every node; its value is the node's id."""


class NodeWatch:
    """Which nodes of a cluster lose engines, over one sweep. Its engines share it, from whatever thread they are used.

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


def elsewhere(nodes: Collection[str]) -> dict[str, str]:
    """Ray's label selector of any node but these."""
    return {NODE_LABEL: f"!in({','.join(sorted(nodes))})"} if nodes else {}
