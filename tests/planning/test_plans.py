from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.planning import LAUNCH_ROWS, LAYER_TYPES, ChunkPlan, plan_prefill_chunks


def partitions(items: list[int]) -> Iterator[list[list[int]]]:
    """Every way to group ``items``."""
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for grouped in partitions(rest):
        yield [[first], *grouped]
        for place, group in enumerate(grouped):
            yield [*grouped[:place], [first, *group], *grouped[place + 1 :]]


def cheapest(seq: list[int], query: list[int], kind: Any, window: int, limit: int, launch: int) -> int:
    """Cost of the best grouping, by trying them all."""
    deep = [s // kind.compress_ratio if kind.has_compressed else 0 for s in seq]
    wide = [q + min(s - q, window - 1) for s, q in zip(seq, query, strict=True)]

    def cost(grouped: list[list[int]]) -> int | None:
        total = 0
        for group in grouped:
            area = len(group) * (max(deep[i] for i in group) + max(wide[i] for i in group))
            if len(group) > 1 and area > limit:
                return None
            total += launch + area
        return total

    return min(c for grouped in partitions(list(range(len(seq)))) if (c := cost(grouped)) is not None)


def random_mix(rng: np.random.Generator, most: int = 64) -> tuple[Any, Any]:
    """Lengths of one of four characters: even, two kinds, heavy tail, prompts without context."""
    count = int(rng.integers(1, most + 1))
    character = rng.integers(4)
    if character == 0:
        seq = rng.integers(1, 100_000, count)
    elif character == 1:
        seq = np.where(rng.random(count) < 0.5, rng.integers(1, 500, count), rng.integers(50_000, 1_000_000, count))
    else:
        seq = np.minimum(rng.lognormal(8, 2, count).astype(np.int64) + 1, 1_000_000)
    query = seq if character == 3 else np.minimum(seq, rng.integers(1, 4096, count))
    return seq, query


@pytest.mark.parametrize("kind", LAYER_TYPES.values(), ids=lambda kind: kind.name)
def test_optimal_never_costs_more_than_greedy(kind: Any) -> None:
    rng = np.random.default_rng(7)
    layer = {"compress_ratio": kind.compress_ratio, "has_compressed": kind.has_compressed, "window": 128}
    cheaper = 0
    for _ in range(10_000 // len(LAYER_TYPES)):
        seq, query = random_mix(rng)
        limit, launch = int(rng.integers(1000, 2_000_000)), int(rng.choice([0, 100, LAUNCH_ROWS, 10**7]))
        costs = {
            order: plan_prefill_chunks(seq, query, area_limit=limit, order=order, launch_rows=launch, **layer).cost(
                launch
            )
            for order in ("batch", "width", "optimal")
        }
        assert costs["optimal"] <= min(costs["batch"], costs["width"])
        cheaper += costs["optimal"] < costs["batch"]
    assert cheaper > 500


@settings(max_examples=300)
@given(
    st.lists(st.integers(1, 5000).flatmap(lambda s: st.tuples(st.just(s), st.integers(1, s))), min_size=1, max_size=6),
    st.sampled_from(list(LAYER_TYPES.values())),
    st.integers(1, 300),
    st.integers(1, 20_000),
    st.integers(0, 5000),
)
def test_optimal_equals_brute_force(
    requests: list[tuple[int, int]], kind: Any, window: int, limit: int, launch: int
) -> None:
    _check_against_brute_force([r[0] for r in requests], [r[1] for r in requests], kind, window, limit, launch)


def test_optimal_equals_brute_force_up_to_eight_requests() -> None:
    rng = np.random.default_rng(11)
    kinds = list(LAYER_TYPES.values())
    for number in range(48):
        count = 7 + number % 2
        seq = rng.integers(1, 5000, count)
        query = rng.integers(1, seq + 1)
        limit, launch = int(rng.integers(1, 20_000)), int(rng.integers(0, 5000))
        _check_against_brute_force(seq.tolist(), query.tolist(), kinds[number % len(kinds)], 100, limit, launch)


def _check_against_brute_force(
    seq: list[int], query: list[int], kind: Any, window: int, limit: int, launch: int
) -> None:
    layer = {"compress_ratio": kind.compress_ratio, "has_compressed": kind.has_compressed, "window": window}
    plan = plan_prefill_chunks(seq, query, area_limit=limit, order="optimal", launch_rows=launch, **layer)
    assert plan.cost(launch) == cheapest(seq, query, kind, window, limit, launch)
    assert plan.exact


@given(st.lists(st.integers(1, 2000), min_size=11, max_size=14), st.integers(1, 30_000), st.integers(0, 3000))
@settings(max_examples=25)
def test_optimal_is_exact_on_many_requests_without_compressed_rows(query: list[int], limit: int, launch: int) -> None:
    # Without compressed rows a request is one number; then the best cut of the sorted order is the best grouping. The
    # search over every grouping of fourteen is out of reach, so the first ten are compared with it and the rest added.
    plan = plan_prefill_chunks(
        query, query, compress_ratio=1, window=8, area_limit=limit, order="optimal", launch_rows=launch
    )
    assert plan.exact
    widths = sorted(query, reverse=True)
    best = [0] + [0] * len(widths)
    for end in range(1, len(widths) + 1):
        options = []
        for start in range(end):
            area = (end - start) * widths[start]
            if end - start == 1 or area <= limit:
                options.append(best[start] + launch + area)
        best[end] = min(options)
    assert plan.cost(launch) == best[-1]


def test_sorting_saves_area_on_the_alternating_batch() -> None:
    seq, query = [100_000, 1000] * 6, [680] * 12
    layer: dict[str, Any] = {"compress_ratio": 4, "window": 128, "area_limit": 164_352}
    greedy = plan_prefill_chunks(seq, query, **layer)
    assert greedy == [(0, 6, 25_000, 25_807), (6, 12, 25_000, 25_807)]
    by_width = plan_prefill_chunks(seq, query, order="width", **layer)
    assert by_width == [(0, 6, 250, 1057), (6, 12, 25_000, 25_807)]
    assert by_width.permutation is not None
    assert by_width.permutation.tolist() == [1, 3, 5, 7, 9, 11, 0, 2, 4, 6, 8, 10]
    best = plan_prefill_chunks(seq, query, order="optimal", **layer)
    assert (len(best), best.area) == (2, 161_184)


def test_the_area_of_the_best_chunk_may_equal_the_limit() -> None:
    layer: dict[str, Any] = {"compress_ratio": 1, "window": 1, "order": "optimal"}
    assert plan_prefill_chunks([10] * 3, [10] * 3, area_limit=30, **layer) == [(0, 3, 0, 10)]
    assert len(plan_prefill_chunks([10] * 3, [10] * 3, area_limit=29, **layer)) == 2
    crossed: dict[str, Any] = {"compress_ratio": 1, "has_compressed": True, "window": 1, "order": "optimal"}
    assert plan_prefill_chunks([20, 5], [1, 5], area_limit=50, **crossed) == [(0, 2, 20, 25)]
    assert len(plan_prefill_chunks([20, 5], [1, 5], area_limit=49, **crossed)) == 2


def test_a_dear_launch_gives_the_fewest_chunks() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        seq, query = random_mix(rng)
        layer: dict[str, Any] = {"compress_ratio": 4, "window": 128, "area_limit": 300_000}
        few = plan_prefill_chunks(seq, query, order="optimal", launch_rows=10**12, **layer)
        assert len(few) <= len(plan_prefill_chunks(seq, query, **layer))


def test_a_plan_survives_pickling_with_all_it_carries() -> None:
    plan = plan_prefill_chunks([5, 900, 7], [5, 9, 7], compress_ratio=4, window=8, area_limit=300, order="optimal")
    again = pickle.loads(pickle.dumps(plan))
    assert again == plan
    assert isinstance(again, ChunkPlan)
    assert plan.permutation is not None
    assert again.permutation is not None
    assert again.permutation.tolist() == plan.permutation.tolist()
    assert (again.exact, again.area_limit) == (plan.exact, 300)
