"""The pool of warm engines: starts that fail, and starts that are lost again and again."""

from __future__ import annotations

from threading import Event

import pytest

from orchestrator.cluster.failure_table import CLASSES
from orchestrator.engines import EngineConfig, EngineError, EngineInfo
from orchestrator.engines.faulty import Faults, FaultyEngine, FaultyEngines
from orchestrator.search import Point
from orchestrator.sweep.pool import CERTAIN_LABELS, MOST_LOST_STARTS, BaselineError, EnginePool

BASELINE: Point = {"max_num_seqs": 4}
OTHER: Point = {"max_num_seqs": 8}


def failing(label: str, *, lost: bool, times: int) -> FaultyEngines:
    """Fault: so many starts fail."""
    error = EngineError(label, "why", lost=lost, log_path="x.log")
    return FaultyEngines(*[Faults(start_error=error)] * times)


def pool_of(engines: FaultyEngines) -> EnginePool:
    return EnginePool(engines, EngineConfig(model="none"), BASELINE)


def get(pool: EnginePool, group: Point, times: int) -> None:
    """Ask for an engine so many times, all in vain, as one that is lost."""
    for _ in range(times):
        with pytest.raises(EngineError) as caught:
            pool.get(group)
        assert caught.value.lost


def test_what_is_certain_is_not_started_twice_and_remembered() -> None:
    assert {label.replace("_", "-") for label in CLASSES} & CERTAIN_LABELS
    engines = failing("invalid-config", lost=False, times=1)
    pool = pool_of(engines)
    for _ in range(3):
        with pytest.raises(EngineError, match=r"^invalid-config: why \(engine log: x.log\)$"):
            pool.get(OTHER)
    assert len(engines.made) == 1


def test_a_group_whose_starts_are_always_lost_is_given_up() -> None:
    engines = failing("worker-segfault", lost=True, times=MOST_LOST_STARTS)
    pool = pool_of(engines)
    get(pool, OTHER, MOST_LOST_STARTS - 1)
    for _ in range(2):
        with pytest.raises(EngineError) as caught:
            pool.get(OTHER)
        assert (caught.value.label, caught.value.lost, caught.value.log_path) == ("worker-segfault", False, "x.log")
    assert len(engines.made) == MOST_LOST_STARTS
    assert pool.get(BASELINE).info.kind == "faulty"


def test_a_baseline_whose_starts_are_always_lost_ends_the_sweep() -> None:
    pool = pool_of(failing("hang", lost=True, times=MOST_LOST_STARTS))
    get(pool, BASELINE, MOST_LOST_STARTS - 1)
    with pytest.raises(BaselineError, match=r"^the baseline's engine does not start: hang: why"):
        pool.get(BASELINE)


def test_a_start_that_works_forgives_those_before() -> None:
    lost = Faults(start_error=EngineError("hang", "why", lost=True))
    some = [lost] * (MOST_LOST_STARTS - 1)
    pool = pool_of(FaultyEngines(*some, Faults(), *some))
    for _ in range(2):
        get(pool, OTHER, MOST_LOST_STARTS - 1)
        engine = pool.get(OTHER)
        assert isinstance(engine.engine, FaultyEngine)
        pool.discard(engine)


def test_no_room_is_waited_for_as_long_as_it_takes() -> None:
    pool = pool_of(failing("no-room", lost=True, times=3 * MOST_LOST_STARTS))
    get(pool, OTHER, 3 * MOST_LOST_STARTS)
    assert pool.get(OTHER).info.kind == "faulty"


def test_engines_are_started_anew_all_at_once_and_no_other_is_left() -> None:
    engines = FaultyEngines()
    pool = pool_of(engines)
    pool.get(BASELINE)
    pool.start_anew([BASELINE, OTHER])
    assert pool.groups == [BASELINE, OTHER]
    assert [engine.is_running for engine in engines.made] == [False, True, True]
    assert pool.get(OTHER) is pool.get(OTHER)
    assert len(engines.made) == 3


@pytest.mark.parametrize("lost", [True, False])
def test_where_one_of_them_does_not_start_none_is_left(lost: bool) -> None:
    error = EngineError("invalid-config", "why", lost=lost)
    refusing = Faults(start_error=error, start_error_if=lambda config: config.args["max_num_seqs"] == 8)
    engines = FaultyEngines(refusing, refusing, refusing)
    pool = pool_of(engines)
    # It may have been in the way of the other: lost, and tried alone.
    with pytest.raises(EngineError, match=r"invalid-config: why \(two engines were started together\)") as caught:
        pool.start_anew([BASELINE, OTHER])
    assert (caught.value.lost, pool.at_once, pool.groups) == (True, 1, [])
    assert not any(engine.is_running for engine in engines.made)
    with pytest.raises(EngineError) as caught:
        pool.start_anew([OTHER])
    assert (caught.value.lost, pool.groups) == (lost, [])
    if not lost:
        # And not a third time.
        with pytest.raises(EngineError):
            pool.start_anew([OTHER])
        assert len(engines.made) == 3


def test_a_baseline_that_failed_beside_another_is_tried_alone_before_the_sweep_ends() -> None:
    refusing = Faults(
        start_error=EngineError("invalid-config", "why"),
        start_error_if=lambda config: config.args["max_num_seqs"] == 4,
    )
    pool = pool_of(FaultyEngines(refusing, refusing, refusing))
    with pytest.raises(EngineError) as caught:
        pool.start_anew([BASELINE, OTHER])
    assert caught.value.lost
    with pytest.raises(BaselineError):
        pool.start_anew([BASELINE])


def test_two_that_were_started_together_make_room_for_the_next() -> None:
    engines = FaultyEngines()
    pool = EnginePool(engines, EngineConfig(model="none"), {}, capacity=1, at_once=2)
    pool.start_anew([BASELINE, OTHER])
    assert sum(engine.is_running for engine in engines.made) == 2
    pool.get({})
    assert [engine.is_running for engine in engines.made] == [False, False, True]
    two = EnginePool(engines, EngineConfig(model="none"), {}, capacity=2)
    two.start_anew([BASELINE, OTHER])
    two.get({})
    assert len(two.groups) == 2


def test_an_interrupt_stops_engines_that_are_starting() -> None:
    class Waiting(FaultyEngine):
        """Fault: a start that ends only when it is aborted."""

        aborted = Event()

        def start(self, config: EngineConfig) -> EngineInfo:
            if config.args["max_num_seqs"] == 4:
                raise KeyboardInterrupt
            assert self.aborted.wait(60)
            raise EngineError("ray-actor-died", "aborted", lost=True)

        def abort(self) -> None:
            self.aborted.set()

    pool = EnginePool(Waiting, EngineConfig(model="none"), BASELINE)
    with pytest.raises(KeyboardInterrupt):
        pool.start_anew([BASELINE, OTHER])
    assert pool.groups == []
