"""Retune and block as one call, where the engine offers that, and as two where it does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from orchestrator.engines import BlockResult, EngineConfig, EngineError, KnobValue, RejectedError, StopRule
from orchestrator.engines.faulty import Faults, FaultyEngine
from orchestrator.search import Point
from orchestrator.sweep.pool import EnginePool, WarmEngine
from orchestrator.sweep.serving import Serving, TrialFailure
from orchestrator.workloads import Request, Schedule, random_requests
from tests.sweep.studies import BATCHED_TOKENS, ROWS, make_spec

FIRST: Point = {"mla_workspace_rows": ROWS[0], "max_num_batched_tokens": BATCHED_TOKENS[0]}
SECOND: Point = {**FIRST, "mla_workspace_rows": ROWS[1]}
LOST = EngineError("engine-dead", "the engine is gone", lost=True, log_path="x.log")


class TwoCalls(FaultyEngine):
    """Notes its calls."""

    def __init__(self, faults: Faults | None = None) -> None:
        super().__init__(faults)
        self.calls: list[str] = []
        self.is_aborted = False

    def retune(self, live_values: Mapping[str, KnobValue]) -> float:
        self.calls.append("retune")
        return super().retune(live_values)

    def run(
        self, requests: Sequence[Request], schedule: Schedule, *, top2: bool = False, stop: StopRule | None = None
    ) -> BlockResult:
        self.calls.append("run")
        return super().run(requests, schedule, top2=top2, stop=stop)

    def abort(self) -> None:
        self.is_aborted = True
        super().abort()


class OneCall(TwoCalls):
    """Offers both in one."""

    def retune_and_run(
        self,
        live_values: Mapping[str, KnobValue],
        requests: Sequence[Request],
        schedule: Schedule,
        *,
        top2: bool = False,
        stop: StopRule | None = None,
    ) -> tuple[float, BlockResult]:
        self.calls.append("both")
        try:
            took_s = FaultyEngine.retune(self, live_values)
        except ValueError as error:
            raise RejectedError(str(error)) from error
        return took_s, FaultyEngine.run(self, requests, schedule, top2=top2, stop=stop)


def warm(engine: TwoCalls) -> tuple[Serving, WarmEngine]:
    pool = EnginePool(lambda: engine, EngineConfig(model="none"), {})
    return Serving(make_spec(), pool), pool.get({})


def run(serving: Serving, engine: WarmEngine, point: Point) -> BlockResult:
    requests = random_requests(2, input_len=64, output_len=2, seed=[1], vocab_size=1024)
    return serving.run(engine, point, requests, Schedule())[1]


@pytest.mark.parametrize(
    ("engine", "calls"), [(OneCall(), ["both", "run", "both"]), (TwoCalls(), ["retune", "run", "run", "retune", "run"])]
)
def test_a_block_at_other_values_takes_one_call_where_the_engine_offers_it(engine: TwoCalls, calls: list[str]) -> None:
    serving, there = warm(engine)
    for point in (FIRST, FIRST, SECOND):
        result = run(serving, there, point)
        assert result.in_force.workspace_rows == point["mla_workspace_rows"]
        assert there.live == point
    assert engine.calls == calls
    assert engine.retuned == [FIRST, SECOND]


@pytest.mark.parametrize("make", [OneCall, TwoCalls])
def test_values_that_are_refused_fail_the_trial_and_keep_the_engine(make: type[TwoCalls]) -> None:
    serving, there = warm(make())
    run(serving, there, FIRST)
    with pytest.raises(TrialFailure) as caught:
        run(serving, there, {**FIRST, "mla_workspace_rows": -1})
    assert (caught.value.label, caught.value.lost) == ("rejected", False)
    assert there.live is None
    run(serving, there, FIRST)
    assert there.live == FIRST


@pytest.mark.parametrize("make", [OneCall, TwoCalls])
@pytest.mark.parametrize("error", [LOST, KeyboardInterrupt(), ValueError("not the retune's")])
def test_what_a_block_raises_is_no_refusal_and_after_it_nothing_is_taken_for_granted(
    make: type[TwoCalls], error: BaseException
) -> None:
    engine = make(Faults(run_errors={0: error}))
    serving, there = warm(engine)
    with pytest.raises(type(error)) as caught:
        run(serving, there, FIRST)
    assert caught.value is error
    assert engine.is_aborted == (error is LOST)
    assert there.live == (FIRST if make is TwoCalls else None)
