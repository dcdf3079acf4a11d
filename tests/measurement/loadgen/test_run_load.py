from __future__ import annotations

import gc
import itertools
import resource
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from orchestrator.engines import RequestTimeline
from orchestrator.errors import ChunksmithError
from orchestrator.measurement import block_metrics
from orchestrator.measurement.loadgen import LoadResult, Target, run_load
from orchestrator.measurement.loadgen.driver import Driver
from orchestrator.measurement.testing import MODEL, MockServer, MockSettings, Truth
from orchestrator.workloads import (
    AllAtOnce,
    ArrivalKind,
    ClosedLoop,
    ConstantRate,
    MultiTurn,
    PoissonArrivals,
    Prompt,
    Request,
    Schedule,
)

FAST = MockSettings(ttft_s=0.01, itl_s=0.002)


def requests(count: int, output_len: int = 4) -> list[Request]:
    return [Request(prompt=Prompt(token_ids=[10 + i, 20, 30], output_len=output_len)) for i in range(count)]


@pytest.fixture(scope="module")
def fast() -> Iterator[MockServer]:
    with MockServer(FAST) as server:
        yield server


def load(
    server: MockServer | MockSettings, sent: Sequence[Request], arrivals: ArrivalKind, **target: Any
) -> tuple[LoadResult, list[Truth]]:
    """Load a server that runs, or one of its own with faults; and what really happened."""
    if isinstance(server, MockSettings):
        with MockServer(server) as own:
            return load(own, sent, arrivals, **target)
    before = len(server.truth())
    result = run_load(
        Target(url=server.url, model=MODEL, **{"timeout_s": 30.0, **target}), sent, arrivals.schedule(sent, [1])
    )
    assert [timeline.index for timeline in result.requests] == list(range(len(sent)))
    return result, server.truth()[before:] if result.lost is None else []


def index(truth: Truth) -> int:
    return int(truth.request_id.rpartition("-")[2])


def well_ended(result: LoadResult) -> list[RequestTimeline]:
    return [timeline for timeline in result.requests if timeline.error is None]


@pytest.mark.parametrize("arrivals", [PoissonArrivals(rate=400.0), AllAtOnce(), ClosedLoop(concurrency=5)], ids=repr)
def test_every_request_is_sent_once_and_followed_to_its_end(fast: MockServer, arrivals: ArrivalKind) -> None:
    result, truth = load(fast, requests(60), arrivals)
    assert sorted(map(index, truth)) == list(range(60))
    assert result.failures == {}
    assert result.lost is None
    for timeline in result.requests:
        assert (timeline.prompt_tokens, timeline.output_tokens, timeline.cached_tokens) == (3, 4, 0)
        assert timeline.output_token_ids == [11, 12, 13, 14]
        assert len(timeline.token_times_s) == 4
        assert timeline.first_token_s == timeline.token_times_s[0]
        assert timeline.end_s == timeline.token_times_s[-1]
        assert timeline.token_times_s == sorted(timeline.token_times_s)
        assert 0 <= timeline.arrival_s <= timeline.send_s
        assert timeline.first_token_s >= timeline.send_s + FAST.ttft_s
        assert timeline.end_s <= result.duration_s
    assert result.slip is not None
    assert 0 <= result.slip.p50_s <= result.slip.p99_s <= result.slip.max_s


def test_a_request_arrives_when_the_schedule_says(fast: MockServer) -> None:
    arrivals = PoissonArrivals(rate=400.0)
    result, _ = load(fast, requests(40), arrivals)
    assert [t.arrival_s for t in result.requests] == pytest.approx(arrivals.schedule(requests(40), [1]).times_s)


@pytest.mark.parametrize("arrivals", [ConstantRate(rate=400.0), ClosedLoop(concurrency=3)], ids=repr)
def test_a_server_that_closes_after_each_answer_is_served_as_well(arrivals: ArrivalKind) -> None:
    settings = MockSettings(ttft_s=0.005, itl_s=0.0, keep_alive=False)
    result, truth = load(settings, requests(40), arrivals)
    assert result.failures == {}
    assert len(truth) == 40


def test_client_and_server_tell_the_same_story(fast: MockServer) -> None:
    """Both use one clock, so the server's times lie between the client's."""
    result, truth = load(fast, requests(40), PoissonArrivals(rate=400.0))
    by_index = {index(record): record for record in truth}
    # The client counts from the start of its block, at one unknown point of the common clock.
    starts = [by_index[t.index].arrival_s - t.send_s for t in result.requests]
    ends = [by_index[t.index].written_s[-1] - t.token_times_s[-1] for t in result.requests]
    assert max(ends) < min(starts)


