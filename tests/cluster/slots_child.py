"""Run by test_slots.py: a sweep on raylets that come and go, with engines that only sleep, and one that finds no room.

Ray keeps state for the life of a process, so that the cluster has one of its own. Prints one JSON object.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks._sleeping import RaySleeper, spec
from orchestrator.cluster import ClusterRoom, NodeWatch, Timeouts, ray_session
from orchestrator.cluster.groups import node_shapes
from orchestrator.cluster.placement import Parallel
from orchestrator.cluster.reaper import engine_processes, lease_folder
from orchestrator.engines import EngineError
from orchestrator.records import RunFolder, read_arrow
from orchestrator.sweep import Progress, Sweep, SweepSpec

TRIALS, TRIAL_S = 60, 0.5
PATIENCE_S = 90.0


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.05)


def made(run: RunFolder, output: io.StringIO) -> Sweep:
    """A sweep whose slots follow the cluster."""
    resolved = SweepSpec.model_validate(spec(TRIALS, TRIAL_S, 1.0))
    timeouts = Timeouts(place_s=20.0)
    return Sweep(
        resolved,
        run,
        lambda: RaySleeper(run.logs, cpus=1.0, timeouts=timeouts),
        Progress(Console(file=output, width=300), TRIALS, 0),
        engines=1,
        room=ClusterRoom(1, Parallel(), {"CPU": 1.0, "GPU": 0.0}, most=4),
        review_s=1.0,
    )


def measured(run: RunFolder) -> int:
    return read_arrow(run.path, "trials", columns=["trial"]).num_rows


def sweep(folder: Path, act: Callable[[RunFolder, io.StringIO], None]) -> dict[str, Any]:
    """Run a sweep in another thread. What happens to its cluster meanwhile needs this one, as Ray has it."""
    run, output = RunFolder.create(folder / "run"), io.StringIO()
    with run.lock(), ThreadPoolExecutor(1) as thread:
        ended = thread.submit(made(run, output).run)
        act(run, output)
        ended.result()
    rows = read_arrow(run.path, "trials").to_pylist()
    return {
        "outcomes": sorted({row["outcome"] for row in rows}),
        "trials": sorted(row["trial"] for row in rows),
        "attempts": max(row["attempt"] for row in rows),
        "engines": len({row["engine_id"] for row in rows}),
        "output": output.getvalue(),
    }


def main(folder: Path) -> None:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]

        def act(run: RunFolder, output: io.StringIO) -> None:
            until(lambda: measured(run) >= 4)
            cluster.add_node(num_cpus=1)
            until(lambda: "3 trials at a time" in output.getvalue())
            begun = measured(run)
            until(lambda: measured(run) >= begun + 6)
            cluster.remove_node(nodes[0], allow_graceful=False)

        with ray_session(cluster.address):
            told = sweep(folder, act)
            told["interrupted"] = interrupted(folder)
            told["no_room"] = no_room(folder)
            told["gone"] = gone(cluster, folder)
    finally:
        cluster.shutdown()
    print(json.dumps(told))


def interrupted(folder: Path) -> dict[str, Any]:
    """Ctrl-C while trials are measured at a time, and what it leaves of the engines."""
    run, output = RunFolder.create(folder / "interrupted"), io.StringIO()

    def interrupt() -> None:
        until(lambda: measured(run) >= 4)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    begin, is_stopped = time.monotonic(), False
    with run.lock():
        try:
            made(run, output).run()
        except KeyboardInterrupt:
            is_stopped = True
    engines = [log.stem for log in run.logs.glob("engine-*.log")]
    return {
        "stopped": is_stopped,
        "s": time.monotonic() - begin,
        "engines": len(engines),
        "left": [
            engine for engine in engines if any(lease_folder().glob(f"{engine}*")) or any(engine_processes(engine))
        ],
        "trials": measured(run),
    }


def no_room(folder: Path) -> str:
    """What an engine says whose cluster is full."""
    import ray

    class Holder:
        """Holds a CPU."""

        def pid(self) -> int:
            return os.getpid()

    holders = [ray.remote(Holder).options(num_cpus=1).remote() for _ in range(2)]
    ray.get([holder.pid.remote() for holder in holders])
    return started(folder, 1.0, NodeWatch())


def gone(cluster: Any, folder: Path) -> list[str]:
    """What engines say when every node is gone that was there before: one that would have fitted, and one that would
    not."""
    nodes = NodeWatch()
    nodes.saw(node_shapes())
    for node in list(cluster.worker_nodes):
        cluster.remove_node(node)
    return [started(folder, cpus, nodes) for cpus in (1.0, 8.0)]


def started(folder: Path, cpus: float, nodes: NodeWatch) -> str:
    resolved = SweepSpec.model_validate(spec(TRIALS, TRIAL_S, 1.0))
    try:
        RaySleeper(folder, cpus=cpus, timeouts=Timeouts(place_s=2.0), nodes=nodes).start(resolved.engine_config())
    except EngineError as error:
        return f"{error.label}, {'lost' if error.lost else 'not lost'}"
    return "started"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
