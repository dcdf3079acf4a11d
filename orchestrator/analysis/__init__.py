"""Answers from a run's records. Needs neither Ray, torch nor vLLM, so it runs in any notebook."""

from orchestrator.analysis.accuracy import AccuracyCheck, check_accuracy
from orchestrator.analysis.answer import Answer, Finalist
from orchestrator.analysis.best import best

__all__ = ["AccuracyCheck", "Answer", "Finalist", "best", "check_accuracy"]
