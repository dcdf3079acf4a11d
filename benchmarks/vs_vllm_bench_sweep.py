"""Wall time of a sweep over workspace caps: ``chunksmith sweep`` against ``vllm bench sweep serve``.

Both sides run as the commands that a user types, on the same tiny MLA model, with the same engine arguments and
environment, the same caps (``CAPS``, spread evenly for fewer points) and the same workload: ``RUNS`` runs a point, each
one request of ``INPUT_LEN`` prompt tokens and one output token, with no warm-up requests. They alternate
(chunksmith 2, vllm 2, chunksmith 4, ...), and each is timed from outside, from the start of its process to its end.

What is not equal:

- Chunksmith compares: the two runs of its points are a pair, the cap and vLLM's own default; ``vllm bench sweep``
  serves both with the cap. Chunksmith also keeps one engine and retunes it, which is the point.
- Chunksmith serves one warm-up request an engine, which nobody counts.
- ``vllm bench sweep`` runs every point ``RUNS`` times here, so that both sides serve the same number of requests. Its
  own default is three times. ``--vllm-runs 1`` asks it for half of Chunksmith's requests.
- In place of its three requests to reset caches after a run, it calls ``_probe.py``, which reads from the server what
  was in force. That takes about a tenth of a second a point.

A result only stands if the caps were in force on both sides: for each cap, both engines have to report the workspace
rows that the sizing rule gives, and to have planned the same number of context chunks for the request.

``INPUT_LEN`` is the shortest length (in steps of 1,024) for which a run takes 1 to 2 s a point on both sides, as each
side's own records have it: on one core of an AMD EPYC with AVX-512, 1.1 s for the one request of ``vllm bench serve``
at vLLM's default cap, and 1.7 s for a pair of blocks. It was settled before the first run of 16 points, but after
shorter runs at 6,144 tokens, at which the ratio would have come out larger: the longer a request, the less a restart
weighs.

Chunksmith's own time is split by its records: ``_chunksmith_side.TimeSplit`` defines the four parts. Its rest (what is
neither start, nor measuring, nor the end) is compared with measuring.

Run as ``python -m benchmarks.vs_vllm_bench_sweep`` from the repository's root, on a machine that does nothing else.
The exit code is 1 when a bound is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks._chunksmith_side import ChunksmithRun, grid_spec, run_chunksmith
from benchmarks._report import Bound, report
from benchmarks._vllm_side import VllmRun, run_vllm
from orchestrator.errors import ChunksmithError
from orchestrator.planning import dense_workspace_rows
from orchestrator.sweep import SweepSpec

CAPS = (128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192, 16384, 32768, 49152, 57344)
"""Rows. vLLM's own cap, 65,536, is the baseline of every pair, so that it is no point of the grid."""

INPUT_LEN = 5120
RUNS = 2
"""Runs a point on each side: a pair, on Chunksmith's."""

BLOCK_SIZE = 16
"""Tokens of a KV block in vLLM's MLA backend for CPUs."""

