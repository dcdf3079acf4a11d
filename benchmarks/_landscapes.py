"""Made-up tuning tables, to choose a sampler's design by: none is fitted to a measured table.

Four kinds, each drawn at random by seed: ``kernel`` (a model of a tiled GPU kernel with occupancy, spills, bank
conflicts and partial waves), ``bottleneck`` (the slowest of several parts, each of which depends on a few knobs),
``additive`` (main effects and interactions of two and three knobs on the log scale) and ``trap`` (additive, with a
wide good region and a narrow better one elsewhere). A draw is kept when it is as hard as the measured convolution
tables are reported to be: 1 to 12 rows within 5 % of the best, and random search 20 to 80 % off after 80 rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from orchestrator.search.portfolio import Value

Floats = NDArray[np.float64]
Levels = list[list[int]]
Point = dict[str, Value]

KINDS = ("kernel", "bottleneck", "additive", "trap")
_ROWS = (1500, 9000)
_WITHIN = (1, 12)
_RANDOM_GAP = (0.20, 1.20)
_ROUGHNESS = (0.05, 0.35)
"""Standard deviation, on the log scale, of an interaction of all knobs."""


_CLIFFS = (4, 16)
_ATTEMPTS = 200


def landscape(kind: str, seed: int) -> tuple[list[Point], Floats]:
    """Points and their times."""
    for rng in generators(kind, seed):
        names, rows, times = draw(kind, rng)
        if _ROWS[0] <= len(rows) <= _ROWS[1] and _is_hard(times, rng):
            return [dict(zip(names, map(int, row), strict=True)) for row in rows], times
    raise ValueError(f"no table of kind {kind} and seed {seed} is as hard as it should be")


def generators(kind: str, seed: int) -> Iterator[np.random.Generator]:
    """What the draws of a seed are made by, until one of them is as hard as it should be."""
    for attempt in range(_ATTEMPTS):
        yield np.random.default_rng([KINDS.index(kind), seed, attempt])


def draw(kind: str, rng: np.random.Generator) -> tuple[list[str], NDArray[np.int64], Floats]:
    """Knobs, their values by row, and times, of any hardness."""
    make = {"kernel": _kernel, "bottleneck": _bottleneck, "additive": _additive, "trap": _trap}[kind]
    names, rows, times = make(rng)
    times = times * np.exp(rng.uniform(*_ROUGHNESS) * _effect(rows, tuple(range(rows.shape[1])), rng))
    return names, rows, _with_tail(times * _cliffs(rows, rng), rng)


def hidden_rule(points: list[Point], share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which points fail: those in random cells of two random knobs, at most a fifth more or less than ``share``.

    Raises:
        ValueError: No two knobs give such a share in a thousand draws.
    """
    knobs = [name for name in points[0] if len({point[name] for point in points}) > 1]
    for _ in range(1000):
        a, b = (knobs[int(k)] for k in rng.choice(len(knobs), 2, replace=False))
        cells = np.unique([f"{point[a]},{point[b]}" for point in points], return_inverse=True)[1]
        sizes = np.bincount(cells) / len(points)
        order = rng.permutation(len(sizes))
        nearest = int(np.argmin(np.abs(np.cumsum(sizes[order]) - share)))
        failed = np.isin(cells, order[: nearest + 1])
        if abs(failed.mean() - share) <= 0.2 * share:
            return failed
    raise ValueError(f"no two knobs divide the points so that {share:.0%} fail")


def _is_hard(times: Floats, rng: np.random.Generator) -> bool:
    within = int((times <= 1.05 * times.min()).sum())
    found = [rng.choice(times, 80, replace=False).min() / times.min() - 1.0 for _ in range(200)]
    return _WITHIN[0] <= within <= _WITHIN[1] and _RANDOM_GAP[0] <= float(np.median(found)) <= _RANDOM_GAP[1]


def _grid(levels: Levels) -> NDArray[np.int64]:
    return np.array(list(itertools.product(*levels)), dtype=np.int64)


def _random_levels(rng: np.random.Generator) -> Levels:
    """Five to nine knobs, a mix of switches, powers of two and small counts."""
    levels: Levels = []
    while not _ROWS[0] <= math.prod(len(one) for one in levels) <= _ROWS[1]:
        if math.prod(len(one) for one in levels) > _ROWS[1]:
            levels = []
        kind = rng.random()
        if kind < 0.4:
            levels.append([0, 1])
        elif kind < 0.5:
            levels.append([16 * step for step in range(1, int(rng.integers(9, 17)))])
        elif kind < 0.75:
            levels.append([2 ** int(p) for p in range(int(rng.integers(3, 8)))])
        else:
            levels.append(list(range(1, int(rng.integers(4, 8)))))
    return levels


