from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.analysis.finalists import choose_finalists, non_dominated

RATIOS = st.dictionaries(st.integers(0, 40), st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=12)


def test_of_one_objective_the_best_come_first() -> None:
    ratios = {0: [0.9], 1: [0.7], 2: [0.7], 3: [0.8]}
    assert choose_finalists(ratios, ["minimize"], 3) == [1, 2, 3]
    assert choose_finalists(ratios, ["maximize"], 2) == [0, 3]
    assert choose_finalists(ratios, ["minimize"], 0) == []
    assert choose_finalists({}, ["minimize"], 3) == []


def test_of_several_those_that_none_dominates_come_first() -> None:
    ratios = {0: (0.5, 1.0), 1: (0.6, 1.1), 2: (0.7, 1.5), 3: (0.7, 1.4), 4: (0.4, 0.9)}
    directions = ["minimize", "maximize"]
    # 4, 0, 1 and 2 trade one for the other; 3 is as 2, but worse in the second.
    assert choose_finalists(ratios, directions, 4) == [4, 0, 1, 2]
    assert choose_finalists(ratios, directions, 5) == [4, 0, 1, 2, 3]


def test_a_front_that_does_not_fit_keeps_its_ends() -> None:
    ratios = {number: (float(number), float(-number)) for number in range(9)}
    assert choose_finalists(ratios, ["minimize", "minimize"], 3) == [0, 4, 8]
    assert choose_finalists(ratios, ["minimize", "minimize"], 1) == [0]


@given(ratios=RATIOS, count=st.integers(0, 12))
def test_no_finalist_is_dominated_by_one_that_is_left_out(ratios: dict[int, tuple[int, int]], count: int) -> None:
    chosen = choose_finalists(ratios, ["minimize", "minimize"], count)
    assert len(chosen) == len(set(chosen)) == min(count, len(ratios))
    front = non_dominated(ratios)
    assert set(chosen) <= set(front) or set(front) <= set(chosen)
    for number in front:
        own = ratios[number]
        assert not any(a <= own[0] and b <= own[1] and (a, b) != own for a, b in ratios.values())
