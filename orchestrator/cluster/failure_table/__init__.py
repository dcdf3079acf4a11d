"""The table of failures: its classes, and the wordings by which they are known."""

from orchestrator.cluster.failure_table import (
    backends,
    builds,
    configuration,
    crashes,
    distributed,
    host,
    kernels,
    memory,
    models,
    ray_cluster,
)
from orchestrator.cluster.failure_table.classes import CLASSES
from orchestrator.cluster.failure_table.memory import GPU_OOM
from orchestrator.cluster.failure_table.rule import FailureClass, Level, Rule, Strength

RULES: tuple[Rule, ...] = (
    *memory.RULES,
    *host.RULES,
    *configuration.RULES,
    *models.RULES,
    *backends.RULES,
    *builds.RULES,
    *kernels.RULES,
    *distributed.RULES,
    *ray_cluster.RULES,
    *crashes.RULES,
)

__all__ = ["CLASSES", "GPU_OOM", "RULES", "FailureClass", "Level", "Rule", "Strength"]