def test_metrics_are_those_of_the_contract(fast: MockServer) -> None:
    result, _ = load(fast, requests(20), ConstantRate(rate=200.0))
    metrics = block_metrics(result.requests, result.duration_s)
    assert metrics["request_throughput"] == pytest.approx(20 / result.duration_s)
    median = metrics["median_ttft_ms"]
    assert median is not None
    assert median >= 10.0


def test_an_open_loop_waits_for_no_answer() -> None:
    result, truth = load(MockSettings(ttft_s=1.0, itl_s=0.0), requests(30), ConstantRate(rate=500.0))
    assert max(record.arrival_s for record in truth) < min(record.written_s[0] for record in truth)
    assert result.slip is not None
    assert result.slip.rate_error is not None


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_closed_loop_keeps_so_many_in_flight(fast: MockServer, concurrency: int) -> None:
    result, truth = load(fast, requests(20), ClosedLoop(concurrency=concurrency))
    changes = [(record.arrival_s, 1) for record in truth] + [(record.written_s[-1], -1) for record in truth]
    flying = most = 0
    for _, change in sorted(changes):
        flying += change
        most = max(most, flying)
    assert most == concurrency
    ends = {timeline.end_s for timeline in result.requests}
    arrivals = sorted(timeline.arrival_s for timeline in result.requests)
    assert arrivals[:concurrency] == [0.0] * concurrency
    assert set(arrivals[concurrency:]) <= ends
    assert result.slip is not None
    assert result.slip.rate_error is None


@pytest.mark.parametrize("arrivals", [AllAtOnce(), ClosedLoop(concurrency=2)], ids=repr)
def test_a_turn_follows_its_answer_and_its_pause(fast: MockServer, arrivals: ArrivalKind) -> None:
    value = {"conversations": 4, "turns": 3, "first_len": 6, "next_len": 3, "output_len": 2, "think_s": 0.02}
    sent = MultiTurn.model_validate(value).draw([0], vocab_size=100)
    result, truth = load(fast, sent, arrivals)
    assert len(truth) == 12
    assert result.failures == {}
    for request, timeline in zip(sent, result.requests, strict=True):
        if request.follows is not None:
            before = result.requests[request.follows].end_s
            assert before is not None
            assert timeline.arrival_s >= before + 0.02 - 1e-9
            assert timeline.send_s >= timeline.arrival_s


def test_a_conversation_ends_with_its_first_failure() -> None:
    value = {"conversations": 1, "turns": 4, "first_len": 6, "next_len": 3, "output_len": 2}
    sent = MultiTurn.model_validate(value).draw([0], vocab_size=100)
    result, truth = load(MockSettings(ttft_s=0.0, itl_s=0.0, refuse={1}), sent, AllAtOnce())
    assert [t.error and t.error.partition(":")[0] for t in result.requests] == [
        None,
        "http_503",
        "not_sent",
        "not_sent",
    ]
    assert len(truth) == 2


def test_what_was_not_sent_leaves_no_free_place_in_a_closed_loop() -> None:
    value = {"conversations": 12, "turns": 3, "first_len": 6, "next_len": 3, "output_len": 2}
    sent = MultiTurn.model_validate(value).draw([0], vocab_size=100)
    settings = MockSettings(ttft_s=0.01, itl_s=0.0, refuse={0, 1, 2, 3})
    result, truth = load(settings, sent, ClosedLoop(concurrency=1))
    assert result.failures == {"http_503": 4, "not_sent": 8}
    answered = [record for record in truth if record.written_s]
    for before, after in itertools.pairwise(answered):
        assert before.written_s[-1] <= after.arrival_s


FAULTS = {"refuse": "http_503", "drop": "disconnect", "short": "short", "stall": "timeout"}


@pytest.mark.parametrize("fault", FAULTS)
def test_failed_and_short_answers_are_counted_and_never_averaged_in(fault: str) -> None:
    settings = MockSettings(ttft_s=0.01, itl_s=0.0, **{fault: {2, 5}})  # type: ignore[arg-type]
    timeout = 0.3 if fault == "stall" else 30.0
    result, truth = load(settings, requests(10), ConstantRate(rate=200.0), timeout_s=timeout)
    assert result.failures == {FAULTS[fault]: 2}
    failed = {index(truth[2]), index(truth[5])}
    assert {timeline.index for timeline in result.requests if timeline.error} == failed
    assert all(timeline.end_s is None for timeline in result.requests if timeline.error)
    metrics = block_metrics(result.requests, result.duration_s)
    assert metrics["request_throughput"] == pytest.approx(8 / result.duration_s)


