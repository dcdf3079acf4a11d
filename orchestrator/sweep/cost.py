"""What a sweep will cost in engine starts and minutes, and what that estimate rests on."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from orchestrator.errors import ChunksmithError
from orchestrator.records import FULL_FIDELITY, RunFolder, read_arrow
from orchestrator.search import Space
from orchestrator.search.fidelity import most_cost
from orchestrator.sweep.spec import SweepSpec

_ASSUMED_S: Final = {"vllm": (60.0, 10.0), "vllm_serve": (60.0, 10.0), "kernel_lab": (2.0, 2.0)}
"""Seconds of an engine start and of a block where nothing better is known, by kind of engine."""


@dataclass(frozen=True)
class Seconds:
    """How long one engine start and one block take, and where these figures are from."""

    start_s: float
    block_s: float
    source: str


@dataclass(frozen=True)
class Cost:
    """Bounds of a sweep: the fewest and the most engine starts, blocks and minutes.

    Few of each when every trial ends at its first chance and the trials stay in few groups; most when no trial ends
    early and each moves to a new group. Engines that fail and are started again, and a soak, come on top.
    """

    starts: tuple[int, int]
    blocks: tuple[int, int]
    minutes: tuple[float, float]
    seconds: Seconds


def seconds_of(
    spec: SweepSpec, run: Path | None = None, *, start_s: float | None = None, block_s: float | None = None
) -> Seconds:
    """Seconds that were given, else those of an earlier run, else an assumption.

    Args:
        run: Folder of the earlier run; None looks for one of the study's name under ``runs``.

    Raises:
        ChunksmithError: ``run`` was given and is no run that can be read.
    """
    where = run or Path("runs") / spec.study
    measured: tuple[float | None, float | None] = (None, None)
    if run is not None:
        measured = _of_run(RunFolder.open(run))
    elif RunFolder(where).is_run():
        # One of an older Chunksmith may not be readable; nobody asked for it.
        with contextlib.suppress(ChunksmithError):
            measured = _of_run(RunFolder(where))
    assumed = _ASSUMED_S[spec.engine.kind]
    start, start_source = _first((start_s, "given"), (measured[0], f"mean of {where}"), assumed=assumed[0])
    block, block_source = _first((block_s, "given"), (measured[1], f"mean of {where}"), assumed=assumed[1])
    source = f"{start:.3g} s for an engine start ({start_source}), {block:.3g} s for a block ({block_source})"
    return Seconds(start, block, source)


def cost_of(spec: SweepSpec, space: Space, seconds: Seconds) -> Cost:
    """Estimate the cost of a sweep."""
    groups, trials, below = space.groups(), spec.trials, 0.0
    if spec.fidelity is not None:
        # Which rungs are skipped shows where the sweep runs; without one, others see no more points than this.
        rungs = spec.fidelity.rungs_for(spec.fidelity.rungs, trials)
        entering = spec.fidelity.entering(space.size, rungs)
        below = most_cost(entering, rungs, spec.fidelity.eta)
    baseline = spec.baseline_point()
    first = {name: baseline[name] for name in space.names("engine")}
    others = sum(group != first for group in groups)
    confirmed = min(spec.confirm.points, spec.trials)
    # Every group but the baseline's needs an engine; the trials and each confirmation may come to a new one.
    least, most = 1 + (1 if others == len(groups) else 0), 1 + min(spec.trials, others) + (confirmed if others else 0)
    plan = spec.blocks
    per_trial = [plan.warmup + 2 * pairs for pairs in (plan.min_pairs, plan.max_pairs)]
    # And two blocks for the greedy tokens of both sides.
    warm_ups = plan.warmup * (2 * spec.confirm.starts if spec.confirm.starts > 1 else 1)
    confirming = confirmed * (warm_ups + 2 * spec.confirm.pairs + 2)
    if spec.confirm.starts > 1:
        # A kernel lab without engine-scope knobs serves both roles. One engine at a time takes another for the tokens.
        roles = 1 if spec.is_lab and not others else 2
        least += confirmed * roles * spec.confirm.starts
        most += confirmed * (roles * spec.confirm.starts + 1)
    least_trials = 1 if spec.fidelity is not None else trials
    blocks = (least_trials * per_trial[0] + confirming, trials * per_trial[1] + confirming + math.ceil(below))
    minutes = tuple(
        (starts * seconds.start_s + number * seconds.block_s) / 60
        for starts, number in ((least, blocks[0]), (most, blocks[1]))
    )
    return Cost((least, most), blocks, (minutes[0], minutes[1]), seconds)


def _first(*choices: tuple[float | None, str], assumed: float) -> tuple[float, str]:
    """The first figure that is there, and where it is from."""
    return next(((value, source) for value, source in choices if value is not None), (assumed, "assumed"))


def _of_run(run: RunFolder) -> tuple[float | None, float | None]:
    """Mean seconds of an engine start and of a block in a run; None where it has none."""
    starts: list[float] = []
    if run.provenance.exists():
        starts = [engine["start_s"] for engine in json.loads(run.provenance.read_text())["engines"]]
    durations: list[Any] = read_arrow(run.path, "blocks", where=FULL_FIDELITY).column("duration_s").to_pylist()
    return _mean(starts), _mean(durations)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
