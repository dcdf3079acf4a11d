"""Run by test_growth.py: an engine on a cluster that has no node for it yet, and an autoscaler that adds fake ones.

Ray keeps state for the life of a process, so that the cluster has one of its own. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks._sleeping import RaySleeper, spec
from orchestrator.cluster import NodeWatch, Timeouts, engines_that_fit, ray_session
from orchestrator.engines import EngineError
from orchestrator.sweep import SweepSpec

CPUS = 4
"""Of a node that may be added; the head has one."""

HEAD = "ray.head.default"
"""What Ray's provider of fake nodes calls the type of the head."""

AUTOSCALER: dict[str, Any] = {
    "cluster_name": "growing",
    "max_workers": 2,
    "upscaling_speed": 1.0,
    "idle_timeout_minutes": 5,
    "provider": {
        "type": "fake_multinode",
        "use_node_id_as_ip": True,
        "disable_node_updaters": True,
        "disable_launch_config_check": True,
    },
    "available_node_types": {
        HEAD: {"resources": {"CPU": 1}, "node_config": {}, "max_workers": 0},
        "worker": {"resources": {"CPU": CPUS}, "node_config": {}, "min_workers": 0, "max_workers": 2},
    },
    "head_node_type": HEAD,
    "auth": {},
    "file_mounts": {},
    "cluster_synced_files": [],
    "file_mounts_sync_continuously": False,
    "rsync_exclude": [],
    "rsync_filter": [],
    "initialization_commands": [],
    "setup_commands": [],
    "head_setup_commands": [],
    "worker_setup_commands": [],
    "head_start_ray_commands": [],
    "worker_start_ray_commands": [],
}


@contextmanager
def growing_cluster(folder: Path) -> Iterator[str]:
    """A head with an autoscaler; gives its address. All of its processes are ended."""
    from ray.util import get_node_ip_address

    port, config = free_port(), folder / "autoscaler.json"
    provider = {**AUTOSCALER["provider"], "gcs_address": f"{get_node_ip_address()}:{port}"}
    config.write_text(json.dumps({**AUTOSCALER, "provider": provider}))
    command = [str(Path(sys.executable).parent / "ray"), "start", "--head", "--block", f"--autoscaling-config={config}"]
    command += ["--num-cpus=1", f"--port={port}", "--include-dashboard=false", "--object-store-memory=100000000"]
    environment = {**os.environ, "AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_FAKE_CLUSTER": "1"}
    with (folder / "ray.log").open("w") as log:
        head = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
    try:
        until_answered(head, port)
        yield f"127.0.0.1:{port}"
    finally:
        processes = psutil.Process(head.pid).children(recursive=True)
        head.send_signal(signal.SIGTERM)
        head.wait(30)
        _, left = psutil.wait_procs(processes, timeout=10)
        for process in left:
            process.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def until_answered(head: subprocess.Popen[bytes], port: int, timeout_s: float = 60.0) -> None:
    end = time.monotonic() + timeout_s
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if head.poll() is not None or time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return


def main(folder: Path) -> dict[str, Any]:
    told: dict[str, Any] = {}
    config = SweepSpec.model_validate(spec(1, 0.1, float(CPUS))).engine_config()
    with growing_cluster(folder) as address, ray_session(address):
        from ray.util.placement_group import placement_group_table

        try:
            RaySleeper(folder, cpus=CPUS).start(config)
        except EngineError as error:
            told["refused"] = {"label": error.label, "line": error.detail}
        nodes = NodeWatch()
        told["engines"] = engines_that_fit(2, cpus=CPUS, gpus=0, nodes=nodes, growth_s=90.0)
        engine = RaySleeper(folder, cpus=CPUS, nodes=nodes, timeouts=Timeouts(growth_s=90.0))
        begin = time.monotonic()
        engine.start(config)
        told["start_s"] = time.monotonic() - begin
        told["groups"] = [group["state"] for group in placement_group_table().values()]
        engine.stop()
        # More than any node that may come.
        begin = time.monotonic()
        try:
            RaySleeper(folder, cpus=CPUS + 1, nodes=nodes, timeouts=Timeouts(growth_s=1.0)).start(config)
        except EngineError as error:
            told["never"] = {"label": error.label, "lost": error.lost, "s": time.monotonic() - begin}
        told["left"] = [group["state"] for group in placement_group_table().values() if group["state"] != "REMOVED"]
    return told


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))) + "\n")