def test_a_slow_answer_is_a_good_answer() -> None:
    settings = MockSettings(ttft_s=0.01, itl_s=0.0, slow={0}, slow_s=0.2)
    result, truth = load(settings, requests(4), ConstantRate(rate=200.0))
    slow = result.requests[index(truth[0])]
    assert result.failures == {}
    assert slow.first_token_s is not None
    assert slow.first_token_s - slow.send_s >= 0.21


@pytest.mark.parametrize("arrivals", [ConstantRate(rate=200.0), ClosedLoop(concurrency=2), AllAtOnce()], ids=repr)
def test_a_server_that_dies_leaves_the_requests_that_did_finish(arrivals: ArrivalKind) -> None:
    result, _ = load(MockSettings(ttft_s=0.005, itl_s=0.0, die_at=12), requests(40), arrivals)
    assert result.lost is not None
    assert result.lost.startswith("the server is gone: ")
    assert len(well_ended(result)) <= 12
    assert set(result.failures) <= {"disconnect", "connect", "not_sent"}
    assert sum(result.failures.values()) + len(well_ended(result)) == 40
    if not isinstance(arrivals, AllAtOnce):
        assert well_ended(result)
        assert result.failures["not_sent"] > 0


def test_a_server_that_is_not_there_is_an_error() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        target = Target(url=f"http://127.0.0.1:{port}", model=MODEL)
        with pytest.raises(ChunksmithError, match=f"http://127.0.0.1:{port}: cannot be reached: Connection refused"):
            run_load(target, requests(1), Schedule(times_s=[0.0]))


def test_a_host_that_is_not_known_is_an_error() -> None:
    with pytest.raises(ChunksmithError, match=r"http://no-such-host\.invalid: cannot be reached: "):
        run_load(Target(url="http://no-such-host.invalid", model=MODEL), requests(1), Schedule(times_s=[0.0]))


def test_a_host_may_be_a_name_with_several_addresses(fast: MockServer) -> None:
    port = Target(url=fast.url, model=MODEL).address[1]
    target = Target(url=f"http://localhost:{port}", model=MODEL)
    assert run_load(target, requests(3), Schedule(times_s=[0.0] * 3)).failures == {}


def test_tokens_are_counted_by_ids_or_usage_and_never_by_chunks(fast: MockServer) -> None:
    usage_only, _ = load(fast, requests(2), AllAtOnce(), body={})
    assert [(t.output_tokens, t.output_token_ids) for t in usage_only.requests] == [(4, [])] * 2
    silent = MockSettings(ttft_s=0.0, itl_s=0.0, send_usage=False)
    ids_only, _ = load(silent, requests(2), AllAtOnce())
    assert [t.output_tokens for t in ids_only.requests] == [4, 4]
    neither, _ = load(silent, requests(2), AllAtOnce(), body={})
    assert neither.failures == {"bad_answer": 2}


def test_the_process_is_left_as_it_was(fast: MockServer) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    load(fast, requests(2), AllAtOnce())
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


def test_an_error_of_our_own_ends_the_block(fast: MockServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(driver: Driver) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(Driver, "_dispatch", broken)
    with pytest.raises(RuntimeError, match="planted"):
        load(fast, requests(3), ConstantRate(rate=100.0))


def test_many_more_requests_than_connections_at_first() -> None:
    result, truth = load(MockSettings(ttft_s=0.2, itl_s=0.0), requests(400, 1), PoissonArrivals(rate=1000.0))
    assert Counter(map(index, truth)) == Counter(range(400))
    assert result.failures == {}


@pytest.mark.parametrize("times", [[], [0.0, 0.0]])
def test_one_time_for_each_request(times: list[float]) -> None:
    with pytest.raises(ValueError, match="need one time for each"):
        run_load(Target(url="http://localhost", model=MODEL), requests(1), Schedule(times_s=times))
    with pytest.raises(ValueError, match="there is no request"):
        run_load(Target(url="http://localhost", model=MODEL), [], Schedule(times_s=times))
