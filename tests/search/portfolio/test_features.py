from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.search.portfolio.features import MOST_LEVELS, Points, Value


def test_numbers_are_ordered_on_a_log_scale_from_a_ratio_of_eight() -> None:
    points = Points.of([{"rows": value} for value in (16, 2, 4, 8)])
    assert points.levels == ((2, 4, 8, 16),)
    assert points.coordinates[:, 0] == pytest.approx([1.0, 0.0, 1 / 3, 2 / 3])
    assert points.spans.tolist() == [3.0]
    assert Points.of([{"n": value} for value in (1, 2, 4)]).coordinates[:, 0] == pytest.approx([0.0, 1 / 3, 1.0])


def test_a_value_that_is_no_number_sits_in_the_middle() -> None:
    points = Points.of([{"rows": value} for value in (None, 1, 2, 3)])
    assert points.levels == ((1, 2, 3, None),)
    assert points.coordinates[:, 0] == pytest.approx([0.5, 0.0, 0.5, 1.0])
    assert points.is_ordered.tolist() == [True]
    assert points.is_nominal.tolist() == [True]


def test_switches_names_and_constants_have_no_order() -> None:
    points = Points.of([{"on": on, "kind": kind, "fixed": 7} for on in (False, True) for kind in ("a", "b", "c")])
    assert points.is_ordered.tolist() == [False, False, False]
    assert points.is_nominal.tolist() == [True, True, False]
    assert not points.coordinates.any()


def test_a_quantity_has_no_hamming_term() -> None:
    points = Points.of([{"share": step / 100} for step in range(MOST_LEVELS + 1)])
    assert points.is_ordered.tolist() == [True]
    assert points.is_nominal.tolist() == [False]


def test_one_and_true_are_two_values_and_one_is_one_point_zero() -> None:
    points = Points.of([{"x": 1}, {"x": True}])
    assert points.row_of({"x": 1.0}) == 0
    assert points.row_of({"x": True}) == 1
    assert points.row_of({"x": 2}) is None
    assert points.row_of({}) is None


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([], "no point"),
        ([{"a": 1}, {"b": 1}], "point 1 has the knobs"),
        ([{"a": 1}, {"a": 2}, {"a": 1.0}], "occurs twice"),
    ],
)
def test_lists_that_cannot_be_used(points: list[dict[str, Value]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Points.of(points)


VALUES = st.one_of(st.integers(-3, 3), st.booleans(), st.none(), st.sampled_from(["a", "b"]))


@given(st.lists(st.fixed_dictionaries({"a": VALUES, "b": VALUES, "c": st.integers(0, 2)}), min_size=1, max_size=30))
def test_every_point_is_found_again_and_neighbours_differ_in_one_knob(drawn: list[dict[str, Value]]) -> None:
    distinct = list(
        {tuple((name, type(point[name]), point[name]) for name in "abc"): point for point in drawn}.values()
    )
    points = Points.of(distinct)
    assert [points.row_of(point) for point in distinct] == list(range(len(distinct)))
    assert [points.point(row) for row in range(points.size)] == distinct
    distance = (points.codes != points.codes[0]).sum(axis=1)
    assert points.neighbours(0).tolist() == np.flatnonzero(distance == 1).tolist()
