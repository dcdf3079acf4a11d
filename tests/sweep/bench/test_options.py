from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import UserError
from orchestrator.measurement import Slo
from orchestrator.sweep.bench.options import SLO_METRICS, choose_load, parse_body, parse_rates, parse_slo
from orchestrator.workloads import AllAtOnce, ArrivalKind, ClosedLoop, ConstantRate, GammaArrivals, PoissonArrivals

limits = st.dictionaries(st.sampled_from(SLO_METRICS), st.floats(0.001, 1e6), min_size=1)


@given(limits, st.booleans(), st.none() | st.floats(0.01, 1.0))
def test_an_slo_is_read_as_it_was_written(given_limits: dict[str, float], by_comma: bool, share: float | None) -> None:
    parts = [f"{name}:{limit!r}" for name, limit in given_limits.items()]
    slo = parse_slo([",".join(parts)] if by_comma else parts, share, None)
    assert slo is not None
    assert {name: getattr(slo, f"{name}_ms") for name in SLO_METRICS} == {
        name: given_limits.get(name) for name in SLO_METRICS
    }
    assert slo.share == (0.99 if share is None else share)


def test_limits_replace_those_of_the_spec_and_leave_its_share() -> None:
    before = Slo(ttft_ms=100.0, e2el_ms=900.0, share=0.9)
    assert parse_slo([], None, before) == before
    assert parse_slo([], 0.5, before) == Slo(ttft_ms=100.0, e2el_ms=900.0, share=0.5)
    assert parse_slo(["tpot:7"], None, before) == Slo(tpot_ms=7.0, share=0.9)
    assert parse_slo([], None, None) is None


@pytest.mark.parametrize(
    ("texts", "share", "line"),
    [
        (["tfft:3"], None, "--slo: unknown metric 'tfft'; did you mean 'ttft'? Allowed: e2el, tpot, ttft."),
        (["ttft"], None, "--slo: must be METRIC:MILLISECONDS, for instance ttft:500,tpot:50; got 'ttft'"),
        (["ttft:soon"], None, "--slo: ttft: must be milliseconds above 0, got 'soon'"),
        (["ttft:0"], None, "--slo: ttft: must be milliseconds above 0, got '0'"),
        (["ttft:nan"], None, "--slo: ttft: must be milliseconds above 0, got 'nan'"),
        (["ttft:1,ttft:2"], None, "--slo: ttft is given twice"),
        ([""], None, "--slo: must be METRIC:MILLISECONDS, for instance ttft:500,tpot:50; got ''"),
        (["ttft:1"], 0.0, "--slo-share: must be above 0 and at most 1, got 0"),
        (["ttft:1"], math.nan, "--slo-share: must be above 0 and at most 1, got nan"),
        ([], 0.5, "--slo-share: needs an SLO; give --slo, for instance --slo ttft:500"),
    ],
)
def test_a_mistake_in_an_slo_is_one_line(texts: list[str], share: float | None, line: str) -> None:
    with pytest.raises(UserError) as error:
        parse_slo(texts, share, None)
    assert str(error.value) == line


@given(st.floats(0.01, 1e4), st.floats(0.01, 1e4))
def test_two_rates_are_read_in_their_order_alone(first: float, last: float) -> None:
    text = f"{first!r}:{last!r}"
    if first < last:
        assert parse_rates(text) == (first, last)
    else:
        with pytest.raises(UserError, match=r"--find-rate: low .* must be below high "):
            parse_rates(text)


@pytest.mark.parametrize("text", ["4", "0:4", "-1:4", "1:inf", "a:4", ":4", "1:2:3", "nan:4"])
def test_rates_that_are_none(text: str) -> None:
    with pytest.raises(UserError, match=r"^--find-rate: "):
        parse_rates(text)


@pytest.mark.parametrize(
    ("given_load", "rate", "concurrency", "expected"),
    [
        (None, 4.0, None, PoissonArrivals(rate=4.0)),
        (None, math.inf, None, AllAtOnce()),
        (None, None, 3, ClosedLoop(concurrency=3)),
        (ClosedLoop(concurrency=1), 4.0, None, PoissonArrivals(rate=4.0)),
        (ConstantRate(rate=1.0), 4.0, None, ConstantRate(rate=4.0)),
        (GammaArrivals(rate=1.0, burstiness=0.5), 4.0, None, GammaArrivals(rate=4.0, burstiness=0.5)),
        (ConstantRate(rate=1.0), None, 3, ClosedLoop(concurrency=3)),
        (ConstantRate(rate=1.0), None, None, ConstantRate(rate=1.0)),
    ],
)
def test_a_rate_keeps_the_kind_of_the_load(
    given_load: ArrivalKind | None, rate: float | None, concurrency: int | None, expected: ArrivalKind
) -> None:
    assert choose_load(given_load, rate, concurrency) == expected


@pytest.mark.parametrize(
    ("rate", "concurrency", "line"),
    [
        (0.0, None, "--rate: must be above 0 requests per second, got 0"),
        (-2.0, None, "--rate: must be above 0 requests per second, got -2"),
        (math.nan, None, "--rate: must be above 0 requests per second, got nan"),
        (None, 0, "--concurrency: must be 1 or more, got 0"),
        (1.0, 1, "--rate: cannot go with --concurrency; give one of them"),
        (None, None, "--rate: is missing; without a spec give --rate or --concurrency"),
    ],
)
def test_a_mistake_in_a_load_is_one_line(rate: float | None, concurrency: int | None, line: str) -> None:
    with pytest.raises(UserError) as error:
        choose_load(None, rate, concurrency)
    assert str(error.value) == line


def test_a_body_is_an_object() -> None:
    assert parse_body('{"ignore_eos": true}') == {"ignore_eos": True}
    with pytest.raises(UserError, match=r"^--body: must be a JSON object, got '\[1\]'$"):
        parse_body("[1]")
    with pytest.raises(UserError, match=r"^--body: not JSON: "):
        parse_body("{")
