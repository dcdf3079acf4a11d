"""The conformance suite bites: an engine that breaks one rule fails the test of that rule."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from orchestrator.engines import BlockResult, EngineConfig, EngineError, EngineInfo, KnobValue, StopRule
from orchestrator.engines.faulty import Faults, FaultyEngine
from orchestrator.engines.testing import EngineConformance, Started, most_in_flight
from orchestrator.workloads import Prompt, Request, Schedule

CONFIG = EngineConfig(model="none", args={"max_model_len": 4096, "max_num_batched_tokens": 128, "max_num_seqs": 4})


class BrokenEngine(FaultyEngine):
    """Keeps the contract except for one change to what it returns."""

    def __init__(
        self,
        change: Callable[[BlockResult, BlockResult | None], BlockResult] = lambda block, last: block,
        faults: Faults | None = None,
    ) -> None:
        super().__init__(faults)
        self._change = change
        self._last: BlockResult | None = None

    def run(
        self, requests: Sequence[Request], schedule: Schedule, *, top2: bool = False, stop: StopRule | None = None
    ) -> BlockResult:
        block = self._change(super().run(requests, schedule, top2=top2, stop=stop), self._last)
        self._last = block
        return block


class DeafToNothing(FaultyEngine):
    """Takes unknown knobs and values out of range."""

    def retune(self, live_values: Mapping[str, KnobValue]) -> float:
        try:
            return super().retune(live_values)
        except ValueError:
            return 0.0


class HalfTuned(FaultyEngine):
    """Refuses a wrong value only after the good ones beside it went into force."""

    def retune(self, live_values: Mapping[str, KnobValue]) -> float:
        for knob, value in live_values.items():
            try:
                super().retune({knob: value})
            except ValueError as error:
                refused = error
        if len(live_values) > 1:
            try:
                return super().retune(live_values)
            except ValueError:
                raise refused from None
        return super().retune(live_values)


class Unstoppable(FaultyEngine):
    """Goes on after a stop or an abort."""

    def stop(self) -> None:
        return

    def abort(self) -> None:
        return


class SilentInfo(FaultyEngine):
    """Does not say how many rows are in force."""

    def start(self, config: EngineConfig) -> EngineInfo:
        info = super().start(config)
        return dataclasses.replace(info, in_force=dataclasses.replace(info.in_force, workspace_rows=16))


class AllAtOnce(FaultyEngine):
    """Ignores the load's bound."""

    def run(
        self, requests: Sequence[Request], schedule: Schedule, *, top2: bool = False, stop: StopRule | None = None
    ) -> BlockResult:
        return super().run(requests, Schedule(), top2=top2, stop=stop)


class FailsTogether(FaultyEngine):
    """One bad request fails the block."""

    def run(
        self, requests: Sequence[Request], schedule: Schedule, *, top2: bool = False, stop: StopRule | None = None
    ) -> BlockResult:
        block = super().run(requests, schedule, top2=top2, stop=stop)
        if any(request.error for request in block.requests):
            raise EngineError("engine-error", "a request is too long")
        return block


def each(**changes: Any) -> Callable[[BlockResult, BlockResult | None], BlockResult]:
    """Put the values into every request; a function gets the request."""

    def change(block: BlockResult, last: BlockResult | None) -> BlockResult:
        requests = [
            dataclasses.replace(r, **{k: v(r) if callable(v) else v for k, v in changes.items()})
            for r in block.requests
        ]
        return dataclasses.replace(block, requests=requests)

    return change


def reversed_requests(block: BlockResult, last: BlockResult | None) -> BlockResult:
    return dataclasses.replace(block, requests=list(block.requests)[::-1])


def short_block(block: BlockResult, last: BlockResult | None) -> BlockResult:
    return dataclasses.replace(block, duration_s=block.duration_s / 2)


def growing_counters(block: BlockResult, last: BlockResult | None) -> BlockResult:
    if last is None:
        return block
    now, before = dataclasses.asdict(block.counters), dataclasses.asdict(last.counters)
    summed = {name: now[name] + before[name] for name in ("scheduler_steps", "context_chunks", "workspace_entries")}
    return dataclasses.replace(block, counters=dataclasses.replace(block.counters, **summed))


def kept_maxima(block: BlockResult, last: BlockResult | None) -> BlockResult:
    if last is None:
        return block
    most = max(block.counters.max_step_tokens, last.counters.max_step_tokens)
    return dataclasses.replace(block, counters=dataclasses.replace(block.counters, max_step_tokens=most))


def without_cuts(block: BlockResult, last: BlockResult | None) -> BlockResult:
    return dataclasses.replace(block, counters=dataclasses.replace(block.counters, long_prefill_cuts=0))


def always_cut(block: BlockResult, last: BlockResult | None) -> BlockResult:
    return dataclasses.replace(block, counters=dataclasses.replace(block.counters, long_prefill_cuts=1))


def other_tokens_each_time(block: BlockResult, last: BlockResult | None) -> BlockResult:
    shift = 0 if last is None else 1
    return each(output_token_ids=lambda r: [t + shift for t in r.output_token_ids])(block, last)