RATIO_BOUND = 0.1
REST_BOUND = 0.02


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison and report it."""
    options = _parser().parse_args(arguments)
    points = [2] if options.quick else options.points
    console = Console(highlight=False, width=120)
    measured: dict[int, tuple[ChunksmithRun, VllmRun]] = {}
    load: dict[int, float] = {}
    with tempfile.TemporaryDirectory(prefix="vs-vllm-bench-sweep-") as name:
        folder = options.keep or Path(name)
        for count in points:
            load[count] = os.getloadavg()[0]
            measured[count] = _compare(count, options.input_len, options.vllm_runs, folder, console)
    figures = {
        "input_len": options.input_len,
        "vllm_runs": options.vllm_runs,
        "cores": os.cpu_count(),
        "points": [
            {**_figures(*pair), "points": count, "load_before": load[count]} for count, pair in measured.items()
        ],
    }
    return report("vs_vllm_bench_sweep", _tables(measured), figures, _bounds(measured), console)


def spread(count: int) -> tuple[int, ...]:
    """``count`` of ``CAPS``, evenly spaced, both ends included. ``count`` is 2 to the number of caps."""
    if not 2 <= count <= len(CAPS):
        raise ValueError(f"points must be 2 to {len(CAPS)}, got {count}")
    return tuple(CAPS[index * (len(CAPS) - 1) // (count - 1)] for index in range(count))


def require_in_force(
    chunksmith: ChunksmithRun, vllm: VllmRun, expected_rows: Mapping[int, int], input_tokens: int
) -> None:
    """Refuse a comparison in which the two sides did not do the same work.

    Args:
        expected_rows: Workspace rows by cap, from the sizing rule.
        input_tokens: Prompt tokens of one run.

    Raises:
        ChunksmithError: One line that names the cap and what was seen.
    """
    for cap, rows in expected_rows.items():
        for side, seen in (("chunksmith", chunksmith.rows[cap]), ("vllm", vllm.rows[cap])):
            if seen != rows:
                raise ChunksmithError(f"cap {cap}: {side} had {seen} workspace rows in force, not {rows}")
        if not 0 < chunksmith.chunks[cap] == vllm.chunks[cap]:
            raise ChunksmithError(
                f"cap {cap}: chunksmith planned {chunksmith.chunks[cap]} context chunks, vllm {vllm.chunks[cap]}"
            )
        if vllm.input_tokens[cap] != input_tokens:
            raise ChunksmithError(f"cap {cap}: vllm was sent {vllm.input_tokens[cap]} tokens, not {input_tokens}")


def _compare(
    count: int, input_len: int, vllm_runs: int, folder: Path, console: Console
) -> tuple[ChunksmithRun, VllmRun]:
    caps = spread(count)
    spec = SweepSpec.model_validate(grid_spec(caps, input_len))
    places = [folder / f"{side}-{count}" for side in ("chunksmith", "vllm")]
    for place in places:
        place.mkdir(parents=True)
    ours = run_chunksmith(caps, input_len, places[0])
    console.print(f"chunksmith sweep, {count} points: {ours.split.wall_s:.1f} s")
    theirs = run_vllm(spec, caps, vllm_runs, places[1])
    console.print(f"vllm bench sweep serve, {count} points: {theirs.wall_s:.1f} s")
    args = spec.engine.args
    rows = {
        cap: dense_workspace_rows(
            max_model_len=args["max_model_len"], max_num_seqs=args["max_num_seqs"], block_size=BLOCK_SIZE, cap=cap
        )
        for cap in caps
    }
    require_in_force(ours, theirs, rows, input_len)
    return ours, theirs


def _figures(ours: ChunksmithRun, theirs: VllmRun) -> dict[str, Any]:
    split = ours.split
    return {
        "chunksmith_s": split.wall_s,
        "vllm_s": theirs.wall_s,
        "ratio": split.wall_s / theirs.wall_s,
        "start_s": split.start_s,
        "measuring_s": split.measuring_s,
        "rest_s": split.rest_s,
        "end_s": split.end_s,
        "rest_share": split.rest_share,
        "engine_start_s": ours.engine_start_s,
        "warm_up_s": ours.warm_up_s,
        "median_block_s": ours.block_s,
        "median_gap_in_trial_ms": ours.gaps_ms["in_trial"],
        "median_gap_between_trials_ms": ours.gaps_ms["between_trials"],
        "vllm_s_per_point": theirs.wall_s / len(theirs.rows),
        "vllm_median_run_s": theirs.run_s,
    }


def _bounds(measured: Mapping[int, tuple[ChunksmithRun, VllmRun]]) -> list[Bound]:
    bounds = []
    if (most := max(measured)) >= len(CAPS):
        ours, theirs = measured[most]
        ratio = ours.split.wall_s / theirs.wall_s
        bounds.append(Bound(name=f"wall time against vllm at {most} points", value=ratio, bound=RATIO_BOUND))
    for points, (ours, _) in measured.items():
        name = f"rest / measuring at {points} points"
        bounds.append(Bound(name=name, value=ours.split.rest_share, bound=REST_BOUND))
    return bounds


def _tables(measured: Mapping[int, tuple[ChunksmithRun, VllmRun]]) -> list[Table]:
    walls = Table(title="Wall time, s")
    for column in ("points", "chunksmith", "vllm bench sweep", "ratio", "vllm a point", "a block", "a vllm run"):
        walls.add_column(column, justify="right")
    split = Table(title="Chunksmith's time, s")
    for column in ("points", "start", "of it engine", "measuring", "rest", "end", "rest / measuring"):
        split.add_column(column, justify="right")
    for count, (ours, theirs) in measured.items():
        figures = _figures(ours, theirs)
        names = ("chunksmith_s", "vllm_s", "ratio", "vllm_s_per_point", "median_block_s", "vllm_median_run_s")
        formats = (".1f", ".1f", ".3f", ".1f", ".2f", ".2f")
        values = (format(figures[name], form) for name, form in zip(names, formats, strict=True))
        walls.add_row(str(count), *values)
        names = ("start_s", "engine_start_s", "measuring_s", "rest_s", "end_s", "rest_share")
        formats = (".1f", ".1f", ".1f", ".3f", ".1f", ".2%")
        split.add_row(str(count), *(format(figures[name], form) for name, form in zip(names, formats, strict=True)))
    return [walls, split]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vs_vllm_bench_sweep", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--points", type=_counts, default=[2, 4, 8, 16], help="grid sizes, for instance 2,4,8,16")
    parser.add_argument("--quick", action="store_true", help="2 points only")
    parser.add_argument("--input-len", type=int, default=INPUT_LEN, help="prompt tokens of the request")
    parser.add_argument("--vllm-runs", type=int, default=RUNS, help="runs a point of vllm bench sweep")
    parser.add_argument("--keep", type=Path, help="folder for specs, records and logs; they are thrown away if omitted")
    return parser


def _counts(text: str) -> list[int]:
    try:
        counts = [int(word) for word in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be whole numbers with commas, got {text!r}") from None
    for count in counts:
        try:
            spread(count)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    return counts


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ChunksmithError as error:
        sys.exit(f"vs_vllm_bench_sweep: {error}")
