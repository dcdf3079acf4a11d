"""What the confirmation of a point shows: its pairs, and what speaks against trusting them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from orchestrator.analysis.accuracy import AccuracyCheck
from orchestrator.errors import ChunksmithError
from orchestrator.measurement.stats import RatioInterval, paired_ratio
from orchestrator.records import RunFolder, SoakRecord, parse_object, soak_path

Row = Mapping[str, Any]


def object_of(run: RunFolder, row: Row, column: str) -> dict[str, Any]:
    """The JSON object in a column of a trial's or a block's row."""
    return parse_object(row[column], where=f"{run.path}: trial {row['trial']}: {column}")


class Pair(NamedTuple):
    """Both sides of a pair of blocks, and the engines that served them."""

    candidate: float
    baseline: float
    engines: tuple[str, str]


def ratio_of(pairs: Sequence[Pair], level: float = 0.95) -> RatioInterval:
    """What the pairs say. Where both engines were started anew between them, that is part of the interval's width."""
    return paired_ratio(
        [pair.candidate for pair in pairs],
        [pair.baseline for pair in pairs],
        level=level,
        starts=_starts_of(pairs),
    )


def _starts_of(pairs: Sequence[Pair]) -> list[int]:
    """The start that each pair is of. Pairs that have an engine in common, or are linked by others that do, are of the
    same: where one engine at a time takes turns with another, each serves two pairs."""
    linked: list[set[str]] = []
    for pair in pairs:
        touched = [group for group in linked if not group.isdisjoint(pair.engines)]
        linked = [group for group in linked if group not in touched] + [set(pair.engines).union(*touched)]
    return [next(number for number, group in enumerate(linked) if pair.engines[0] in group) for pair in pairs]


def pairs_of(run: RunFolder, trial: int, blocks: Sequence[Row], metric: str) -> tuple[list[Pair], list[str]]:
    """Every complete pair, and what speaks against trusting them."""
    sides: defaultdict[int, dict[str, Row]] = defaultdict(dict)
    for block in blocks:
        if block["role"] in sides[block["pair"]]:
            raise ChunksmithError(
                f"{run.path}: trial {trial}, pair {block['pair']}: two blocks of the {block['role']}."
            )
        sides[block["pair"]][block["role"]] = block
    pairs: list[Pair] = []
    faults: list[str] = []
    for pair, side in sorted(sides.items()):
        for role, block in sorted(side.items()):
            # A request that fails early makes a block look fast.
            if block["failed_requests"]:
                faults.append(f"{block['failed_requests']} requests of the {role} failed in pair {pair}")
        if len(side) < 2:
            continue  # The sweep was stopped between the two blocks, or is about to run the second.
        values = side["candidate"][metric], side["baseline"][metric]
        if all(value is not None and math.isfinite(value) and value > 0 for value in values):
            pairs.append(_pair(side, *values))
        else:
            faults.append(f"pair {pair} has no usable {metric}: candidate {values[0]}, baseline {values[1]}")
    return pairs, faults


def complete_pairs(blocks: Sequence[Row], metric: str) -> list[Pair]:
    """The pairs that have both sides."""
    sides: defaultdict[int, dict[str, Row]] = defaultdict(dict)
    for block in blocks:
        if block[metric] is not None and math.isfinite(block[metric]) and block[metric] > 0:
            sides[block["pair"]][block["role"]] = block
    found = [side for _, side in sorted(sides.items()) if len(side) == 2]
    return [_pair(side, side["candidate"][metric], side["baseline"][metric]) for side in found]


def _pair(side: Mapping[str, Row], candidate: float, baseline: float) -> Pair:
    return Pair(candidate, baseline, (side["candidate"]["engine_id"], side["baseline"]["engine_id"]))


def doubt(run: RunFolder, trial: Row, blocks: Sequence[Row], faults: Sequence[str]) -> str | None:
    """Why the pairs of a trial's confirmation say nothing of its point; None if they do."""
    measured = {
        role: [object_of(run, block, "point") for block in blocks if block["role"] == role]
        for role in ("baseline", "candidate")
    }
    candidates = (object_of(run, trial, "point"), *measured["candidate"])
    if trial["outcome"] != "complete":
        return f"the trial is {trial['outcome']}"
    if any(candidate in measured["baseline"] for candidate in candidates):
        return "it is the baseline itself"
    if not blocks:
        return "not confirmed"
    return faults[0] if faults else None


def refusal(run: RunFolder, accuracy: AccuracyCheck, soak: SoakRecord | None) -> str | None:
    """Why a point is not to be deployed, however fast it is; None if it may be."""
    if not accuracy.passed:
        return f"accuracy guard failed: {accuracy.reason}"
    if soak is not None and not soak.passed:
        where = soak_path(run.path, soak.trial).relative_to(run.path)
        return f"soak failed at {soak.batch!r} ({soak.failure}: {soak.detail}); reproducer: {where} of the run"
    return None
