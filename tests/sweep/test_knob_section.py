from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrator.sweep.knob_section import KnobSection


def section(**content: Any) -> KnobSection:
    return KnobSection.model_validate({"scope": "engine", **content})


@given(low=st.integers(-50, 1000), span=st.integers(0, 500), step=st.integers(1, 60))
def test_a_range_holds_both_ends_that_its_step_reaches(low: int, span: int, step: int) -> None:
    knob = section(low=low, high=low + span, step=step)
    values = knob.all_values()
    assert knob.size() == len(values)
    assert values[0] == low
    assert all(isinstance(value, int) and low <= value <= low + span for value in values)
    assert [b - a for a, b in itertools.pairwise(values)] == [step] * (len(values) - 1)  # type: ignore[operator]
    assert low + span - values[-1] < step  # type: ignore[operator]


@given(low=st.integers(1, 1000), powers=st.integers(2, 9), exponent=st.integers(0, 12), rest=st.floats(0.0, 0.99))
def test_a_range_of_powers_grows_by_its_factor_up_to_its_high(
    low: int, powers: int, exponent: int, rest: float
) -> None:
    high = low * powers**exponent + int(rest * low * powers**exponent)
    expected = tuple(low * powers**power for power in range(exponent + 1))
    assert section(low=low, high=high, powers=powers).all_values() == expected
    if powers == 2:
        assert section(low=low, high=high, log2=True).all_values() == expected


@given(low=st.integers(0, 100), steps=st.integers(1, 400), step=st.sampled_from([0.05, 0.1, 0.01, 0.25, 1.5]))
def test_a_step_that_is_no_whole_number_gives_the_decimals_that_one_would_write(
    low: int, steps: int, step: float
) -> None:
    start = low / 100
    knob = section(low=start, high=start + steps * step, step=step)
    values = knob.all_values()
    assert knob.size() == len(values) == steps + 1
    assert all(value == float(f"{start + index * step:.10g}") for index, value in enumerate(values))


@given(low=st.floats(0.001, 10), factor=st.floats(1.01, 1000), count=st.integers(2, 30))
def test_a_count_spreads_evenly_and_by_an_equal_factor_with_log(low: float, factor: float, count: int) -> None:
    high = low * factor
    even = section(low=low, high=high, count=count).all_values()
    by_factor = section(low=low, high=high, count=count, log=True).all_values()
    for values in (even, by_factor):
        assert len(values) == count
        assert (values[0], values[-1]) == pytest.approx((low, high))
    numbers = [float(value) for value in even]  # type: ignore[arg-type]
    gaps = [b - a for a, b in itertools.pairwise(numbers)]
    assert gaps == pytest.approx([(high - low) / (count - 1)] * (count - 1), rel=1e-6)
    logs = [math.log(float(value)) for value in by_factor]  # type: ignore[arg-type]
    ratios = [b - a for a, b in itertools.pairwise(logs)]
    assert ratios == pytest.approx([math.log(factor) / (count - 1)] * (count - 1), rel=1e-4)


def test_a_count_between_whole_ends_gives_whole_numbers_each_once() -> None:
    assert section(low=1024, high=65_536, count=7, log=True).all_values() == tuple(2**power for power in range(10, 17))
    assert section(low=1, high=4, count=10).all_values() == (1, 2, 3, 4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({}, "give either values, or low and high"),
        ({"values": [1], "low": 1}, "give either values, or low and high"),
        ({"values": [1], "powers": 2}, "give either values, or low and high"),
        ({"values": [1, 1]}, "values holds one value twice"),
        ({"low": 2, "high": 1}, "low 2 is above high 1"),
        ({"low": 1, "high": 2, "step": 1, "log2": True}, "give either step or log2"),
        ({"low": 1, "high": 2, "powers": 3, "count": 2}, "give either powers or count"),
        ({"low": 1, "high": 2, "step": 0}, "step must be above 0, got 0"),
        ({"low": 1, "high": 2, "powers": 1}, "greater than or equal to 2"),
        ({"low": 1, "high": 2, "count": 1}, "greater than or equal to 2"),
        ({"low": 0.5, "high": 2}, "a range that is not of whole numbers needs step or count"),
        ({"low": 0, "high": 2, "log2": True}, "low must be at least 1 with log2, got 0"),
        ({"low": 0, "high": 2, "count": 3, "log": True}, "log needs count, and low above 0"),
        ({"low": 1, "high": 2, "log": True}, "log needs count, and low above 0"),
        ({"low": True, "high": 2}, "should be a number, got True"),
        ({"low": 1, "high": "2"}, "should be a number, got '2'"),
        ({"low": 1, "high": math.inf}, "should be a number, got inf"),
        ({"values": [1], "when": "import os"}, "'import os', column 1: is no expression"),
    ],
)
def test_a_knob_in_no_form_or_in_two_is_refused(content: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        section(**content)
    assert message in str(caught.value)
