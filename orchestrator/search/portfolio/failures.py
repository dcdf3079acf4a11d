"""Where trials fail: an average over simple explanations, each of which is a table over two knobs.

Hidden constraints of engines are mostly of that kind (a backend that lacks a data type, a workspace that outgrows the
memory), and a table over two knobs is learned from few failures. Which two, the data say: an explanation weighs what
it would have foretold of each trial from all the others (leave-one-out predictive likelihood). A rule on one knob is
what several tables agree on.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from orchestrator.planning.jit import compiled
from orchestrator.search.portfolio.features import Floats, Ints, Points

_STRENGTH = 0.4
"""Trials that the neighbours of a cell, or the common rate, count for in it; low, for a hidden constraint nearly always
decides alone."""
_BINS = 16
_REACHES = (0.0, 0.35)
"""How much the next level of an ordered knob counts among a cell's neighbours; 0 is an explanation without any."""
_LEAST_WEIGHT = 1e-3

Tables = NDArray[np.float64]


class FailureModel:
    """The probability that a point fails, from the trials that did and did not."""

    def __init__(self, points: Points) -> None:
        self._cells = np.ascontiguousarray(np.stack([_binned(points, k) for k in range(len(points.names))], axis=1))
        counts = self._cells.max(axis=0) + 1
        knobs = [k for k in range(len(points.names)) if counts[k] > 1]
        pairs = list(itertools.combinations(knobs, 2)) or [(k, k) for k in knobs]
        self._pairs = np.array(pairs, dtype=np.int32).reshape(-1, 2)
        self._counts = np.ascontiguousarray(counts, dtype=np.int32)
        self._is_ordered = np.ascontiguousarray(points.is_ordered)

    def probability(self, rows: Ints, failed: Floats, candidates: Ints) -> Floats:
        """Probability of failure at candidates; 0 as long as nothing failed.

        Args:
            rows: Shape (n,): the points that were tried.
            failed: Shape (n,): 1 where a trial failed, 0 where it gave a value.
        """
        if not failed.any():
            return np.zeros(len(candidates))
        rate = (float(failed.sum()) + 0.5) / (len(failed) + 1.0)
        if len(self._pairs) == 0:
            return np.full(len(candidates), rate)
        tried = np.ascontiguousarray(self._cells[rows])
        scores, tables = [], []
        for reach in _REACHES:
            score, table = explain(tried, failed, self._pairs, self._counts, self._is_ordered, reach, rate, _STRENGTH)
            scores.append(score)
            tables.append(table)
        score = np.concatenate(scores)
        weights = np.exp(score - score.max())
        weights /= weights.sum()
        out = np.zeros(len(candidates))
        kept = np.flatnonzero(weights > _LEAST_WEIGHT)
        for index in kept:
            a, b = self._pairs[index % len(self._pairs)]
            table = tables[index // len(self._pairs)][index % len(self._pairs)]
            share = weights[index] / weights[kept].sum()
            out += share * table[self._cells[candidates, a], self._cells[candidates, b]]
        return out


def _binned(points: Points, k: int) -> Ints:
    levels = len(points.levels[k])
    if levels <= _BINS:
        return points.codes[:, k]
    if points.is_ordered[k]:
        return np.minimum(points.coordinates[:, k] * _BINS, _BINS - 1).astype(np.int32)
    return points.codes[:, k] % _BINS


@compiled("(int32[:,::1],float64[::1],int32[:,::1],int32[::1],boolean[::1],float64,float64,float64)")
def explain(
    tried: Ints,
    failed: Floats,
    pairs: Ints,
    counts: Ints,
    is_ordered: NDArray[np.bool_],
    reach: float,
    rate: float,
    strength: float,
) -> tuple[Floats, Tables]:
    """Log leave-one-out likelihood of each pair of knobs, and its table of probabilities, shape (pairs, 16, 16).

    Args:
        tried: Shape (n, K): cell of each trial by knob.
        failed: Shape (n,): 1 or 0.
        pairs: Shape (P, 2).
        counts: Shape (K,): cells of each knob, at most 16.
        reach: Weight of the next cell of an ordered knob; its square is that of the next but one.
        rate: Probability in a cell that nothing is known of, nor of its neighbours.
        strength: Number of trials that it counts for.
    """
    width = 16
    scores, tables = np.zeros(pairs.shape[0]), np.zeros((pairs.shape[0], width, width))
    bad, all_ = np.zeros((width, width)), np.zeros((width, width))
    near_bad, near = np.zeros((width, width)), np.zeros((width, width))
    for index in range(pairs.shape[0]):
        a, b = pairs[index, 0], pairs[index, 1]
        bad[:], all_[:] = 0.0, 0.0
        for i in range(tried.shape[0]):
            bad[tried[i, a], tried[i, b]] += failed[i]
            all_[tried[i, a], tried[i, b]] += 1.0
        reach_a = reach if is_ordered[a] else 0.0
        reach_b = reach if is_ordered[b] else 0.0
        near_bad[:], near[:] = 0.0, 0.0
        for i in range(counts[a]):
            for j in range(counts[b]):
                if all_[i, j] == 0.0:
                    continue
                for p in range(counts[a]):
                    along_a = reach_a ** abs(p - i)
                    if along_a < 1e-3:
                        continue
                    for q in range(counts[b]):
                        if p != i or q != j:
                            weight = along_a * reach_b ** abs(q - j)
                            near_bad[p, q] += weight * bad[i, j]
                            near[p, q] += weight * all_[i, j]
        total = 0.0
        for i in range(counts[a]):
            for j in range(counts[b]):
                # What the neighbours say stands in for a cell's own trials, and gives way to them.
                prior = strength * (near_bad[i, j] + strength * rate) / (near[i, j] + strength)
                tables[index, i, j] = (bad[i, j] + prior) / (all_[i, j] + strength)
                others = all_[i, j] - 1.0 + strength
                if bad[i, j] > 0.0:
                    total += bad[i, j] * np.log(max((bad[i, j] - 1.0 + prior) / others, 1e-6))
                if all_[i, j] > bad[i, j]:
                    chance = (bad[i, j] + prior) / others
                    total += (all_[i, j] - bad[i, j]) * np.log(max(1.0 - chance, 1e-6))
        scores[index] = total
    return scores, tables
