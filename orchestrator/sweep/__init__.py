"""The loop that joins the rooms: ask, run, record, tell, resume."""

from orchestrator.sweep.loop import Sweep
from orchestrator.sweep.pool import EnginePool, WarmEngine
from orchestrator.sweep.progress import Progress
from orchestrator.sweep.serving import Serving, TrialFailure, seed_of
from orchestrator.sweep.soak import point_to_soak, soak_trial
from orchestrator.sweep.spec import SweepSpec
from orchestrator.sweep.spec_file import load_spec

__all__ = [
    "EnginePool",
    "Progress",
    "Serving",
    "Sweep",
    "SweepSpec",
    "TrialFailure",
    "WarmEngine",
    "load_spec",
    "point_to_soak",
    "seed_of",
    "soak_trial",
]
