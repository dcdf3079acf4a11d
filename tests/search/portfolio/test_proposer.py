from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from orchestrator.search.portfolio.costs import GroupCost, GroupCosts
from orchestrator.search.portfolio.failures import FailureModel
from orchestrator.search.portfolio.features import Points
from orchestrator.search.portfolio.history import History
from orchestrator.search.portfolio.proposer import ARMS, LIKELY, Proposer
from tests.search.portfolio.conftest import GRID, POINTS, history, seconds

NAN = float("nan")


def run(
    trials: int, *, seed: int = 0, value: Callable[[int], float] = lambda row: seconds(GRID[row]), fresh: bool = False
) -> History:
    """A study of so many trials; with ``fresh``, every proposal comes from a proposer that remembers nothing."""
    proposer = Proposer(POINTS, seed=seed)
    found = history([], [])
    for number in range(trials):
        if fresh:
            proposer = Proposer(POINTS, seed=seed)
        proposal = proposer.propose(found, number)
        arms = np.append(found.arms, -1 if proposal.arm is None else proposal.arm).astype(np.int8)
        rows = [*found.tried.tolist(), proposal.row]
        found = history(rows, [*found.values[:, 0].tolist(), value(proposal.row)], arms=arms)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_the_best_of_192_points_is_found_in_40(seed: int) -> None:
    found = run(40, seed=seed)
    assert found.values.min() == min(map(seconds, GRID))
    assert len(set(found.tried.tolist())) == 40
    assert set(found.arms.tolist()) == {-1, *range(len(ARMS))}


def test_a_proposer_that_remembers_nothing_proposes_the_same() -> None:
    assert run(45).tried.tolist() == run(45, fresh=True).tried.tolist()


def test_the_seed_decides() -> None:
    assert run(12, seed=1).tried.tolist() == run(12, seed=1).tried.tolist() != run(12, seed=2).tried.tolist()


def test_the_start_uses_every_level() -> None:
    found = run(8)
    assert (found.arms == -1).all()
    for k, levels in enumerate(POINTS.levels):
        if len(levels) <= 4:
            assert len(set(POINTS.codes[found.tried, k].tolist())) == len(levels)
    assert (run(9).arms[8:] >= 0).all()


def test_what_nearly_surely_fails_is_not_proposed_however_much_it_promises() -> None:
    def value(row: int) -> float:
        point = GRID[row]
        return NAN if point["backend"] == "b" else 100.0 * seconds(point)

    found, model = run(50, value=value), FailureModel(POINTS)
    for number in range(12, 50):
        failed = found.has_failed[:number].astype(float)
        assert model.probability(found.tried[:number], failed, found.tried[number : number + 1])[0] <= LIKELY


@pytest.mark.parametrize("seed", range(3))
def test_a_hidden_rule_is_kept_away_from(seed: int) -> None:
    def value(row: int) -> float:
        point = GRID[row]
        return NAN if point["backend"] == "b" and point["seqs"] in (24, 32) else seconds(point)

    found = run(60, seed=seed, value=value)
    assert found.has_failed[20:].sum() <= 4
    assert np.nanmin(found.values) == np.nanmin([value(row) for row in range(POINTS.size)])


def test_when_everything_fails_it_goes_on() -> None:
    found = run(40, value=lambda row: NAN)
    assert len(set(found.tried.tolist())) == 40


def test_every_point_once_then_again_but_not_those_that_failed() -> None:
    bad = set(range(0, POINTS.size, 7))
    rows = list(range(POINTS.size))
    values = [NAN if row in bad else seconds(GRID[row]) for row in rows]
    proposer = Proposer(POINTS, seed=0)
    assert proposer.propose(history(rows[:-1], values[:-1]), 191).row == POINTS.size - 1
    assert proposer.propose(history(rows, values), 192).row not in bad
    assert proposer.propose(history(rows, [NAN] * len(rows)), 192).row in rows


def test_points_that_are_being_measured_are_not_proposed() -> None:
    found = run(20)
    proposer = Proposer(POINTS, seed=0)
    pending: list[int] = []
    for number in range(20, 30):
        now = history(
            found.tried.tolist(),
            found.values[:, 0].tolist(),
            pending=np.array(pending, dtype=np.int32),
            arms=found.arms,
        )
        pending.append(proposer.propose(now, number).row)
    assert len(set(pending) | set(found.tried.tolist())) == 30


