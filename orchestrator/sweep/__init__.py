"""The loop that joins the rooms: ask, run, record, tell, resume."""

from orchestrator.sweep.loop import Sweep
from orchestrator.sweep.progress import Progress
from orchestrator.sweep.spec import SweepSpec
from orchestrator.sweep.spec_file import load_spec

__all__ = ["Progress", "Sweep", "SweepSpec", "load_spec"]
