"""Optuna's dashboard over a run: its study, and what only the records know. It changes nothing."""

from orchestrator.analysis.dashboard.server import Dashboard

__all__ = ["Dashboard"]