def test_a_dear_engine_start_is_put_off_and_a_cheap_one_is_not() -> None:
    def groups_left(start_s: float) -> int:
        costs = GroupCosts(POINTS, GroupCost(knobs=("backend",), start_s=start_s, trial_s=1.0))
        proposer, found, changes = Proposer(POINTS, seed=0), history([], []), 0
        for number in range(40):
            row = proposer.propose(found, number, costs.log_ratio(found.asked)).row
            if number and GRID[row]["backend"] != GRID[int(found.asked[-1])]["backend"]:
                changes += 1
            found = history([*found.tried.tolist(), row], [*found.values[:, 0].tolist(), seconds(GRID[row])])
        assert found.values.min() <= 1.05 * min(map(seconds, GRID))
        return changes

    assert groups_left(100.0) <= 8 < 12 <= groups_left(0.0)


def test_two_objectives_fill_the_front() -> None:
    def both(row: int) -> tuple[float, float]:
        point = GRID[row]
        rows, seqs = point["rows"], point["seqs"]
        assert isinstance(rows, int)
        assert isinstance(seqs, int)
        return (seconds(point), rows * seqs)

    everything = np.array([both(row) for row in range(POINTS.size)])
    minimise = np.array([True, True])
    truth = history(list(range(POINTS.size)), [0.0] * POINTS.size, values=everything, minimise=minimise)
    front = set(np.flatnonzero(truth.front).tolist())
    proposer, rows = Proposer(POINTS, seed=0), [0]
    for number in range(1, 50):
        now = history(rows, [0.0] * len(rows), values=everything[rows], minimise=minimise)
        rows.append(proposer.propose(now, number).row)
    assert len(front) <= 30
    assert len(front & set(rows)) >= 0.6 * len(front)


def test_a_start_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="start must be at least 2"):
        Proposer(POINTS, seed=0, start=1)


def test_less_and_less_is_to_be_gained() -> None:
    proposer, found = Proposer(POINTS, seed=0), run(40)
    gains = []
    for count in (4, 8, 20, 28):
        so_far = history(found.tried[:count].tolist(), found.values[:count, 0].tolist(), arms=found.arms[:count])
        gains.append(proposer.expected_gain(so_far))
    start, *later = gains
    assert start is None
    early, mid, late = (gain for gain in later if gain is not None)
    assert 1.0 > early > mid > late > 0.0
    assert early > 0.04
    assert mid < 0.001


def test_a_gain_is_a_share_of_the_best_value_whatever_its_unit() -> None:
    found = run(12)
    rows, values = found.tried.tolist(), found.values[:, 0]
    gain = Proposer(POINTS, seed=0).expected_gain(history(rows, values.tolist()))
    assert gain is not None
    assert Proposer(POINTS, seed=0).expected_gain(history(rows, (1000.0 * values).tolist())) == pytest.approx(gain)
    # Values that may be negative are not taken on the log scale.
    shifted = Proposer(POINTS, seed=0).expected_gain(history(rows, (values - 10.0).tolist()))
    assert shifted is not None
    assert 0.0 < shifted < 0.1


def test_nothing_is_to_be_gained_from_points_that_surely_fail() -> None:
    few = [point for point in GRID if point["seqs"] == 32 and point["backend"] != "c"]
    rows = [row for row, point in enumerate(few) if point["backend"] == "a"]
    bad = [row for row, point in enumerate(few) if point["backend"] == "b"][:-1]
    values = [seconds(few[row]) for row in rows]
    failing = history([*rows, *bad], [*values, *[NAN] * len(bad)])
    assert Proposer(Points.of(few), seed=0).expected_gain(failing) == 0.0
    hopeful = Proposer(Points.of(few), seed=0).expected_gain(history(rows, values))
    assert hopeful is not None
    assert hopeful > 0.0


def test_no_gain_is_told_of_several_objectives() -> None:
    several = history(list(range(12)), [1.0] * 12, values=np.ones((12, 2)), minimise=np.array([True, True]))
    assert Proposer(POINTS, seed=0).expected_gain(several) is None


def test_points_of_lost_trials_come_last() -> None:
    few = Points.of(GRID[:12])
    rows, values = list(range(2, 12)), [seconds(point) for point in GRID[2:12]]
    for lost in (0, 1):
        found = history(rows, values, asked=np.array([*rows, lost], dtype=np.int32))
        assert Proposer(few, seed=0).propose(found, 11).row == 1 - lost
    both = history(rows, values, asked=np.array([*rows, 0, 1], dtype=np.int32))
    assert Proposer(few, seed=0).propose(both, 12).row in (0, 1)
