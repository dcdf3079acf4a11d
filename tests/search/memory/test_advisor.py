from __future__ import annotations

import numpy as np
import pytest

from orchestrator.search.memory.advisor import HORIZON, Advisor
from orchestrator.search.memory.trust import trust
from tests.search.memory.conftest import alike, decoy, earlier, inverted
from tests.search.portfolio.conftest import GRID, POINTS, history, seconds

BEST = int(np.argmin([seconds(point) for point in GRID]))
SOME = [5, 20, 47, 80, 101, 130, 160, 183]
"""Points that another sampler chose."""


def measured(rows: list[int]) -> list[float]:
    return [seconds(GRID[row]) for row in rows]


def proposals(advisor: Advisor, trials: int = 24) -> list[int]:
    """What an advisor proposes in a study whose other trials are points in their order."""
    rows: list[int] = []
    own: list[int] = []
    others = (row for row in range(3, len(GRID), 4))
    for number in range(trials):
        row = advisor.propose(history(rows, measured(rows)), number)
        if row is not None:
            own.append(row)
        rows.append(row if row is not None else next(one for one in others if one not in rows))
    return own


def test_a_run_that_is_right_leads_to_the_best_point_at_once() -> None:
    advisor = Advisor(POINTS, [earlier(alike, every=2)], seed=0)
    assert BEST in proposals(advisor, trials=12)
    assert len(proposals(advisor)) >= 8


def test_a_run_that_is_wrong_is_dropped() -> None:
    advisor = Advisor(POINTS, [earlier(inverted)], seed=0)
    own = proposals(advisor, trials=40)
    assert len(own) <= 3
    assert advisor.trusts(history(SOME, measured(SOME))).tolist() == [0.0]


def test_a_run_that_is_right_about_bad_points_alone_has_no_say() -> None:
    advisor = Advisor(POINTS, [earlier(decoy)], seed=0)
    rows = [int(row) for row in np.random.default_rng(0).permutation(len(GRID))[:30]]
    overall = trust(np.array([decoy(GRID[row]) for row in rows]), np.array(measured(rows)))
    assert overall > 0.9
    assert advisor.trusts(history(rows, measured(rows))).tolist() == [0.0]


def test_of_two_runs_the_one_that_is_right_decides() -> None:
    advisor = Advisor(POINTS, [earlier(inverted), earlier(alike, every=2)], seed=0)
    wrong, right = advisor.trusts(history(SOME, measured(SOME)))
    assert wrong == 0.0
    assert right > 0.7
    assert BEST in proposals(advisor, trials=14)


def test_points_that_were_tried_or_run_are_not_proposed() -> None:
    advisor = Advisor(POINTS, [earlier(alike)], seed=0)
    pending = np.array([BEST], dtype=np.int32)
    for number in range(8, 40):
        row = advisor.propose(history(SOME, measured(SOME), pending=pending), number)
        assert row not in (*SOME, BEST)


def test_a_dear_point_waits() -> None:
    advisor = Advisor(POINTS, [earlier(alike)], seed=0)
    dear = np.where([point["backend"] == "b" for point in GRID], 50.0, 0.0)
    rows = [advisor.propose(history(SOME, measured(SOME)), number, dear) for number in range(8, 40)]
    assert {GRID[row]["backend"] for row in rows if row is not None} <= {"a", "c"}


def test_it_has_its_say_in_some_of_the_first_trials_and_in_none_after_its_horizon() -> None:
    advisor = Advisor(POINTS, [earlier(alike)], seed=0)
    spoke = [advisor.propose(history(SOME[:n], measured(SOME[:n])), n) is not None for n in range(8)]
    assert 1 <= sum(spoke) <= 3
    assert all(advisor.propose(history(SOME, measured(SOME)), HORIZON + n) is None for n in range(20))
    shares = [advisor.propose(history(SOME, measured(SOME)), n) is not None for n in range(8, 108)]
    assert sum(shares) == pytest.approx(60 * trust(np.cumsum(np.ones(8)), np.cumsum(np.ones(8))), abs=15)


def test_no_run_is_an_error() -> None:
    with pytest.raises(ValueError, match="no earlier run"):
        Advisor(POINTS, [], seed=0)
