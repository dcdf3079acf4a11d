"""The knee and the front, against a plain reading of their definitions."""

from __future__ import annotations

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.analysis.knee import find_knee, front

TRIALS = st.lists(st.tuples(st.integers(1, 6), st.floats(0.5, 1.5)), min_size=1, max_size=12)


def table(rows: list[tuple[int, float]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["workspace_bytes", "ratio"])
    return frame.assign(trial=range(len(frame)))


@settings(max_examples=100)
@given(TRIALS, st.booleans(), st.sampled_from([0.0, 0.02, 0.5]))
def test_the_knee_is_the_smallest_within_the_loss(rows: list[tuple[int, float]], minimize: bool, loss: float) -> None:
    knee = find_knee(table(rows), minimize=minimize, loss=loss)
    assert knee is not None
    best = min(r for _, r in rows) if minimize else max(r for _, r in rows)
    near = [size for size, r in rows if (r <= best * (1 + loss) if minimize else r >= best / (1 + loss))]
    assert knee.workspace_bytes == min(near)
    assert rows[knee.trial] == (knee.workspace_bytes, knee.ratio)
    assert rows[knee.best_trial][1] == best


@settings(max_examples=100)
@given(TRIALS, st.booleans())
def test_nothing_on_the_front_is_dominated_and_all_else_is(rows: list[tuple[int, float]], minimize: bool) -> None:
    sign = 1 if minimize else -1
    points = [(size, sign * r) for size, r in rows]
    kept = {points[trial] for trial in front(table(rows), minimize=minimize)["trial"]}
    free = {p for p in points if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in points)}
    assert kept == free


def test_without_a_known_workspace_there_is_no_knee() -> None:
    assert find_knee(table([(1, 1.0)]).assign(workspace_bytes=pd.Series([None], dtype="Int64")), minimize=True) is None
