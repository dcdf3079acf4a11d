from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from orchestrator.workloads import FixedLength, Length, LengthKind, LognormalLength, UniformLength, ZipfLength

section: TypeAdapter[LengthKind] = TypeAdapter(Length)


@st.composite
def length_kinds(draw: st.DrawFn) -> LengthKind:
    low = draw(st.integers(1, 5000))
    high = draw(st.integers(low, low + 5000))
    spread = draw(st.floats(0.01, 5.0))
    median = draw(st.integers(low, high))
    return draw(
        st.sampled_from(
            [
                FixedLength(tokens=low),
                UniformLength(low=low, high=high),
                LognormalLength(low=low, high=high, median=median, sigma=spread),
                ZipfLength(low=low, high=high, alpha=spread),
            ]
        )
    )


@given(length_kinds(), st.integers(0, 2**32))
def test_lengths_are_whole_numbers_within_the_bounds(kind: LengthKind, seed: int) -> None:
    lengths = kind.draw(50, np.random.default_rng(seed))
    low = kind.tokens if isinstance(kind, FixedLength) else kind.low  # type: ignore[attr-defined]
    assert len(lengths) == 50
    assert all(type(length) is int and low <= length <= kind.longest for length in lengths)


@given(length_kinds())
def test_a_section_survives_the_way_through_a_file(kind: LengthKind) -> None:
    assert section.validate_python(kind.model_dump()) == kind


def test_both_bounds_are_drawn() -> None:
    rng = np.random.default_rng(0)
    assert set(UniformLength(low=3, high=5).draw(200, rng)) == {3, 4, 5}
    assert set(ZipfLength(low=3, high=5, alpha=1.0).draw(200, rng)) == {3, 4, 5}
    assert set(LognormalLength(low=3, high=5, median=4, sigma=1.0).draw(200, rng)) == {3, 4, 5}


def test_zipf_follows_its_power_law() -> None:
    lengths = np.array(ZipfLength(low=10, high=1009, alpha=1.2).draw(100_000, np.random.default_rng(1)))
    weights = np.arange(1, 1001) ** -1.2
    for rank in (1, 2, 10):
        expected = weights[rank - 1] / weights.sum()
        assert np.mean(lengths == 9 + rank) == pytest.approx(expected, rel=0.1)


def test_lognormal_has_its_median_and_spread() -> None:
    kind = LognormalLength(low=1, high=1_000_000, median=500, sigma=0.5)
    logs = np.log(kind.draw(50_000, np.random.default_rng(2)))
    assert np.median(logs) == pytest.approx(np.log(500), abs=0.02)
    assert np.std(logs) == pytest.approx(0.5, abs=0.02)


def test_lognormal_heaps_nothing_up_at_its_bounds() -> None:
    lengths = LognormalLength(low=400, high=600, median=500, sigma=2.0).draw(20_000, np.random.default_rng(3))
    # Nearly even between bounds so close together: one length in 201.
    assert lengths.count(600) / len(lengths) < 0.01
    assert lengths.count(400) / len(lengths) < 0.01


def test_a_number_is_a_fixed_length() -> None:
    assert section.validate_python(7) == FixedLength(tokens=7)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"kind": "fixed", "tokens": 0}, "greater than or equal to 1"),
        ({"kind": "fixed", "tokens": 2.5}, "valid integer"),
        ({"kind": "fixed", "tokens": 5, "low": 1}, "Extra inputs"),
        ({"kind": "uniform", "low": 6, "high": 5}, "low 6 is above high 5"),
        ({"kind": "zipf", "low": 1, "high": 5, "alpha": -1.0}, "greater than 0"),
        ({"kind": "lognormal", "low": 1, "high": 5, "median": 9, "sigma": 1.0}, "median 9 is not between"),
        ({"kind": "normal", "low": 1}, "does not match any of the expected tags"),
        (True, "valid dictionary"),
        (0, "greater than or equal to 1"),
    ],
)
def test_a_wrong_section_is_refused(value: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        section.validate_python(value)
