"""A rule that ends a block of load early."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from orchestrator.measurement import Slo, StopHopeless, error_class
from orchestrator.measurement.loadgen import Target, run_load
from orchestrator.measurement.testing import MODEL, MockServer, MockSettings
from orchestrator.workloads import ArrivalKind, ClosedLoop, ConstantRate, MultiTurn, Prompt, Request

NEVER_ENDS = MockSettings(ttft_s=0.01, itl_s=0.0, stall=set(range(4, 1000)))


class Looks:
    """Remembers what it is told, and says stop at one of the looks."""

    def __init__(self, stop_at: int) -> None:
        self.stop_at = stop_at
        self.seen: list[tuple[list[float], list[float], list[float], float]] = []

    def __call__(
        self, send_s: Sequence[float], first_token_s: Sequence[float], end_s: Sequence[float], now_s: float
    ) -> str | None:
        self.seen.append((list(send_s), list(first_token_s), list(end_s), now_s))
        return "enough: seen" if len(self.seen) == self.stop_at else None


def requests(count: int) -> list[Request]:
    return [Request(prompt=Prompt(token_ids=[10 + i, 20], output_len=3)) for i in range(count)]


@pytest.mark.parametrize("arrivals", [ConstantRate(rate=10.0), ClosedLoop(concurrency=6)], ids=repr)
def test_a_rule_ends_the_block_and_cancels_what_is_under_way(arrivals: ArrivalKind) -> None:
    sent, rule = requests(60), Looks(stop_at=2)
    with MockServer(NEVER_ENDS) as server:
        result = run_load(Target(url=server.url, model=MODEL), sent, arrivals.schedule(sent, [1]), stop=rule)
    assert (result.stopped, result.lost) == ("enough: seen", None)
    assert len(rule.seen) == 2
    assert len(result.requests) == 60
    classes = [error_class(request) for request in result.requests]
    assert classes.count(None) == 4
    assert set(classes) == {None, "cancelled", "not_sent"}
    assert {one.error.partition(": ")[2] for one in result.requests if one.error} == {"the block was ended early"}
    # A cancelled request keeps the token that it had.
    assert any(one.token_times_s for one in result.requests if error_class(one) == "cancelled")
    assert all(one.end_s is None for one in result.requests if one.error)


def test_a_rule_is_told_what_is_known_and_nothing_that_is_to_come() -> None:
    sent, rule = requests(60), Looks(stop_at=2)
    with MockServer(NEVER_ENDS) as server:
        target = Target(url=server.url, model=MODEL)
        result = run_load(target, sent, ConstantRate(rate=10.0).schedule(sent, [1]), stop=rule)
    for sends, firsts, ends, now in rule.seen:
        assert 0 < len(sends) < 60
        assert len(firsts) == len(ends) == len(sends)
        assert max(sends) <= now
        assert sum(not math.isnan(end) for end in ends) == 4
        known = [(send, first) for send, first in zip(sends, firsts, strict=True) if not math.isnan(first)]
        assert all(send <= first <= now for send, first in known)
    told = rule.seen[-1][0]
    assert told == [one.send_s for one in result.requests if error_class(one) != "not_sent"]


def test_turns_behind_a_cancelled_one_say_that_the_block_was_ended() -> None:
    value = {"conversations": 3, "turns": 3, "first_len": 6, "next_len": 3, "output_len": 2}
    sent = MultiTurn.model_validate(value).draw([0], vocab_size=100)
    with MockServer(MockSettings(ttft_s=0.01, itl_s=0.0, stall={0, 1, 2})) as server:
        target = Target(url=server.url, model=MODEL)
        result = run_load(target, sent, ClosedLoop(concurrency=3).schedule(sent, [1]), stop=Looks(stop_at=1))
    assert {one.error for one in result.requests} == {
        "cancelled: the block was ended early",
        "not_sent: the block was ended early",
    }


def test_a_rule_that_says_nothing_changes_nothing() -> None:
    sent, rule = requests(30), Looks(stop_at=0)
    with MockServer(MockSettings(ttft_s=0.01, itl_s=0.0)) as server:
        target = Target(url=server.url, model=MODEL)
        result = run_load(target, sent, ConstantRate(rate=20.0).schedule(sent, [1]), stop=rule)
    assert (result.stopped, result.failures) == (None, {})
    assert rule.seen


def test_the_rule_of_the_rate_search_ends_a_hopeless_block() -> None:
    sent = requests(100)
    rule = StopHopeless(slo=Slo(ttft_ms=1.0, share=0.9), requests=100)
    with MockServer(MockSettings(ttft_s=0.3, itl_s=0.0)) as server:
        target = Target(url=server.url, model=MODEL)
        result = run_load(target, sent, ConstantRate(rate=30.0).schedule(sent, [1]), stop=rule)
    assert result.stopped is not None
    assert result.stopped.startswith("slo: ")
    assert result.failures["not_sent"] > 0


def test_an_error_in_a_rule_ends_the_block() -> None:
    def broken(
        send_s: Sequence[float], first_token_s: Sequence[float], end_s: Sequence[float], now_s: float
    ) -> str | None:
        raise RuntimeError("planted")

    sent = requests(60)
    schedule = ConstantRate(rate=10.0).schedule(sent, [1])
    with MockServer(NEVER_ENDS) as server:
        target = Target(url=server.url, model=MODEL)
        with pytest.raises(RuntimeError, match="planted"):
            run_load(target, sent, schedule, stop=broken)
