"""Memory of earlier studies: what they measured proposes points of a new one, as far as it proves right there.

    sampler = MemorySampler(PortfolioSampler(points, seed=1), points, [read_run(Path("runs/a"))], seed=1)
    study = optuna.create_study(sampler=sampler)

Importing it loads Optuna and numba, as the portfolio does.
"""

from orchestrator.search.memory.earlier import EarlierRun, shared_knobs
from orchestrator.search.memory.runs import read_run
from orchestrator.search.memory.sampler import MEMORY_ARM, MemorySampler

__all__ = ["MEMORY_ARM", "EarlierRun", "MemorySampler", "read_run", "shared_knobs"]
