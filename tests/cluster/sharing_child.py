"""Run by test_sharing.py: raylets with fake GPUs, and two sweeps on one cluster that gains and loses nodes.

Ray keeps state for the life of a process, so that the cluster has one of its own. Prints one JSON object.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from orchestrator.cluster import ray_session
from orchestrator.cluster.groups import NoRoomError, nodes_of, open_group, remove_group
from orchestrator.cluster.placement import Parallel, PlacementError
from orchestrator.records import RunFolder, read_arrow
from tests.cluster.small_lab import ARGS

EACH = {"GPU": 1.0, "CPU": 1.0}

SPEC: dict[str, Any] = {
    "version": 1,
    "study": "shared",
    "engine": {"kind": "kernel_lab", "args": ARGS, "env": {"OMP_NUM_THREADS": "1"}},
    "space": {
        "decode_context_parallel_size": {"scope": "engine", "values": [1, 2]},
        "mla_workspace_rows": {"scope": "live", "values": [64, 128, 256, 512]},
    },
    "workload": {"prompts": 16, "input_len": 600, "output_len": 4},
    "load": {"concurrency": None},
    "trials": 6,
    "blocks": {"warmup": 1, "min_pairs": 3, "max_pairs": 3},
    "confirm": {"points": 1, "pairs": 2},
    "accuracy": {"prompts": 1, "input_len": 600, "output_len": 3},
    "soak": {"rounds": 0},
}


class GpuActor:
    """Stands for one rank of an engine."""

    def gpu(self) -> tuple[str, list[int]]:
        import ray

        return ray.get_runtime_context().get_node_id(), ray.get_gpu_ids()


@contextmanager
def raylets() -> Iterator[Any]:
    """A cluster whose head serves drivers alone."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        yield cluster
    finally:
        cluster.shutdown()


def refused(act: Callable[[], object]) -> dict[str, Any]:
    begin = time.monotonic()
    try:
        act()
    except (PlacementError, NoRoomError) as error:
        return {"line": str(error), "s": time.monotonic() - begin}
    return {"line": "", "s": 0.0}


def gpu_nodes(_: Path) -> dict[str, Any]:
    """Five nodes of eight GPUs: an engine on one, another on the other four."""
    with raylets() as cluster:
        for _node in range(5):
            cluster.add_node(num_cpus=8, num_gpus=8)
        with ray_session(cluster.address):
            return place_two(Parallel(tensor=8, decode_context=8), Parallel(tensor=16, pipeline=2, decode_context=8))


def place_two(one: Parallel, four: Parallel) -> dict[str, Any]:
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    def opened(parallel: Parallel, timeout_s: float = 30.0) -> Any:
        return open_group(parallel, EACH, spread=False, timeout_s=timeout_s)

    first, second = opened(one), opened(four)
    options = [
        {
            "num_gpus": 1,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(first, placement_group_bundle_index=index),
        }
        for index in range(one.ranks)
    ]
    actors = [ray.remote(GpuActor).options(**given).remote() for given in options]
    gpus = ray.get([actor.gpu.remote() for actor in actors], timeout=120)
    told = {
        "one": nodes_of(first),
        "four": nodes_of(second),
        "gpus": gpus,
        "full": refused(lambda: opened(Parallel(), 1.0)),
        "too_large": refused(lambda: opened(Parallel(tensor=48))),
    }
    remove_group(second)
    told["after"] = nodes_of(opened(four))
    return told


class Sweep:
    """``chunksmith sweep`` on the cluster, a process of its own."""

    def __init__(self, folder: Path, name: str, address: str) -> None:
        self.run, self._log = folder / name, folder / f"{name}.log"
        spec = folder / f"{name}.yaml"
        spec.write_text(yaml.safe_dump({**SPEC, "study": name}))
        # One trial at a time: left to itself, the first would take every node that joins.
        words = ["sweep", str(spec), "--run", str(self.run), "--address", address, "--ray-auth", "disabled"]
        words += ["--parallel", "1"]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "orchestrator.cli", *words], stdout=log, stderr=subprocess.STDOUT
            )

    def until(self, trials: int, timeout_s: float = 300.0) -> None:
        """Wait until so many trials are recorded."""
        end = time.monotonic() + timeout_s
        while self.recorded() < trials:
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(self.output())
            time.sleep(0.02)

    def recorded(self) -> int:
        run = RunFolder(self.run)
        return read_arrow(run.path, "trials", columns=["trial"]).num_rows if run.is_run() else 0

    def output(self) -> str:
        return self._log.read_text()


def two_sweeps(folder: Path) -> dict[str, Any]:
    """The second waits for room until a node is added; the node of the first is then killed, and another added."""
    with raylets() as cluster:
        first_node = cluster.add_node(num_cpus=2)
        first = Sweep(folder, "first", cluster.address)
        first.until(1)
        second = Sweep(folder, "second", cluster.address)
        cluster.add_node(num_cpus=2)
        second.until(1)
        before = first.recorded()
        cluster.remove_node(first_node, allow_graceful=False)
        cluster.add_node(num_cpus=2)
        codes = [sweep.process.wait(timeout=400) for sweep in (first, second)]
        return {"codes": codes, "before": before, "outputs": [first.output(), second.output()]}


SCENARIOS = {one.__name__: one for one in (gpu_nodes, two_sweeps)}

if __name__ == "__main__":
    print(json.dumps(SCENARIOS[sys.argv[1]](Path(sys.argv[2]))))
