"""A run as one HTML file that needs nothing else: no network, no server, no Python."""

from orchestrator.analysis.report.page import report

__all__ = ["report"]
