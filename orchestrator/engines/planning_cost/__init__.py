"""What a block would cost by planning arithmetic alone: no engine is started, and no clock is read.

It is the cheapest rung of a fidelity ladder. Chunks, rows, bytes and operations of every step follow from the planners;
a linear model makes seconds of them, and a scheduler in virtual time makes timelines of those. Imports no torch.
"""

from orchestrator.engines.planning_cost.predict import KNOWN_KNOBS, PlannedBlock, PlanningCost
from orchestrator.engines.planning_cost.roofs import NOMINAL, Roofs
from orchestrator.engines.planning_cost.work import Work

__all__ = ["KNOWN_KNOBS", "NOMINAL", "PlannedBlock", "PlanningCost", "Roofs", "Work"]
