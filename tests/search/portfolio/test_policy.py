from __future__ import annotations

import numpy as np
import pytest

from orchestrator.search.portfolio.policy import FLOOR, improvements, shares
from tests.search.portfolio.conftest import history

NAN = float("nan")


def test_an_improvement_beats_all_before_by_more_than_a_hair() -> None:
    found = history(list(range(6)), [4.0, 5.0, NAN, 2.0, 1.9999, 1.0])
    assert improvements(found).tolist() == [False, False, False, True, False, True]


def test_the_arm_that_improves_gets_more_and_each_keeps_a_share() -> None:
    arms = np.array([-1, 0, 1, 1, 2], dtype=np.int8)
    found = shares(history([0, 1, 2, 3, 4], [8.0, 9.0, 4.0, 2.0, 3.0], arms=arms), 4)
    assert found.sum() == pytest.approx(1.0)
    assert found[1] > 2 * found[0]
    assert found[0] == found[2] == found[3] > FLOOR


def test_no_arm_starves() -> None:
    arms = np.array([0] + [1] * 40, dtype=np.int8)
    found = shares(history(list(range(41)), [2.0**-trial for trial in range(41)], arms=arms), 4)
    assert found[0] >= FLOOR
    assert found[1] > 0.55


def test_an_old_improvement_counts_less() -> None:
    late = shares(history([0, 1, 2], [8.0, 9.0, 4.0], arms=np.array([0, 0, 1], dtype=np.int8)), 2)
    values = [8.0, 4.0] + [9.0] * 40
    arms = np.array([0, 1] + [0] * 40, dtype=np.int8)
    early = shares(history(list(range(42)), values, arms=arms), 2)
    assert late[1] > early[1] > 0.5


def test_without_a_history_all_arms_are_equal() -> None:
    assert shares(history([0], [1.0]), 4) == pytest.approx(np.full(4, 0.25))
    assert shares(history([0], [1.0]), 20) == pytest.approx(np.full(20, 0.05))
