"""One run of ``vllm bench sweep serve`` over the same caps, with what was in force read from each server."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.cluster import reaper
from orchestrator.cluster.custody import start_reaper
from orchestrator.engines.serve import names_environment
from orchestrator.engines.vllm import QUIET_ENV
from orchestrator.errors import ChunksmithError
from orchestrator.search import serve_command
from orchestrator.sweep import SweepSpec
from orchestrator.vllm_plugin import WORKER_EXTENSION
from orchestrator.workloads import RandomTokens

REAP_TIMEOUT_S = 60.0
ALSO_ENV = {"HF_HUB_OFFLINE": "1", "SPT_NOENV": "1"}
"""The first as Chunksmith's engine sets it for a model in a folder. The second tells setproctitle not to write over the
environment that ``/proc`` shows: the reaper knows a server's processes by it."""


@dataclass(frozen=True, kw_only=True)
class VllmRun:
    """``run_s`` is the median length of a measured run. ``rows`` and ``chunks``: workspace in force and context
    chunks planned in one run, by cap, as each server reported them. ``input_tokens``: of one run, by cap. Where the
    runs of a cap do not agree, the value is 0."""

    wall_s: float
    run_s: float
    rows: dict[int, int]
    chunks: dict[int, int]
    input_tokens: dict[int, int]


def run_vllm(spec: SweepSpec, caps: Sequence[int], repetitions: int, folder: Path) -> VllmRun:
    """Run the sweep in ``folder``: one server a cap, ``repetitions`` runs each. Raises ChunksmithError if it fails."""
    log, probe, parameters = folder / "output.log", folder / "in_force.jsonl", folder / "serve_params.json"
    base, port = spec.engine_config(), _free_port()
    words, env = serve_command(base, {})
    parameters.write_text(json.dumps([_override(spec, cap) for cap in caps]))
    serve = [_vllm(), "serve", *words, "--worker-extension-cls", WORKER_EXTENSION, "--port", str(port)]
    bench = [_vllm(), "bench", "serve", "--model", base.model, "--port", str(port), *_workload(spec)]
    after = [sys.executable, str(Path(__file__).with_name("_probe.py")), f"http://127.0.0.1:{port}", str(probe)]
    command = [_vllm(), "bench", "sweep", "serve", "--serve-cmd", shlex.join(serve), "--bench-cmd", shlex.join(bench)]
    command += [
        "--after-bench-cmd",
        shlex.join(after),
        "--serve-params",
        str(parameters),
        "--num-runs",
        str(repetitions),
    ]
    command += ["--show-stdout", "--output-dir", str(folder), "--experiment-name", "sweep"]
    environment = {**os.environ, **QUIET_ENV, **env, **ALSO_ENV, **names_environment(folder)}
    wall_s = _timed(command, environment, log)
    return _read(folder / "sweep", probe, caps, repetitions, wall_s)


def _timed(command: Sequence[str], environment: dict[str, str], log: Path) -> float:
    """Run a command; return its seconds. Its servers and their shared memory are removed afterwards, untimed.

    ``vllm bench sweep`` starts each server in a session of its own and ends it by SIGKILL, which leaves files in
    ``/dev/shm``. Our reaper notes which ones the servers map, and removes what is left when the command is gone.
    """
    name = f"vllm-sweep-{uuid.uuid4().hex[:10]}"
    with log.open("w") as output:
        begin = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**environment, reaper.ENGINE_ID_ENV: name},
            start_new_session=True,
        )
        try:
            lease = start_reaper(name, process.pid)
            code = process.wait()
            wall_s = time.perf_counter() - begin
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        _wait_for_reaper(lease)
    if code != 0:
        raise ChunksmithError(f"vllm bench sweep serve: exit code {code}; its output: {log}")
    return wall_s


def _only(values: Sequence[int]) -> int:
    """The one value that all have, or 0, which no cap gives."""
    return values[0] if len(set(values)) == 1 else 0


def _wait_for_reaper(lease: Path) -> None:
    deadline = time.monotonic() + REAP_TIMEOUT_S
    while lease.exists():
        if time.monotonic() > deadline:
            raise ChunksmithError(f"{lease}: its reaper has not finished after {REAP_TIMEOUT_S:.0f} s")
        time.sleep(0.05)


def _read(results: Path, probe: Path, caps: Sequence[int], repetitions: int, wall_s: float) -> VllmRun:
    reports = _grouped([json.loads(line) for line in probe.read_text().splitlines()], repetitions, probe)
    if len(reports) != len(caps):
        raise ChunksmithError(f"{probe}: reports of {len(reports)} servers, not {len(caps)}")
    runs = [_runs_of(results / f"SERVE--{_name(cap)}", repetitions) for cap in caps]
    flat = [run for of_cap in runs for run in of_cap]
    if failed := [run["failed"] for run in flat if run["failed"] or not run["completed"]]:
        raise ChunksmithError(f"{results}: {len(failed)} of {len(flat)} runs have failed requests")
    return VllmRun(
        wall_s=wall_s,
        run_s=sorted(run["duration"] for run in flat)[len(flat) // 2],
        # Sizes of all builders and tensors of a worker, after each run.
        rows={
            cap: _only([size for report in found for size in report["workspace_rows"]])
            for cap, found in zip(caps, reports, strict=True)
        },
        chunks={
            cap: _only(_differences([report["context_chunks"] for report in found]))
            for cap, found in zip(caps, reports, strict=True)
        },
        input_tokens={
            cap: _only([run["total_input_tokens"] for run in of]) for cap, of in zip(caps, runs, strict=True)
        },
    )


def _grouped(reports: list[dict[str, Any]], repetitions: int, probe: Path) -> list[list[dict[str, Any]]]:
    """The reports of each server, in the order of the servers."""
    if len(reports) % repetitions:
        raise ChunksmithError(f"{probe}: {len(reports)} reports, not {repetitions} of each server")
    return [reports[first : first + repetitions] for first in range(0, len(reports), repetitions)]


def _runs_of(folder: Path, repetitions: int) -> list[dict[str, Any]]:
    return [json.loads((folder / f"run={index}.json").read_text()) for index in range(repetitions)]


def _differences(totals: Sequence[int]) -> list[int]:
    """What each run added to a count that only grows, from 0."""
    return [total - before for before, total in zip((0, *totals), totals, strict=False)]


def _override(spec: SweepSpec, cap: int) -> dict[str, Any]:
    plugin = spec.engine.plugin.model_copy(update={"mla_workspace_rows": cap})
    return {"_benchmark_name": _name(cap), "additional_config": plugin.additional_config()}


def _name(cap: int) -> str:
    return f"rows-{cap}"


def _workload(spec: SweepSpec) -> list[str]:
    workload = spec.block_workload()
    assert isinstance(workload, RandomTokens)
    lengths = [str(length.longest) for length in (workload.input_len, workload.output_len)]
    words = ["--dataset-name", "random", "--num-prompts", str(workload.prompts), "--ignore-eos"]
    words += ["--random-input-len", lengths[0], "--random-output-len", lengths[1]]
    return [*words, "--seed", str(spec.seed), "--temperature", "0"]


def _vllm() -> str:
    return str(Path(sys.executable).parent / "vllm")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
