"""A point of a run as something to deploy: a script, vLLM's own config file, or manifests for a cluster."""

from orchestrator.analysis.export.deployment import Deployment, Placement, deployment
from orchestrator.analysis.export.formats import FORMATS, write

__all__ = ["FORMATS", "Deployment", "Placement", "deployment", "write"]
