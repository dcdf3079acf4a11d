"""A real sweep as a Ray job, on a real head node of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

pytestmark = [pytest.mark.ray, pytest.mark.timeout(420)]

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
ENGINES: dict[str, dict[str, Any]] = {
    "kernel_lab": {
        "engine": {
            "kind": "kernel_lab",
            "args": {
                "layers": {"dense": 1},
                "heads": 2,
                "max_model_len": 2048,
                "max_num_batched_tokens": 512,
                "max_num_seqs": 4,
            },
        }
    },
    "vllm": {
        "model": "tiny-mla",
        "engine": {
            "args": {
                "dtype": "bfloat16",
                "max_model_len": 4096,
                "max_num_batched_tokens": 512,
                "max_num_seqs": 4,
                "enforce_eager": True,
                "enable_chunked_prefill": True,
                "enable_prefix_caching": False,
            },
            "plugin": {"cpu_chunked_prefill": True},
            "env": {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"},
        },
    },
}
SPEC: dict[str, Any] = {
    "version": 1,
    "study": "job",
    "space": {"mla_workspace_rows": {"scope": "live", "values": [512, 1024]}},
    "workload": {"input_len": 2000},
    "trials": 2,
    "blocks": {"warmup": 0, "min_pairs": 2, "max_pairs": 2},
    "confirm": {"points": 1, "pairs": 2},
    "accuracy": {"prompts": 1, "input_len": 1500, "output_len": 2},
    "soak": {"rounds": 0},
}


@pytest.fixture
def head(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A Ray head node with token authentication. Yields the environment of its clients."""
    # The head resolves a job's `python` by its own PATH.
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "RAY_AUTH_MODE": "token"}
    environment |= {"RAY_AUTH_TOKEN": "a-token-for-this-test-only-0123456789", "RAY_USAGE_STATS_ENABLED": "0"}
    port, dashboard = free_port(), free_port()
    command = [str(BIN / "ray"), "start", "--head", "--block", "--num-cpus=2", f"--port={port}"]
    command += [f"--dashboard-port={dashboard}", "--dashboard-host=127.0.0.1", "--node-ip-address=127.0.0.1"]
    # Where Ray's own choice of a port is taken, by another Ray, the agent goes on without starting jobs.
    command += ["--object-store-memory=134217728", f"--dashboard-agent-listen-port={free_port()}"]
    with (tmp_path / "head.log").open("wb") as log:
        node = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    environment |= {"RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{dashboard}"}
    try:
        wait_for_dashboard(environment["RAY_API_SERVER_ADDRESS"], node, tmp_path / "head.log")
        yield environment
    finally:
        os.kill(node.pid, signal.SIGTERM)
        node.wait(timeout=60)


@pytest.mark.parametrize("kind", ["kernel_lab", pytest.param("vllm", marks=[pytest.mark.engine, pytest.mark.soak])])
def test_sweep_runs_as_a_job(head: dict[str, str], tmp_path: Path, kind: str) -> None:
    spec, run = tmp_path / "job.yaml", tmp_path / "run"
    spec.write_text(yaml.safe_dump(SPEC | ENGINES[kind]))
    words = [str(BIN / "ray"), "job", "submit", "--working-dir", str(ROOT), "--"]
    words += ["python", "jobs/sweep.py", str(spec), "--run", str(run)]
    ended = subprocess.run(words, env=head, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "succeeded" in ended.stdout
    trials = pd.read_parquet(run / "trials")
    assert sorted(trials["trial"]) == [0, 1]
    assert (trials["outcome"] == "complete").all()
    assert "Confirmed points" in ended.stdout


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_dashboard(address: str, node: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        assert node.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(f"{address}/api/version", timeout=5).close()
            return
        except urllib.error.HTTPError:
            return  # 401: it answers, and wants the token
        except OSError:
            time.sleep(0.2)
    raise AssertionError(log.read_text())
