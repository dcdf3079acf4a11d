"""The accuracy guard."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.analysis import check_accuracy
from tests.analysis.runs import answer_row

TOLERANCE = 0.05
NEAR, CLEAR = 0.04, 0.06


def rows(
    baseline: Sequence[Sequence[int]], candidate: Sequence[Sequence[int]], gap: float = CLEAR
) -> list[dict[str, Any]]:
    sides = (("baseline", baseline), ("candidate", candidate))
    return [answer_row(0, i, role, tokens, gap) for role, side in sides for i, tokens in enumerate(side)]


outputs = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), min_size=1, max_size=5)


@given(outputs)
def test_equal_tokens_pass(tokens: list[list[int]]) -> None:
    check = check_accuracy(rows(tokens, tokens), TOLERANCE)
    assert (check.passed, check.exact_match, check.compared, check.excused) == (True, 1.0, len(tokens), 0)
    assert check.reason is None


@given(outputs, st.data(), st.sampled_from([NEAR, TOLERANCE, CLEAR]))
def test_one_other_token_passes_only_at_a_near_tie(tokens: list[list[int]], data: st.DataObject, gap: float) -> None:
    request = data.draw(st.integers(0, len(tokens) - 1))
    position = data.draw(st.integers(0, len(tokens[request]) - 1))
    other = [list(output) for output in tokens]
    # Whatever follows the first difference is another text and does not count, its length included.
    other[request][position:] = [9, *data.draw(st.lists(st.integers(0, 9), max_size=3))]
    check = check_accuracy(rows(tokens, other, gap), TOLERANCE)
    assert check.passed == (gap < TOLERANCE)
    assert check.excused == (1 if gap < TOLERANCE else 0)
    assert check.exact_match == pytest.approx(1 - 1 / len(tokens))
    if gap >= TOLERANCE:
        assert check.reason is not None
        assert f"request {request}: token {position} differs" in check.reason


def test_only_the_gap_at_the_first_difference_counts() -> None:
    data = rows([[1, 2, 3, 4]], [[1, 2, 8, 9]])
    data[0]["top2_gaps"] = [CLEAR, CLEAR, NEAR, CLEAR]
    assert check_accuracy(data, TOLERANCE).passed
    data[0]["top2_gaps"] = [NEAR, NEAR, CLEAR, NEAR]
    assert not check_accuracy(data, TOLERANCE).passed


def test_the_gap_is_the_baselines() -> None:
    data = rows([[1, 2]], [[1, 3]])
    data[1]["top2_gaps"] = [NEAR, NEAR]
    assert not check_accuracy(data, TOLERANCE).passed


@pytest.mark.parametrize(("found", "expected"), [([1, 2], [1, 2, 3]), ([1, 2, 3], [1, 2])])
def test_an_output_that_is_cut_short_is_not_excused(found: list[int], expected: list[int]) -> None:
    check = check_accuracy(rows([expected], [found], NEAR), TOLERANCE)
    assert not check.passed
    assert check.reason == f"request 0: {len(found)} tokens instead of {len(expected)}, equal as far as they go"


@pytest.mark.parametrize("gaps", [None, [], [0.0], [0.0, math.nan]])
def test_a_gap_that_is_not_known_excuses_nothing(gaps: list[float] | None) -> None:
    data = rows([[1, 2]], [[1, 3]])
    data[0]["top2_gaps"] = gaps
    assert not check_accuracy(data, TOLERANCE).passed


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ([], "no accuracy run is recorded"),
        (rows([[1], [2]], [[1]]), "request 1 was not sent to the candidate"),
        (rows([[1]], [[1], [2]]), "request 1 was not sent to the baseline"),
        (rows([[]], [[]]), "request 0: the baseline gave no token"),
        (rows([[1]], [[1]]) + rows([], [[1]]), "request 0 of the candidate is recorded twice"),
        (rows([[1], [2], [3]], [[1], [8], [9]]), r"request 1: token 0 differs.* \(and 1 more\)"),
    ],
)
def test_what_was_not_compared_does_not_pass(data: list[dict[str, Any]], says: str) -> None:
    check = check_accuracy(data, TOLERANCE)
    assert not check.passed
    assert check.reason is not None
    with pytest.raises(ValueError, match=says):
        raise ValueError(check.reason)


@pytest.mark.parametrize("side", [0, 1])
def test_a_request_that_failed_does_not_pass(side: int) -> None:
    data = rows([[1]], [[1]])
    data[side]["error"] = "out of memory"
    check = check_accuracy(data, TOLERANCE)
    assert (check.passed, check.exact_match, check.compared) == (False, None, 0)
    assert check.reason == f"request 0: the {('baseline', 'candidate')[side]} failed: out of memory"
