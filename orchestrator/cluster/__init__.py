"""Ray: the cluster, the actors that hold engines, and the reaper that cleans up behind them.

Names are looked up when they are asked for: the reaper is a module of this room, and an engine that starts waits for
it; the imports of the others would cost seconds and memory.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.cluster.actor import RayEngine
    from orchestrator.cluster.failures import Failure, certain_labels, classify, trial_fields
    from orchestrator.cluster.nodes import NodeWatch
    from orchestrator.cluster.room import ClusterRoom, ranks_of
    from orchestrator.cluster.session import AuthMode, cluster_resources, engines_that_fit, ray_session
    from orchestrator.cluster.timeouts import Timeouts

__all__ = [
    "AuthMode",
    "ClusterRoom",
    "Failure",
    "NodeWatch",
    "RayEngine",
    "Timeouts",
    "certain_labels",
    "classify",
    "cluster_resources",
    "engines_that_fit",
    "ranks_of",
    "ray_session",
    "trial_fields",
]

_HOMES = {
    "AuthMode": "session",
    "ClusterRoom": "room",
    "Failure": "failures",
    "NodeWatch": "nodes",
    "RayEngine": "actor",
    "Timeouts": "timeouts",
    "certain_labels": "failures",
    "classify": "failures",
    "cluster_resources": "session",
    "engines_that_fit": "session",
    "ranks_of": "room",
    "ray_session": "session",
    "trial_fields": "failures",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
