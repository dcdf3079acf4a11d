"""Answers from a run's records. Needs neither Ray, torch nor vLLM, so it runs in any notebook."""

from orchestrator.analysis.accuracy import AccuracyCheck, check_accuracy
from orchestrator.analysis.answer import Answer, Finalist
from orchestrator.analysis.best import DECISION_LEVEL, best

__all__ = ["DECISION_LEVEL", "AccuracyCheck", "Answer", "Finalist", "best", "check_accuracy"]
