"""The fidelity ladder: cheap measurements of many points decide which few are measured dearly. Knows no engine.

``orchestrator.search.fidelity.listed`` has the sampler; what is imported here needs no Optuna.
"""

from orchestrator.search.fidelity.ladder import Job, Ladder
from orchestrator.search.fidelity.rungs import FIDELITIES, Fidelity, Rung, most_cost, most_entrants

__all__ = ["FIDELITIES", "Fidelity", "Job", "Ladder", "Rung", "most_cost", "most_entrants"]
