"""Ray: the cluster, the actors that hold engines, and the reaper that cleans up behind them."""

from orchestrator.cluster.actor import RayEngine
from orchestrator.cluster.failures import Failure, classify, trial_fields
from orchestrator.cluster.session import AuthMode, cluster_resources, engines_that_fit, ray_session

__all__ = [
    "AuthMode",
    "Failure",
    "RayEngine",
    "classify",
    "cluster_resources",
    "engines_that_fit",
    "ray_session",
    "trial_fields",
]
