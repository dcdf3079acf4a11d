"""vLLM over Ray: what it is given, what is refused, and a real engine whose ranks lie on two raylets."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cluster import RayEngine, ranks_of
from orchestrator.cluster.placement import Parallel
from orchestrator.cluster.vllm_ranks import is_over_ray
from orchestrator.engines import EngineConfig, EngineError
from tests.engines.test_vllm import DEFAULT_ROWS, chunks_by_hand

ROOT = Path(__file__).parents[2]
OVER_RAY = {"distributed_executor_backend": "ray"}
CPU_OVER_RAY = "tests.cluster.ray_cpu_platform:register"


def config(**args: Any) -> EngineConfig:
    return EngineConfig(model="org/model", args=args)


def test_ranks_are_rays_only_where_vllm_is_told_so() -> None:
    degrees = {
        "tensor_parallel_size": 8,
        "pipeline_parallel_size": 2,
        "decode_context_parallel_size": 4,
        "prefill_context_parallel_size": None,
    }
    over_ray = config(**OVER_RAY, **degrees)
    assert is_over_ray("vllm", over_ray)
    assert ranks_of("vllm", over_ray) == Parallel(tensor=8, pipeline=2, decode_context=4)
    for others in (config(**degrees), config(**degrees, distributed_executor_backend="mp")):
        assert not is_over_ray("vllm", others)
        assert ranks_of("vllm", others) == Parallel()


@pytest.mark.parametrize(
    ("kind", "args", "why"),
    [
        ("vllm_serve", {}, "take engine.kind vllm"),
        ("vllm", {"data_parallel_size": 2}, "sweep one replica"),
        ("vllm", {"tensor_parallel_size": 4, "pipeline_parallel_size": 2}, "each of the 8 ranks: resources.gpus is 4"),
        ("vllm", {"tensor_parallel_size": 4, "decode_context_parallel_size": 3}, "must divide tensor parallelism 4"),
    ],
)
def test_what_vllm_cannot_place_in_a_group_is_refused_at_once(
    kind: Any, args: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with pytest.raises(EngineError, match=re.escape(why)) as refused:
        RayEngine(tmp_path, kind=kind, gpus=4).start(config(**OVER_RAY, **args))
    assert (refused.value.label, refused.value.lost) == ("resources", False)


def make_platform(folder: Path) -> None:
    """Make a distribution with the entry point of the stand-in for GPUs; it is found once the folder is on the path."""
    info = folder / "ray_cpu_platform-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ray-cpu-platform\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[vllm.platform_plugins]\nray_cpu = {CPU_OVER_RAY}\n")


def play(folder: Path, degree: str, *, over: dict[str, str] | None = None) -> dict[str, Any]:
    """The child over two nodes; what it tells."""
    make_platform(folder / "names")
    path = os.pathsep.join([str(ROOT), str(folder / "names")])
    ended = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "vllm_over_ray_child.py"), str(folder), degree],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "RAY_AUTH_MODE": "disabled", **(over or {})},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    logs = "".join(log.read_text()[-4000:] for log in folder.glob("*.log")) if ended.returncode else ""
    assert ended.returncode == 0, ended.stdout + ended.stderr + logs
    told: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return told


@pytest.mark.soak
@pytest.mark.engine
@pytest.mark.timeout(300)
@pytest.mark.parametrize("degree", ["pipeline_parallel_size", "tensor_parallel_size"])
def test_a_real_engine_over_two_nodes(tmp_path: Path, degree: str) -> None:
    told = play(tmp_path, degree)
    assert told["backend"] == "ray"
    assert (told["rank_nodes"], told["raylets_of_ranks"]) == (2, [0, 1])
    # The sweep's own, and none that vLLM made.
    assert told["groups"] == 1
    assert (told["start_rows"], told["disagreement"]) == (DEFAULT_ROWS, None)
    for rows, served in ((256, told["rows_256"]), (DEFAULT_ROWS, told["rows_None"])):
        assert (served["rows"], served["disagreement"], served["errors"]) == (rows, None, [None, None])
        assert served["chunks"] == 2 * chunks_by_hand(1500, 256, rows)
    assert told["shared_files"] > 0
    assert told["left"] == []
