"""A sweep over engines that only sleep: the load of the overhead benchmark, and no result of anything."""

from __future__ import annotations

from typing import Any

from benchmarks._sleeping_actor import MODEL, SleepingActor
from orchestrator.cluster import RayEngine


class RaySleeper(RayEngine):
    """The engine of the sweep: Chunksmith's own, but for what its actor holds."""

    actor_class = SleepingActor


def spec(trials: int, trial_s: float, cpus: float) -> dict[str, Any]:
    """A sweep of trials that take so long: a pair of blocks each, drawn at random; nothing is confirmed or soaked."""
    return {
        "version": 1,
        "study": "overhead",
        "model": f"{MODEL}{trial_s / 2}",
        "engine": {"args": {"max_model_len": 8192, "max_num_batched_tokens": 256, "max_num_seqs": 4}},
        "space": {
            "mla_workspace_rows": {"scope": "live", "low": 128, "high": 128 + 16 * (trials // 16 + 1), "step": 16},
            "max_num_batched_tokens": {"scope": "live", "low": 128, "high": 256, "step": 8},
        },
        "sampler": {"kind": "random"},
        "workload": {"prompts": 1, "input_len": 1024, "output_len": 1},
        "trials": trials,
        "blocks": {"warmup": 0, "min_pairs": 1, "max_pairs": 1},
        "confirm": {"points": 0},
        "accuracy": {"input_len": 1024},
        "soak": {"rounds": 0},
        "resources": {"cpus": cpus},
    }
