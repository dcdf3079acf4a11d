from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.search.portfolio.features import Points
from orchestrator.search.portfolio.frame import MOST_CANDIDATES, Framer, checkpoint
from tests.search.portfolio.conftest import POINTS, history

MANY = Points.of([{"a": a, "b": b, "c": c} for a in range(30) for b in range(30) for c in range(8)])


@given(st.integers(2, 20_000))
def test_a_checkpoint_is_near_and_never_ahead(measured: int) -> None:
    assert max(0.9 * measured - 1, measured - 32) <= checkpoint(measured) <= measured


def test_a_frame_stays_until_the_next_checkpoint() -> None:
    framer = Framer(POINTS, 0)
    values = np.linspace(2.0, 1.0, 60).tolist()
    frames = [framer.frame(history(list(range(n)), values[:n])) for n in (50, 52, 54, 55)]
    assert frames[0] is frames[1] is frames[2]
    assert frames[3] is not frames[0]
    assert frames[0].seen(54).tolist() == list(range(54))


def test_a_late_result_of_an_early_trial_makes_a_new_frame() -> None:
    framer, values = Framer(POINTS, 0), np.linspace(2.0, 1.0, 60).tolist()
    first = framer.frame(history(list(range(50)), values[:50]))
    assert framer.frame(history([59, *range(50)], [1.5, *values[:50]])) is not first


def test_many_measured_points_are_seen_in_part_the_best_and_the_latest() -> None:
    rows = list(range(1000))
    values = np.random.default_rng(0).uniform(1, 2, 1000)
    frame = Framer(MANY, 0).frame(history(rows, values.tolist()))
    assert len(frame.basis) <= 192
    assert set(np.argsort(values[: frame.count])[:128]) <= set(frame.basis)
    assert frame.seen(1000)[-1] == 999


def test_of_many_points_some_are_scored_with_the_neighbours_of_the_best() -> None:
    assert MANY.size > MOST_CANDIDATES
    found = history(list(range(40)), [1.0 if row == 17 else 2.0 + row for row in range(40)])
    frame = Framer(MANY, 3).frame(found)
    assert len(frame.candidates) < MOST_CANDIDATES
    assert set(MANY.neighbours(17)) <= set(frame.candidates)
    assert (frame.candidates == Framer(MANY, 3).frame(found).candidates).all()
    assert len(Framer(POINTS, 3).frame(found).candidates) == POINTS.size