def _drop_some(rows: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """A known constraint: the product of two or three knobs is bounded."""
    width = rows.shape[1]
    used = rng.choice(width, int(rng.integers(2, 4)), replace=False)
    product = np.prod(np.maximum(rows[:, used], 1), axis=1)
    return np.asarray(rows[product <= np.quantile(product, rng.uniform(0.6, 1.0))])


def _effect(rows: NDArray[np.int64], knobs: tuple[int, ...], rng: np.random.Generator) -> Floats:
    """A random function of some knobs: smooth over each of them, or without any order, standardised."""
    columns = [np.unique(rows[:, k], return_inverse=True)[1] for k in knobs]
    sizes = [int(column.max()) + 1 for column in columns]
    table = rng.standard_normal(sizes)
    smooth_share = rng.uniform(0.1, 0.9)
    for axis, size in enumerate(sizes):
        if size > 2 and rng.random() < smooth_share:
            place = np.arange(size)
            kernel = np.exp(-0.5 * ((place[:, None] - place[None, :]) / rng.uniform(0.7, 2.0)) ** 2)
            table = np.moveaxis(np.tensordot(kernel, table, axes=(1, axis)), 0, axis)
    values = np.asarray(table[tuple(columns)], dtype=np.float64)
    spread = float(values.std())
    return (values - values.mean()) / spread if spread > 0 else values


def _with_tail(times: Floats, rng: np.random.Generator) -> Floats:
    """In half of the tables the slow points are far slower still: the order stays, the scale does not."""
    loss = np.log(times / times.min())
    strength = rng.uniform(0.3, 1.5) if rng.random() < 0.5 else 0.0
    return np.asarray(np.exp(loss * (1.0 + strength * loss)))


def _cliffs(rows: NDArray[np.int64], rng: np.random.Generator) -> Floats:
    """Factors by which points lose that meet a condition on two to four knobs at once."""
    factor = np.ones(len(rows))
    for _ in range(int(rng.integers(*_CLIFFS))):
        meets = np.ones(len(rows), dtype=bool)
        for k in rng.choice(rows.shape[1], int(rng.integers(2, 5)), replace=False):
            levels = np.unique(rows[:, k])
            place = int(rng.integers(1, len(levels)))
            low = rng.random() < 0.5
            meets &= (rows[:, k] < levels[place]) if low else (rows[:, k] >= levels[place])
        factor[meets] *= np.exp(rng.uniform(0.1, 1.0))
    return factor


def _names(width: int) -> list[str]:
    return [f"knob_{k}" for k in range(width)]


def _log_additive(rows: NDArray[np.int64], rng: np.random.Generator) -> Floats:
    width = rows.shape[1]
    total = np.zeros(len(rows))
    for k in range(width):
        total += rng.gamma(1.0) * 0.5 * _effect(rows, (k,), rng)
    for pair in itertools.combinations(range(width), 2):
        if rng.random() < 0.35:
            total += rng.gamma(1.0) * 0.3 * _effect(rows, pair, rng)
    for triple in itertools.combinations(range(width), 3):
        if rng.random() < 0.06:
            total += rng.gamma(1.0) * 0.25 * _effect(rows, triple, rng)
    return np.asarray(total * rng.uniform(0.4, 0.8) / total.std())


def _additive(rng: np.random.Generator) -> tuple[list[str], NDArray[np.int64], Floats]:
    rows = _drop_some(_grid(_random_levels(rng)), rng)
    return _names(rows.shape[1]), rows, np.exp(_log_additive(rows, rng))


def _trap(rng: np.random.Generator) -> tuple[list[str], NDArray[np.int64], Floats]:
    names, rows, times = _additive(rng)
    # A bonus where three or four knobs agree with a point that is not good by itself.
    order = np.argsort(times)
    centre = rows[order[int(rng.uniform(0.1, 0.5) * len(rows))]]
    used = rng.choice(rows.shape[1], int(rng.integers(3, 5)), replace=False)
    matches = (rows[:, used] == centre[used]).sum(axis=1)
    depth = np.log(times[order[len(rows) // 3]] / times.min()) + rng.uniform(0.15, 0.5)
    bonus = depth * np.where(matches == len(used), 1.0, np.where(matches == len(used) - 1, rng.uniform(0.0, 0.4), 0.0))
    return names, rows, times * np.exp(-bonus)


def _bottleneck(rng: np.random.Generator) -> tuple[list[str], NDArray[np.int64], Floats]:
    rows = _drop_some(_grid(_random_levels(rng)), rng)
    width = rows.shape[1]
    parts = []
    for _ in range(int(rng.integers(2, 5))):
        used = tuple(int(k) for k in rng.choice(width, min(width, int(rng.integers(3, 6))), replace=False))
        part = sum(
            (
                _effect(rows, chosen, rng) * rng.gamma(1.0)
                for chosen in itertools.chain(
                    ((k,) for k in used), (pair for pair in itertools.combinations(used, 2) if rng.random() < 0.5)
                )
            ),
            np.zeros(len(rows)),
        )
        parts.append(rng.uniform(0.3, 0.6) * part / part.std() + rng.normal(0.0, 0.2))
    times = np.exp(np.max(parts, axis=0)) + 0.3 * np.exp(np.mean(parts, axis=0))
    return _names(width), rows, times


def _kernel(rng: np.random.Generator) -> tuple[list[str], NDArray[np.int64], Floats]:
    sizes, tiles, switch = [16 * step for step in range(1, 17)], [1, 2, 3, 4], [0, 1]
    levels: Levels = [sizes, [1, 2, 4, 8, 16], tiles, tiles, switch, switch, switch]
    names = ["block_x", "block_y", "tile_x", "tile_y", "shared", "padding", "read_only"]
    rows = _grid(levels)
    bx, by, tx, ty, shared, padding, read_only = (rows[:, k].astype(float) for k in range(7))
    threads, work = bx * by, tx * ty
    warp = float(rng.choice([32, 64]))
    halo = float(rng.integers(2, 20))
    registers = rng.uniform(14, 30) + rng.uniform(1.5, 5.0) * work
    # Padding avoids conflicts and needs space.
    bytes_ = 4.0 * (bx * tx + halo + padding) * (by * ty + halo) * shared
    known = (threads >= warp) & (threads <= 1024) & (bytes_ <= 2.0**16) & ~((shared == 0) & (padding == 1))
    blocks = np.minimum(np.minimum(np.floor(2048 / threads), np.floor(65536 / (registers * threads))), 32)
    blocks = np.minimum(
        blocks, np.where(bytes_ > 0, np.floor(rng.choice([64, 96, 160]) * 1024 / np.maximum(bytes_, 1)), 32)
    )
    blocks = np.maximum(blocks, 0.5)
    occupancy = blocks * threads / 2048
    hiding = np.minimum(1.0, occupancy * work ** rng.uniform(0.3, 0.8) / rng.uniform(0.4, 1.2))
    spills = 1.0 + np.maximum(
        0.0, registers * np.maximum(threads / 256, 1.0) ** 0.5 - rng.uniform(60, 160)
    ) / rng.uniform(20, 80)
    reuse = np.where(
        shared > 0, (1 + halo / (bx * tx)) * (1 + halo / (by * ty)), halo ** rng.uniform(0.4, 0.9) / work**0.35
    )
    memory = rng.uniform(0.3, 1.5) * reuse * (1 - rng.uniform(0.0, 0.35) * read_only * (shared == 0))
    memory *= np.where(bx < warp, rng.uniform(1.1, 1.8), 1.0)
    conflict = (shared > 0) & (padding == 0) & (np.mod(bx * tx + halo, 32) < rng.uniform(4, 24))
    compute = (
        rng.uniform(0.5, 1.5)
        * (1 + rng.uniform(0.2, 1.0) / work)
        * spills
        * np.where(conflict, rng.uniform(1.1, 1.6), 1.0)
    )
    waves = np.ceil(rng.uniform(2e4, 2e6) / (threads * work) / (blocks * rng.integers(40, 120)))
    tail = 1 + rng.uniform(0.0, 1.0) / np.maximum(waves, 1)
    times = (np.maximum(compute, memory) + 0.3 * np.minimum(compute, memory)) / hiding * tail
    keep: Callable[[Floats], Floats] = lambda column: column[known]  # noqa: E731
    return names, rows[known], keep(times)
