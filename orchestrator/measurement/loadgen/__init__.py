"""Put an OpenAI-compatible server under load: open or closed loop, on a schedule computed beforehand."""

from orchestrator.measurement.loadgen.client import run_load
from orchestrator.measurement.loadgen.result import LoadResult
from orchestrator.measurement.loadgen.target import VLLM_BODY, Target, check_target

__all__ = ["VLLM_BODY", "LoadResult", "Target", "check_target", "run_load"]