ONE_PER_PROMPT = "test_one_timeline_for_each_prompt_in_order"
GAPS = "test_gaps_of_the_best_two_tokens_only_when_asked_for"
WRONG = "test_a_wrong_live_value_is_refused_and_changes_nothing"
LEFT_OUT = "test_a_knob_that_is_left_out_or_none_returns_to_its_start_value"
KNOB = "test_a_live_knob_goes_into_force_and_back"


@pytest.mark.parametrize(
    ("test", "engine"),
    [
        (ONE_PER_PROMPT, BrokenEngine(reversed_requests)),
        (ONE_PER_PROMPT, BrokenEngine(short_block)),
        (ONE_PER_PROMPT, BrokenEngine(each(output_tokens=3))),
        (ONE_PER_PROMPT, BrokenEngine(each(first_token_s=None))),
        (ONE_PER_PROMPT, BrokenEngine(each(end_s=lambda r: r.end_s - 1e-6))),
        (ONE_PER_PROMPT, BrokenEngine(each(token_times_s=lambda r: list(r.token_times_s)[::-1]))),
        (ONE_PER_PROMPT, BrokenEngine(each(send_s=lambda r: r.first_token_s))),
        (ONE_PER_PROMPT, BrokenEngine(each(error="no"))),
        ("test_counters_are_of_one_block", BrokenEngine(growing_counters)),
        ("test_counted_maxima_are_of_one_block", BrokenEngine(kept_maxima)),
        ("test_prefills_that_the_threshold_cuts_are_counted", BrokenEngine(without_cuts)),
        ("test_prefills_that_the_threshold_cuts_are_counted", BrokenEngine(always_cut)),
        (GAPS, BrokenEngine(each(top2_gaps=None))),
        (GAPS, BrokenEngine(each(top2_gaps=[0.5]))),
        (GAPS, BrokenEngine(each(top2_gaps=[0.5] * 5))),
        ("test_equal_prompts_give_equal_greedy_tokens", BrokenEngine(other_tokens_each_time)),
        ("test_equal_prompts_give_equal_greedy_tokens", BrokenEngine(each(output_token_ids=[7]))),
        ("test_without_a_bound_all_requests_are_sent_at_once", BrokenEngine(each(send_s=lambda r: r.index * 100.0))),
        ("test_a_request_that_is_too_long_fails_alone", BrokenEngine(each(error=None))),
        (
            "test_a_knob_that_is_left_out_or_none_returns_to_its_start_value",
            BrokenEngine(faults=Faults(rows_in_force=8)),
        ),
        ("test_start_tells_what_runs", SilentInfo()),
    ],
)
def test_a_broken_engine_fails(test: str, engine: FaultyEngine) -> None:
    started = Started(engine=engine, config=CONFIG, info=engine.start(CONFIG))
    with pytest.raises(AssertionError):
        getattr(EngineConformance(), test)(started)


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_bound_that_is_ignored_fails(concurrency: int) -> None:
    engine = AllAtOnce()
    started = Started(engine=engine, config=CONFIG, info=engine.start(CONFIG))
    with pytest.raises(AssertionError):
        EngineConformance().test_no_more_requests_in_flight_than_the_load_says(started, concurrency)


def test_a_request_that_takes_the_block_with_it_fails() -> None:
    engine = FailsTogether()
    started = Started(engine=engine, config=CONFIG, info=engine.start(CONFIG))
    with pytest.raises(EngineError):
        EngineConformance().test_a_request_that_is_too_long_fails_alone(started)


class NoSubtests:
    """Lets the first failure through, where pytest's own fixture would collect it."""

    def test(self, **context: object) -> NoSubtests:
        return self

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        return None


@pytest.mark.parametrize(
    ("test", "engine"),
    [
        (WRONG, DeafToNothing()),
        (WRONG, HalfTuned()),
        (KNOB, BrokenEngine(faults=Faults(rows_in_force=48))),
        *((KNOB, BrokenEngine(faults=Faults(ignored_knobs={knob}))) for knob in EngineConformance.live_values),
    ],
)
def test_a_knob_that_is_not_honoured_fails(test: str, engine: FaultyEngine) -> None:
    started = Started(engine=engine, config=CONFIG, info=engine.start(CONFIG))
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        getattr(EngineConformance(), test)(started, NoSubtests())


def test_an_engine_that_outlives_its_abort_fails() -> None:
    engine = Unstoppable()
    started = Started(engine=engine, config=CONFIG, info=engine.start(CONFIG))
    with pytest.raises(pytest.fail.Exception):
        EngineConformance().test_abort_ends_a_running_block_and_frees_the_engine(started)


def test_most_in_flight_by_hand() -> None:
    engine = FaultyEngine()
    engine.start(CONFIG)
    block = engine.run([Request(prompt=Prompt(token_ids=[1, 2], output_len=1))] * 4, Schedule())
    spans = [(0.0, 1.0), (0.5, 2.0), (1.0, 3.0), (2.5, 2.6)]
    requests = [
        dataclasses.replace(request, send_s=send, end_s=end)
        for request, (send, end) in zip(block.requests, spans, strict=True)
    ]
    assert most_in_flight(requests) == 2
