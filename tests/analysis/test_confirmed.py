"""The pairs of a confirmation, and how many starts of the engines they are of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.analysis.confirmed import Pair, ratio_of


def pairs(*engines: str) -> list[Pair]:
    """One pair for each word: the letters of the candidate's engine and of the baseline's."""
    return [Pair(0.9 + number / 100, 1.0, (one[0], one[1])) for number, one in enumerate(engines)]


@pytest.mark.parametrize(
    ("engines", "starts"),
    [
        ("aa aa aa", 1),
        ("ab ab ab", 1),
        ("ab ab cd cd ef", 3),
        # One engine at a time takes turns with another: AB, BA, AB. Each serves two pairs.
        ("ba bc dc", 1),
        # And so within a start, where two do not fit as was thought.
        ("ba bc ed ef", 2),
        ("ab cd cb", 1),
    ],
)
def test_pairs_that_share_an_engine_are_of_one_start(engines: str, starts: int) -> None:
    found = ratio_of(pairs(*engines.split()))
    assert (found.pairs, found.starts) == (len(engines.split()), starts)
    assert found.dof == (found.pairs if starts == 1 else starts) - 1


@given(st.lists(st.text("abcdefgh", min_size=2, max_size=2), min_size=1, max_size=12))
def test_the_order_of_the_pairs_does_not_matter(engines: list[str]) -> None:
    found, turned = ratio_of(pairs(*engines)), ratio_of(pairs(*engines)[::-1])
    assert turned.starts == found.starts
    assert turned.ratio == pytest.approx(found.ratio)
