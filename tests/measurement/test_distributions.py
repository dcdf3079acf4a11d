"""The distributions against SciPy's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from orchestrator.measurement.distributions import beta_cdf, f_tail, normal_cdf, t_quantile

SHAPE = st.floats(0.05, 5000)


@given(SHAPE, SHAPE, st.floats(0, 1))
def test_the_beta_function_is_scipys(a: float, b: float, x: float) -> None:
    assert beta_cdf(a, b, x) == pytest.approx(special.betainc(a, b, x), rel=1e-8, abs=1e-11)


@settings(max_examples=50)
@given(st.floats(0.3, 1e6), st.floats(0.001, 0.9999))
def test_the_t_quantile_is_scipys(dof: float, probability: float) -> None:
    expected = special.stdtrit(dof, probability)
    assert t_quantile(dof, probability) == pytest.approx(expected, rel=1e-7, abs=1e-9)


@given(st.integers(1, 20), st.integers(1, 500), st.floats(0, 1000))
def test_the_f_tail_is_scipys(added: int, left: int, x: float) -> None:
    assert f_tail(added, left, x) == pytest.approx(special.fdtrc(added, left, x), rel=1e-8, abs=1e-13)


def test_the_normal_distribution_is_scipys() -> None:
    x = np.linspace(-9, 9, 40).reshape(4, 10)
    np.testing.assert_allclose(normal_cdf(x), special.ndtr(x), rtol=1e-13)


def test_the_ends() -> None:
    assert (beta_cdf(2, 3, 0.0), beta_cdf(2, 3, 1.0)) == (0.0, 1.0)
    assert t_quantile(5, 0.5) == 0.0
    assert t_quantile(math.inf, 0.975) == pytest.approx(1.959963984540054)
    assert math.isnan(t_quantile(0, 0.975))
    with pytest.raises(ValueError, match="must be above 0"):
        beta_cdf(0, 1, 0.5)
