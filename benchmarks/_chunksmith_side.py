"""One run of ``chunksmith sweep`` over a grid of workspace caps, timed from outside and split by its own records."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from orchestrator.errors import ChunksmithError

KNOB = "mla_workspace_rows"
STOP_TIMEOUT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class TimeSplit:
    """Where the seconds of one sweep went. The four parts add up to the wall time.

    Attributes:
        start_s: From the launch of the process until the first block: interpreter, Ray, engine, its warm-up block.
        measuring_s: Inside blocks, those of the baseline included.
        rest_s: Between blocks, and after the last one until the study holds the last result: retuning, prompts,
            calls to the engine, what was in force, records, proposals.
        end_s: From there until the process has ended: engine and Ray stop, the answer is computed and printed.
    """

    start_s: float
    measuring_s: float
    rest_s: float
    end_s: float

    @property
    def wall_s(self) -> float:
        return self.start_s + self.measuring_s + self.rest_s + self.end_s

    @property
    def rest_share(self) -> float:
        """The rest as a share of measuring."""
        return self.rest_s / self.measuring_s


@dataclass(frozen=True, kw_only=True)
class ChunksmithRun:
    """``gaps_ms`` are medians: between the two blocks of a trial, and between two trials. ``chunks`` has the context
    chunks that were planned in a candidate's block, by cap."""

    split: TimeSplit
    engine_start_s: float
    warm_up_s: float
    block_s: float
    gaps_ms: dict[str, float]
    chunks: dict[int, int]
    rows: dict[int, int]


def grid_spec(caps: Sequence[int], input_len: int) -> dict[str, Any]:
    """The sweep spec: one live knob with the caps as its values, one request a block, one pair a trial."""
    return {
        "version": 1,
        "study": f"grid-{len(caps)}",
        "model": "tiny-mla",
        "engine": {
            "args": {
                "dtype": "bfloat16",
                "max_model_len": 16384,
                "max_num_batched_tokens": 1024,
                "max_num_seqs": 4,
                "enforce_eager": True,
                "enable_chunked_prefill": True,
                "enable_prefix_caching": False,
            },
            "plugin": {"cpu_chunked_prefill": True},
            "env": {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"},
        },
        "space": {KNOB: {"scope": "live", "values": list(caps)}},
        "workload": {"prompts": 1, "input_len": input_len, "output_len": 1},
        "load": {"concurrency": 1},
        "trials": len(caps),
        "blocks": {"warmup": 0, "min_pairs": 1, "max_pairs": 1},
        "confirm": {"points": 0},
        "accuracy": {"input_len": input_len},
    }


def run_chunksmith(caps: Sequence[int], input_len: int, folder: Path) -> ChunksmithRun:
    """Run the sweep in ``folder``. Raises ChunksmithError if it fails, or did not measure every cap once."""
    spec, run, log = folder / "spec.yaml", folder / "run", folder / "output.log"
    spec.write_text(yaml.safe_dump(grid_spec(caps, input_len), sort_keys=False))
    command = [str(Path(sys.executable).parent / "chunksmith"), "sweep", str(spec), "--run", str(run)]
    with log.open("w") as output:
        launched, begin = datetime.now(UTC), time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code = process.wait()
        except BaseException:
            _stop(process)
            raise
        wall_s = time.perf_counter() - begin
    if code != 0:
        raise ChunksmithError(f"chunksmith sweep: exit code {code}; its output: {log}")
    return _read(run, launched, wall_s, caps)


def split_time(launched: datetime, wall_s: float, blocks: pd.DataFrame, told: datetime) -> TimeSplit:
    """Split the wall time of a sweep.

    Args:
        launched: When the process was started.
        wall_s: Seconds until it had ended.
        blocks: All blocks of the run: ``started_at`` and ``duration_s``.
        told: When the study had the last result.
    """
    first = (blocks["started_at"].min().to_pydatetime() - launched).total_seconds()
    last = (told - launched).total_seconds()
    measuring = float(blocks["duration_s"].sum())
    return TimeSplit(start_s=first, measuring_s=measuring, rest_s=last - first - measuring, end_s=wall_s - last)


def block_gaps(blocks: pd.DataFrame) -> dict[str, float]:
    """Median milliseconds between the end of a block and the start of the next, inside a trial and between two."""
    ordered = blocks.sort_values("started_at")
    ends = ordered["started_at"] + pd.to_timedelta(ordered["duration_s"], unit="s")
    gaps = (ordered["started_at"] - ends.shift()).dt.total_seconds() * 1000.0
    same = ordered["trial"] == ordered["trial"].shift()
    return {"in_trial": float(gaps[same].median()), "between_trials": float(gaps[~same].median())}


def _read(run: Path, launched: datetime, wall_s: float, caps: Sequence[int]) -> ChunksmithRun:
    trials, blocks = pd.read_parquet(run / "trials"), pd.read_parquet(run / "blocks")
    candidates = blocks[blocks["role"] == "candidate"]
    measured = [json.loads(point)[KNOB] for point in candidates["point"]]
    if sorted(measured) != sorted(caps) or set(trials["outcome"]) != {"complete"}:
        raise ChunksmithError(f"{run}: measured the caps {sorted(measured)}, not each of {sorted(caps)} once")
    engines = json.loads((run / "provenance.json").read_text())["engines"]
    if len(engines) != 1:
        raise ChunksmithError(f"{run}: {len(engines)} engines were started, not one")
    # The journal is written by every ask and tell, and by nothing after the last tell.
    told = datetime.fromtimestamp((run / "study.journal").stat().st_mtime, UTC)
    return ChunksmithRun(
        split=split_time(launched, wall_s, blocks, told),
        engine_start_s=engines[0]["start_s"],
        warm_up_s=engines[0]["warm_up_s"],
        block_s=float(blocks["duration_s"].median()),
        gaps_ms=block_gaps(blocks),
        chunks=dict(zip(measured, map(int, candidates["context_chunks"]), strict=True)),
        rows=dict(zip(measured, map(int, candidates["workspace_rows"]), strict=True)),
    )


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ctrl-C first, which stops Ray and the engine; then the whole group."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
