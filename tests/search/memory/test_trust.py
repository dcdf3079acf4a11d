from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from orchestrator.search.memory.trust import kendall, trust

RANKING = np.array(range(12), dtype=float)


@given(st.permutations(list(range(9))))
def test_tau_is_kendalls(order: list[int]) -> None:
    ranks = np.array(order, dtype=float)
    assert kendall(RANKING[:9], ranks) == pytest.approx(float(kendalltau(RANKING[:9], ranks).statistic))


def test_agreement_earns_trust_and_contradiction_loses_it() -> None:
    unknown = trust(RANKING[:0], RANKING[:0])
    assert 0.4 < unknown < 0.7
    assert trust(RANKING, RANKING) > 0.95
    assert trust(-RANKING, RANKING) < 0.01
    constant = np.zeros(40)
    assert trust(constant, np.cumsum(np.ones(40))) < 0.25


def test_trust_grows_with_the_evidence() -> None:
    found = [trust(RANKING[:n], RANKING[:n]) for n in (2, 4, 8, 12)]
    assert found == sorted(found)
    assert [trust(-RANKING[:n], RANKING[:n]) for n in (2, 4, 8, 12)] == sorted(
        (trust(-RANKING[:n], RANKING[:n]) for n in (2, 4, 8, 12)), reverse=True
    )
