"""The conformance suite of the engine contract, for pytest: every engine passes it.

Subclass ``EngineConformance`` in a test file, name the class ``Test...`` and say how an engine is made::

    class TestMyEngine(EngineConformance):
        @classmethod
    def make_engine(cls):
            return MyEngine()

        @classmethod
    def config(cls):
            return EngineConfig(model="some-model", args={"max_num_batched_tokens": 256, ...})

Two engines are started: one that all tests share, and one that is aborted while it serves. Needs pytest.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from orchestrator.engines.contract import (
    BlockResult,
    Engine,
    EngineConfig,
    EngineError,
    EngineInfo,
    InForce,
    KnobValue,
    RequestTimeline,
)
from orchestrator.engines.live import LIVE_KNOBS
from orchestrator.workloads import Request, Schedule, random_requests

ONE_AT_A_TIME = Schedule(concurrency=1)
ABORT_TIMEOUT_S = 60.0
"""How long a block may take to end after its engine was aborted."""


@dataclass(frozen=True, kw_only=True)
class Started:
    """A started engine, what it was started with and what it said."""

    engine: Engine
    config: EngineConfig
    info: EngineInfo


class EngineConformance:
    """Subclass it; give ``make_engine`` and ``config``.

    Attributes:
        prompt_tokens: Length of the longest prompts of the suite. It needs at least three scheduler steps under the
            configuration's ``max_num_batched_tokens`` for the workspace path to be entered.
        live_values: One allowed value for each live knob that the engine has, other than its value at start.
    """

    prompt_tokens: int = 600
    live_values: Mapping[str, int] = {
        "mla_workspace_rows": 64,
        "prefill_chunk_size": 2,
        "prefill_area_limit": 512,
        "max_num_batched_tokens": 64,
        "max_num_seqs": 1,
        "long_prefill_token_threshold": 48,
    }

    @classmethod
    def make_engine(cls) -> Engine:
        """A new engine that has not started."""
        raise NotImplementedError

    @classmethod
    def config(cls) -> EngineConfig:
        """What the shared engine starts with. ``max_num_seqs`` should be 4 or more."""
        raise NotImplementedError

    @classmethod
    def spare_config(cls) -> EngineConfig:
        """What the engine starts with that is aborted."""
        return cls.config()

    @classmethod
    def leftovers(cls, engine: Engine) -> Collection[object]:  # noqa: ARG003 (for those that override it)
        """What a stopped engine has left running, for instance its processes; empty when it left nothing."""
        return ()

    @classmethod
    def wait_until_serving(cls, engine: Engine) -> None:  # noqa: ARG003 (for those that override it)
        """Return once the block that another thread began is being served; at once when that cannot be seen."""
        return

    @pytest.fixture(scope="class")
    @classmethod
    def started(cls) -> Iterator[Started]:
        """The shared engine. When the tests are done it is stopped twice, and must be gone then."""
        started = cls._start(cls.config())
        try:
            yield started
        finally:
            started.engine.stop()
        started.engine.stop()
        cls._require_gone(started.engine)

    @pytest.fixture
    def spare(self) -> Iterator[Started]:
        """An engine that a test may break."""
        started = self._start(self.spare_config())
        try:
            yield started
        finally:
            started.engine.stop()

    def test_an_engine_that_never_started_can_be_stopped(self) -> None:
        engine = self.make_engine()
        engine.stop()
        engine.stop()
        with pytest.raises(EngineError):
            engine.run([], ONE_AT_A_TIME)

    def test_start_tells_what_runs(self, started: Started) -> None:
        check_info(started)

    def test_one_timeline_for_each_prompt_in_order(self, started: Started) -> None:
        lengths = [self.prompt_tokens // share for share in (1, 4, 2)]
        requests = [
            request
            for number, length in enumerate(lengths)
            for request in _requests(started, 1, length, output_len=4 + number, seed=number)
        ]
        block = started.engine.run(requests, Schedule())
        check_timelines(requests, block)

    def test_counters_are_of_one_block(self, started: Started) -> None:
        long, short = (_requests(started, count, self.prompt_tokens, seed=count) for count in (3, 1))
        first = started.engine.run(long, ONE_AT_A_TIME).counters
        second = started.engine.run(short, ONE_AT_A_TIME).counters
        assert 0 < second.scheduler_steps < first.scheduler_steps
        assert 0 < second.max_running_requests <= 1
        for name in ("context_chunks", "workspace_entries", "area_plans"):
            before, now = getattr(first, name), getattr(second, name)
            assert now < before or before == now == 0, name

    def test_counted_maxima_are_of_one_block(self, started: Started) -> None:
        tokens = self.prompt_tokens // 20
        started.engine.run(_requests(started, 4, self.prompt_tokens, seed=1), Schedule())
        counters = started.engine.run(_requests(started, 1, tokens, seed=2), ONE_AT_A_TIME).counters
        assert (counters.max_step_tokens, counters.max_running_requests) == (tokens, 1)

    def test_prefills_that_the_threshold_cuts_are_counted(self, started: Started) -> None:
        knob, requests = "long_prefill_token_threshold", _requests(started, 3, self.prompt_tokens, seed=4)
        started.engine.retune({knob: 0})
        assert started.engine.run(requests, Schedule()).counters.long_prefill_cuts == 0
        started.engine.retune({knob: self.live_values[knob]})
        assert started.engine.run(requests, Schedule()).counters.long_prefill_cuts > 0
        started.engine.retune({})

    def test_gaps_of_the_best_two_tokens_only_when_asked_for(self, started: Started) -> None:
        requests = _requests(started, 2, self.prompt_tokens // 4, output_len=5)
        for request in started.engine.run(requests, Schedule(), top2=True).requests:
            assert request.top2_gaps is not None
            assert len(request.top2_gaps) == request.output_tokens == 5
            assert all(gap >= 0 for gap in request.top2_gaps)
        assert all(request.top2_gaps is None for request in started.engine.run(requests, Schedule()).requests)

    def test_equal_prompts_give_equal_greedy_tokens(self, started: Started) -> None:
        requests = _requests(started, 3, self.prompt_tokens // 2, output_len=8)
        first, second = (started.engine.run(requests, ONE_AT_A_TIME) for _ in range(2))
        tokens = [list(request.output_token_ids) for request in first.requests]
        assert tokens == [list(request.output_token_ids) for request in second.requests]
        assert len({tuple(output) for output in tokens}) > 1, "other requests should give other tokens"

    @pytest.mark.parametrize("concurrency", [1, 2])
    def test_no_more_requests_in_flight_than_the_load_says(self, started: Started, concurrency: int) -> None:
        requests = _requests(started, 5, self.prompt_tokens // 4, output_len=3)
        block = started.engine.run(requests, Schedule(concurrency=concurrency))
        assert most_in_flight(block.requests) == concurrency

    def test_without_a_bound_all_requests_are_sent_at_once(self, started: Started) -> None:
        block = started.engine.run(_requests(started, 5, self.prompt_tokens // 4), Schedule())
        assert most_in_flight(block.requests) == 5

    def test_an_open_loop_sends_each_request_at_its_time(self, started: Started) -> None:
        requests = _requests(started, 4, self.prompt_tokens // 4)
        times = [0.3, 0.0, 0.2, 0.2]
        block = started.engine.run(requests, Schedule(times_s=times))
        check_timelines(requests, block)
        assert [request.arrival_s for request in block.requests] == times

    def test_a_request_that_follows_another_waits_for_its_end(self, started: Started) -> None:
        first, second, third = _requests(started, 3, self.prompt_tokens // 4)
        requests = [first, dataclasses.replace(second, follows=0, think_s=0.1), dataclasses.replace(third, follows=1)]
        for schedule in (Schedule(), Schedule(concurrency=1)):
            block = started.engine.run(requests, schedule)
            check_timelines(requests, block)
            ends = [request.end_s or 0.0 for request in block.requests]
            assert block.requests[1].arrival_s >= ends[0] + 0.1 - 1e-9
            assert block.requests[2].arrival_s >= ends[1]

    def test_a_rule_can_end_a_block_early(self, started: Started) -> None:
        requests = _requests(started, 3, self.prompt_tokens // 4)
        # The last is due long after the rule is asked for the first time.
        block = started.engine.run(requests, Schedule(times_s=[0.0, 0.0, 60.0]), stop=stop_at_once)
        assert block.stopped == "enough"
        assert block.duration_s < 30
        assert [request.error for request in block.requests[:2]] == [None, None]
        assert (block.requests[2].error or "").startswith("not_sent")
        assert started.engine.run(requests, Schedule()).stopped is None

    def test_a_live_knob_goes_into_force_and_back(self, started: Started, subtests: pytest.Subtests) -> None:
        requests = _requests(started, 1, self.prompt_tokens)
        start = started.info.in_force
        for knob, value in self.live_values.items():
            with subtests.test(knob=knob):
                assert started.engine.retune({knob: value}) >= 0
                expected = expected_force(started, {knob: value})
                assert started.engine.run(requests, ONE_AT_A_TIME).in_force == expected != start
                started.engine.retune({})
                assert started.engine.run(requests, ONE_AT_A_TIME).in_force == start

    def test_a_knob_that_is_left_out_or_none_returns_to_its_start_value(self, started: Started) -> None:
        requests = _requests(started, 1, self.prompt_tokens)
        first, *others = self.live_values
        started.engine.retune(self.live_values)
        assert started.engine.run(requests, ONE_AT_A_TIME).in_force == expected_force(started, self.live_values)
        started.engine.retune({first: self.live_values[first]} | dict.fromkeys(others))
        expected = expected_force(started, {first: self.live_values[first]})
        assert started.engine.run(requests, ONE_AT_A_TIME).in_force == expected
        started.engine.retune({})

    def test_a_wrong_live_value_is_refused_and_changes_nothing(
        self, started: Started, subtests: pytest.Subtests
    ) -> None:
        requests = _requests(started, 1, self.prompt_tokens)
        started.engine.retune(self.live_values)
        before = started.engine.run(requests, ONE_AT_A_TIME).in_force
        for wrong in wrong_values(self.live_values, started.info.in_force):
            with subtests.test(wrong=wrong):
                with pytest.raises(ValueError, match=next(iter(wrong))):
                    # The good values beside it must not go into force either.
                    started.engine.retune(wrong)
                assert started.engine.run(requests, ONE_AT_A_TIME).in_force == before
        started.engine.retune({})

    def test_a_request_that_is_too_long_fails_alone(self, started: Started) -> None:
        good = _requests(started, 2, self.prompt_tokens // 4)
        (too_long,) = _requests(started, 1, started.info.max_model_len + 1)
        requests = [good[0], too_long, good[1]]
        block = started.engine.run(requests, ONE_AT_A_TIME)
        failed = block.requests[1]
        assert failed.error
        assert (failed.output_tokens, failed.end_s, list(failed.output_token_ids)) == (0, None, [])
        check_timelines(good, dataclasses.replace(block, requests=[block.requests[0], block.requests[2]]), [0, 2])

    def test_abort_ends_a_running_block_and_frees_the_engine(self, spare: Started) -> None:
        check_info(spare)
        spare.engine.retune(self.live_values)
        spare.engine.retune({})
        one = _requests(spare, 1, self.prompt_tokens)
        assert spare.engine.run(one, ONE_AT_A_TIME).in_force == spare.info.in_force
        requests = _requests(spare, 8, self.prompt_tokens, output_len=64)
        ended: list[BlockResult | EngineError] = []

        def serve() -> None:
            try:
                ended.append(spare.engine.run(requests, ONE_AT_A_TIME))
            except EngineError as error:
                ended.append(error)

        serving = threading.Thread(target=serve)
        serving.start()
        self.wait_until_serving(spare.engine)
        spare.engine.abort()
        serving.join(ABORT_TIMEOUT_S)
        assert not serving.is_alive(), "the block goes on"
        assert isinstance(ended[0], BlockResult) or ended[0].lost
        self._require_gone(spare.engine)
        spare.engine.abort()
        spare.engine.stop()

    @classmethod
    def _start(cls, config: EngineConfig) -> Started:
        engine = cls.make_engine()
        return Started(engine=engine, config=config, info=engine.start(config))

    @classmethod
    def _require_gone(cls, engine: Engine) -> None:
        assert not cls.leftovers(engine)
        with pytest.raises(EngineError) as gone:
            engine.run([], ONE_AT_A_TIME)
        assert gone.value.lost
        with pytest.raises(EngineError):
            engine.retune({})


def check_info(started: Started) -> None:
    """The information of a start is complete, and what the configuration asked for is in force."""
    info, args, plugin = started.info, started.config.args, started.config.plugin
    for text in (info.engine_id, info.kind, info.version, info.host, info.log_path):
        assert text
    assert min(info.vocab_size, info.max_model_len, info.block_size, info.dcp, info.interleave) >= 1
    assert info.start_s > 0
    assert info.resolved
    assert info.max_model_len == args.get("max_model_len", info.max_model_len)
    force = info.in_force
    for knob in ("max_num_batched_tokens", "max_num_seqs", "long_prefill_token_threshold"):
        assert getattr(force, knob) == args.get(knob, getattr(force, knob)), knob
    assert force.prefill_area_limit == plugin.prefill_area_limit
    assert plugin.prefill_chunk_size in (None, force.prefill_chunk_size)
    assert force.cpu_chunked_prefill == plugin.cpu_chunked_prefill
    assert force.disagreement is None
    if force.workspace_rows is not None:
        assert force.workspace_rows == _rows(info, plugin.mla_workspace_rows, force.max_num_seqs)
        assert force.workspace_bytes
        assert force.workspace_bytes % force.workspace_rows == 0
        assert force.builders


def check_timelines(requests: Sequence[Request], block: BlockResult, indices: Sequence[int] | None = None) -> None:
    """One timeline for each request in order, all served in full, with times that only grow."""
    assert block.started_at.tzinfo is not None
    assert len(block.requests) == len(requests)
    for index, asked, request in zip(indices or range(len(requests)), requests, block.requests, strict=True):
        assert request.error is None
        assert (request.index, request.prompt_tokens) == (index, len(asked.prompt.token_ids))
        assert request.output_tokens == len(request.output_token_ids) == asked.prompt.output_len
        assert request.first_token_s is not None
        assert request.end_s is not None
        assert request.token_times_s[0] == request.first_token_s
        assert request.token_times_s[-1] == request.end_s
        assert len(request.token_times_s) <= request.output_tokens
        times = [0.0, request.arrival_s, request.send_s, *request.token_times_s, block.duration_s]
        assert times == sorted(times)
        assert request.send_s < request.first_token_s


def stop_at_once(
    send_s: Sequence[float], first_token_s: Sequence[float], end_s: Sequence[float], now_s: float
) -> str | None:
    """A ``StopRule`` that ends a block once two requests have ended."""
    assert len(send_s) == len(first_token_s) == len(end_s)
    assert max(send_s) <= now_s
    return "enough" if sum(end == end for end in end_s) >= 2 else None


def most_in_flight(requests: Sequence[RequestTimeline]) -> int:
    """The largest number of requests that were sent and had not ended, at any time."""
    events = []
    for request in requests:
        assert request.end_s is not None
        # At equal times the end comes first: it is what released the next request.
        events += [(request.send_s, 1), (request.end_s, -1)]
    running = most = 0
    for _, change in sorted(events):
        running += change
        most = max(most, running)
    return most


def expected_force(started: Started, live: Mapping[str, int]) -> InForce:
    """What must be in force after a retune."""
    start = started.info.in_force
    changed: dict[str, Any] = {knob: value for knob, value in live.items() if knob != "mla_workspace_rows"}
    force = dataclasses.replace(start, **changed)
    if start.workspace_rows is None or start.workspace_bytes is None:
        return force
    cap = live.get("mla_workspace_rows", started.config.plugin.mla_workspace_rows)
    rows = _rows(started.info, cap, force.max_num_seqs)
    width = start.workspace_bytes // start.workspace_rows
    return dataclasses.replace(force, workspace_rows=rows, workspace_bytes=rows * width)


def wrong_values(good: Mapping[str, int], start: InForce) -> list[dict[str, KnobValue]]:
    """Live values of which one is wrong, the wrong one first, with good ones beside it."""
    wrong: list[dict[str, KnobValue]] = [{"max_num_batched_token": 32}]
    for knob in LIVE_KNOBS:
        if knob in good:
            wrong += [{knob: value} for value in (-1, True, "64", 0.5)]
            if knob != "long_prefill_token_threshold":
                wrong.append({knob: 0})
    for knob in ("prefill_chunk_size", "max_num_batched_tokens", "max_num_seqs"):
        highest = getattr(start, knob)
        if knob in good and highest is not None:
            wrong.append({knob: highest + 1})
    others: Mapping[str, KnobValue] = {knob: value - 1 for knob, value in good.items() if value > 1}
    return [{**one, **{knob: value for knob, value in others.items() if knob not in one}} for one in wrong]


def _rows(info: EngineInfo, cap: int | None, max_num_seqs: int | None) -> int:
    assert max_num_seqs is not None
    return info.workspace_rows(cap=cap, max_num_seqs=max_num_seqs)


def _requests(started: Started, count: int, length: int, *, output_len: int = 2, seed: int = 0) -> list[Request]:
    return random_requests(
        count, input_len=length, output_len=output_len, seed=[seed], vocab_size=started.info.vocab_size
    )
