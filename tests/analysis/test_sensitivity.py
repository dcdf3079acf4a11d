"""Sensitivity against a plain least-squares fit with every column written out."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from orchestrator.analysis.points import MeasuredPoints, read_points
from orchestrator.analysis.run_spec import RunSpec
from orchestrator.analysis.sensitivity import sensitivity
from orchestrator.errors import ChunksmithError
from orchestrator.records import RunFolder
from tests.analysis.runs import Run

Rows = Sequence[tuple[Any, ...]]
KNOBS = ("rows", "tokens", "backend")
LEVELS = ((128, 256, None), (1, 2), ("a", "b", "c"))

ROWS = st.lists(
    st.tuples(*(st.sampled_from(levels) for levels in LEVELS), st.floats(0.5, 2.0)), min_size=6, max_size=40
)


def measured(rows: Rows) -> MeasuredPoints:
    frame = pd.DataFrame({name: pd.Series([row[i] for row in rows], dtype=object) for i, name in enumerate(KNOBS)})
    frame["ratio"] = [row[-1] for row in rows]
    frame["trial"] = range(len(rows))
    frame["point"] = [json.dumps(row[:-1]) for row in rows]
    spec = RunSpec("s", "median_ttft_ms", "minimize", (), 0.1, 3, KNOBS, (), {}, {})
    return MeasuredPoints(RunFolder("nowhere"), spec, frame)


def rest_of(columns: list[list[object]], target: NDArray[np.float64]) -> float:
    """Residual sum of squares of a fit with one column for every combination that occurs."""
    design = [np.ones(len(target))]
    for column in columns:
        texts = [repr(value) for value in column]
        design += [np.array([text == level for text in texts], dtype=float) for level in sorted(set(texts))]
    matrix = np.column_stack(design)
    solution = np.linalg.lstsq(matrix, target, rcond=None)[0]
    return float(((target - matrix @ solution) ** 2).sum())


@settings(max_examples=60)
@given(ROWS)
def test_shares_are_type_ii_sums_of_squares(rows: Rows) -> None:
    points = measured(rows)
    target = np.log(points.frame["ratio"].to_numpy(dtype=float))
    total = float(((target - target.mean()) ** 2).sum())
    columns = {name: list(points.frame[name]) for name in points.varied}
    for effect in sensitivity(points):
        if len(effect.knobs) == 1:
            others = [column for name, column in columns.items() if name != effect.knobs[0]]
            without, full = rest_of(others, target), rest_of(list(columns.values()), target)
        else:
            product: list[object] = list(zip(*(columns[name] for name in effect.knobs), strict=True))
            without = rest_of(list(columns.values()), target)
            full = rest_of([*columns.values(), product], target)
        assert math.isclose(effect.share * total, without - full, rel_tol=1e-6, abs_tol=1e-7 * max(total, 1e-9))


def test_a_known_effect_is_found_with_its_levels() -> None:
    noise = np.random.default_rng(1).normal(0, 0.01, 36)
    rows = [
        (row, tokens, backend, math.exp(0.3 * (row == 256) + 0.0 * tokens + noise[index * 6 + at * 3 + place]))
        for index, row in enumerate((128, 256))
        for at, tokens in enumerate((1, 2))
        for place, backend in enumerate("abc")
    ] * 2
    first, *others = sensitivity(measured(rows))
    assert first.knobs == ("rows",)
    assert first.share > 0.9
    assert first.p_value is not None
    assert first.p_value < 1e-6
    low, high = first.levels
    assert (low.value, high.value) == ("128", "256")
    assert math.isclose(high.ratio / low.ratio, math.exp(0.3), rel_tol=0.02)
    assert high.low < high.ratio < high.high
    assert all(effect.share < 0.05 for effect in others)


def test_what_never_varied_apart_is_said_to_be_inseparable() -> None:
    rows = [(128, 1, "a", 1.0 + 0.01 * index) for index in range(3)] + [
        (256, 2, "a", 2.0 + index) for index in range(3)
    ]
    effects = sensitivity(measured(rows))
    assert [effect.knobs for effect in effects] == [("rows",), ("tokens",)]
    assert not any(effect.is_separable for effect in effects)


def test_too_few_trials_are_refused(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    with pytest.raises(ChunksmithError, match="no complete trial; this needs at least 4"):
        sensitivity(read_points(run.path))
    run.trial(0)
    with pytest.raises(ChunksmithError, match="1 complete trials; this needs"):
        sensitivity(read_points(run.path))
