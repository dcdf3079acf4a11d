"""Two runs against each other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from orchestrator.analysis.compare import _welch, compare
from orchestrator.errors import ChunksmithError, UserError
from tests.analysis.runs import Run

FLAT = (1.0, 1.001, 0.999, 1.0, 1.002, 0.998)


def run_with(path: Path, ratios: dict[int, float], *, metric: str = "median_ttft_ms", vllm: str = "0.31.0") -> Run:
    run = Run(path, metric=metric, direction="minimize" if metric.endswith("_ms") else "maximize")
    for number, ratio in ratios.items():
        run.trial(number)
        run.confirm(number, ratio, noise=FLAT)
    engines = [{"kind": "vllm", "version": vllm, "host": "a"}]
    run.folder.provenance.write_text(json.dumps({"packages": {"torch": "2.13.0"}, "engines": engines}))
    return run


def test_a_regression_comes_first_after_the_baseline(tmp_path: Path) -> None:
    before = run_with(tmp_path / "before", {0: 0.5, 1: 0.6, 2: 0.7})
    after = run_with(tmp_path / "after", {0: 0.5, 1: 3.0, 2: 0.1}, vllm="0.32.0")
    found = compare(before.path, after.path)
    baseline, *points = found.changes
    assert baseline.point is None
    assert (baseline.ratio, baseline.verdict) == (1.0, "no change shown")
    assert [change.point for change in points] == [Run.point(1), Run.point(0), Run.point(2)]
    assert points[0].ratio == pytest.approx(5.0)
    assert [change.verdict for change in points] == ["worse", "no change shown", "better"]
    assert found.provenance == (("engines.version", "0.31.0", "0.32.0"),)


def test_more_is_better_where_it_is(tmp_path: Path) -> None:
    before = run_with(tmp_path / "before", {0: 1.0}, metric="output_throughput")
    after = run_with(tmp_path / "after", {0: 9.0, 1: 1.0}, metric="output_throughput")
    found = compare(before.path, after.path)
    assert found.changes[1].verdict == "better"
    assert found.only == (0, 1)


def test_mistakes_are_one_line_each(tmp_path: Path) -> None:
    before = run_with(tmp_path / "before", {0: 0.5})
    other = run_with(tmp_path / "other", {0: 0.5}, metric="output_throughput")
    empty = Run(tmp_path / "empty")
    with pytest.raises(UserError, match="its objective is maximize output_throughput"):
        compare(before.path, other.path)
    with pytest.raises(ChunksmithError, match="no measured point in common"):
        compare(before.path, empty.path)
    with pytest.raises(UserError, match="does not exist"):
        compare(before.path, tmp_path / "nothing")


SAMPLES = st.lists(st.floats(-1, 1), min_size=2, max_size=8)


@settings(max_examples=100)
@given(SAMPLES, SAMPLES, st.floats(0.5, 0.99))
def test_the_interval_is_welchs(first: list[float], second: list[float], level: float) -> None:
    a, b = np.asarray(first), np.asarray(second)
    if a.var() + b.var() < 1e-6:
        return
    low, high = _welch(a, b, float(b.mean() - a.mean()), level)
    known = stats.ttest_ind(b, a, equal_var=False).confidence_interval(level)
    assert np.log(low) == pytest.approx(known.low, rel=1e-6, abs=1e-9)
    assert np.log(high) == pytest.approx(known.high, rel=1e-6, abs=1e-9)
