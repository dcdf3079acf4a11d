"""A run as one HTML file that needs nothing else: no network, no server, no Python. Its plots as pictures too."""

from orchestrator.analysis.report.page import report
from orchestrator.analysis.report.pictures import pictures

__all__ = ["pictures", "report"]
