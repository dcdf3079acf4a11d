"""When an engine counts as hung: the rule alone, on engines that are made up second by second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.cluster.heartbeat import Beat, Phase
from orchestrator.cluster.watchdog import (
    IDLE_SHARE,
    LATE_S,
    LEAST_S,
    MOST_IDLE_SHARE,
    QUIET_S,
    SILENCE_S,
    SPIN_SHARE,
    STOPPED_S,
    TIMES,
    Sample,
    Watchdog,
)

STEP_S = 0.5
IN_TIME_S = 15.0
"""A hung engine is to be noticed in so many seconds."""


@dataclass
class MadeUp:
    """An engine in a block, with a request in flight; what it does is set from outside."""

    now_s: float = 100.0
    cpu_s: float = 0.0
    owner_cpu_s: float = 0.0
    chunks: int = 0
    sent: int = 1
    phase: Phase = "block"
    kind: int = 0
    since_s: float = 100.0
    is_alone: bool = True
    steps: int = 0
    processes: int = 3
    share: float = 1.0
    """Of one core that it uses."""
    beats: bool = True
    stopped: dict[int, str] = field(default_factory=dict)
    is_at_work: bool = False
    is_gpu_at_work: bool = False
    _beat_s: float = 100.0

    def after(self, seconds: float) -> Sample:
        self.now_s += seconds
        self.cpu_s += self.share * seconds
        self.owner_cpu_s += self.share * seconds
        if self.beats:
            self._beat_s = self.now_s
        beat = Beat(
            at_s=self._beat_s,
            since_s=self.since_s,
            phase=self.phase,
            is_alone=self.is_alone,
            kind=self.kind,
            sent=self.sent,
            chunks=self.chunks,
        )
        return Sample(
            at_s=self.now_s,
            beat=beat,
            steps=bytes([self.steps % 256]),
            stopped=self.stopped,
            processes=self.processes,
            cpu_s=self.cpu_s,
            owner_cpu_s=self.owner_cpu_s,
        )

    def begin_block(self, kind: int) -> None:
        self.kind, self.since_s = kind, self.now_s


def watch(engine: MadeUp, watchdog: Watchdog, seconds: float) -> tuple[float, str] | None:
    """After how many seconds the engine is called hung, and why; None if it is not in this time."""
    begin_s = engine.now_s
    while engine.now_s < begin_s + seconds:
        if (why := watchdog.look(engine.after(STEP_S))) is not None:
            return engine.now_s - begin_s, why
    return None


@pytest.fixture
def engine() -> MadeUp:
    return MadeUp()


@pytest.fixture
def watchdog(engine: MadeUp) -> Watchdog:
    return Watchdog(SILENCE_S, lambda: engine.is_at_work, lambda: engine.is_gpu_at_work)


@pytest.mark.parametrize("phase", ["start", "idle", "retune", "block", "stop"])
def test_a_stopped_process_is_noticed_in_every_phase(engine: MadeUp, watchdog: Watchdog, phase: Phase) -> None:
    engine.phase, engine.chunks = phase, 5
    assert watch(engine, watchdog, 30.0) is None
    engine.stopped = {77: "VLLM::EngineCor"}
    assert watch(engine, watchdog, 60.0) == (
        STOPPED_S + STEP_S,
        "process 77 (VLLM::EngineCor) was stopped for 5 s (state T)",
    )


def test_a_stop_that_ends_soon_is_none(engine: MadeUp, watchdog: Watchdog) -> None:
    """A debugger or a profiler stops a process for moments."""
    for _ in range(10):
        engine.stopped = {77: "VLLM::EngineCor"}
        assert watch(engine, watchdog, STOPPED_S - 1.0) is None
        engine.stopped = {}
        assert watch(engine, watchdog, 1.0) is None


def test_a_long_step_is_none(engine: MadeUp, watchdog: Watchdog) -> None:
    """Of a prefill on a processor."""
    assert watch(engine, watchdog, 60.0) is None


def test_a_long_step_of_a_gpu_or_a_disk_is_none(engine: MadeUp, watchdog: Watchdog) -> None:
    engine.share, engine.is_at_work = 0.0, True
    assert watch(engine, watchdog, 60.0) is None
    engine.is_at_work, engine.is_gpu_at_work = False, True
    assert watch(engine, watchdog, 60.0) is None


@pytest.mark.parametrize(("processes", "share"), [(3, 0.0), (3, 0.8 * 3 * IDLE_SHARE), (100, 0.9 * MOST_IDLE_SHARE)])
def test_idle_processes_with_a_request_in_flight_are_a_hang(
    engine: MadeUp, watchdog: Watchdog, processes: int, share: float
) -> None:
    engine.processes = processes
    assert watch(engine, watchdog, 20.0) is None
    engine.chunks, engine.share = 9, share
    found = watch(engine, watchdog, 60.0)
    assert found is not None
    seconds, why = found
    assert QUIET_S <= seconds <= IN_TIME_S
    assert why.startswith("no step and no token for ")
    assert why.endswith(" s, 1 requests in flight, and its processes are idle")


def test_a_retune_without_an_answer_is_a_hang(engine: MadeUp, watchdog: Watchdog) -> None:
    engine.phase, engine.share, engine.sent = "retune", 0.0, 0
    found = watch(engine, watchdog, 60.0)
    assert found is not None
    assert found[0] <= IN_TIME_S
    assert found[1].startswith("no answer to a retune")


@pytest.mark.parametrize(
    "change",
    [
        lambda engine: setattr(engine, "sent", 0),
        lambda engine: setattr(engine, "phase", "idle"),
        lambda engine: setattr(engine, "phase", "start"),
        lambda engine: setattr(engine, "is_alone", False),
    ],
    ids=["no request in flight", "idle", "start", "another node may be at work"],
)
def test_idle_processes_that_nobody_waits_for_are_none(
    engine: MadeUp, watchdog: Watchdog, change: Callable[[MadeUp], None]
) -> None:
    engine.share = 0.0
    change(engine)
    assert watch(engine, watchdog, 120.0) is None


def test_the_silence_of_a_busy_engine_ends(engine: MadeUp) -> None:
    found = watch(engine, Watchdog(60.0, lambda: True, lambda: False), 120.0)
    assert found == (60.0 + STEP_S, "no step and no token for 60 s, 1 requests in flight")


def test_steps_are_progress(engine: MadeUp) -> None:
    """A long prompt gives no token before its last step."""
    watchdog = Watchdog(60.0, lambda: True, lambda: False)
    for _ in range(5):
        engine.steps += 1
        assert watch(engine, watchdog, 59.0) is None
    assert watch(engine, watchdog, 60.0) is not None


def test_a_heart_that_stands_still_is_a_hang(engine: MadeUp, watchdog: Watchdog) -> None:
    engine.phase = "idle"
    assert watch(engine, watchdog, 30.0) is None
    engine.beats, engine.share = False, 0.0
    found = watch(engine, watchdog, 60.0)
    assert found is not None
    assert found[0] <= IN_TIME_S
    assert found[1].startswith("no heartbeat of its process for ")


def test_a_heart_waits_for_a_thread_that_computes(engine: MadeUp, watchdog: Watchdog) -> None:
    engine.beats, engine.phase = False, "idle"
    assert watch(engine, watchdog, 120.0) is None
    found = watch(engine, watchdog, SILENCE_S)
    assert found is not None
    assert found[1].startswith("no heartbeat")


def looks_until(engine: MadeUp, watchdog: Watchdog, every_s: float) -> tuple[int, str]:
    """The verdict of a watchdog that looks so seldom, and at how many looks it comes after the first."""
    for look in range(2000):
        if (why := watchdog.look(engine.after(every_s))) is not None:
            return look, why
    raise AssertionError("no verdict")


@pytest.mark.parametrize("every_s", [LATE_S, LATE_S + 1.0, 60.0])
def test_a_watchdog_whose_looks_are_all_late_still_judges(engine: MadeUp, every_s: float) -> None:
    """Of the time between two looks ``LATE_S`` counts."""
    engine.is_at_work = True
    watchdog = Watchdog(60.0, lambda: engine.is_at_work, lambda: False)
    assert looks_until(engine, watchdog, every_s) == (
        60.0 / LATE_S,
        "no step and no token for 60 s, 1 requests in flight",
    )
    engine.stopped, watchdog = {77: "a"}, Watchdog(60.0, lambda: True, lambda: False)
    assert looks_until(engine, watchdog, every_s) == (2, "process 77 (a) was stopped for 5 s (state T)")
    engine.stopped, engine.phase, watchdog = {}, "idle", Watchdog(60.0, lambda: True, lambda: False)
    engine.beats = False
    assert looks_until(engine, watchdog, every_s)[1] == "no heartbeat of its process for 60 s in phase idle"


@pytest.mark.parametrize("stopped", [{}, {77: "a"}])
@pytest.mark.parametrize("beats", [True, False])
def test_a_machine_that_was_suspended_is_no_hang(
    engine: MadeUp, watchdog: Watchdog, beats: bool, stopped: dict[int, str]
) -> None:
    """What stood still for long was not the engine, which goes on as soon as it can."""
    engine.share, engine.beats = 0.0, beats
    assert watch(engine, watchdog, QUIET_S - LATE_S - 1.0) is None
    engine.now_s += 3600.0
    engine.stopped = stopped
    assert watchdog.look(engine.after(0.0)) is None
    engine.beats, engine.stopped, engine.chunks = True, {}, 1
    assert watch(engine, watchdog, QUIET_S - 1.0) is None


@settings(max_examples=50)
@given(
    gaps=st.lists(st.floats(0.5, QUIET_S - 1.5), min_size=3, max_size=12),
    share=st.floats(0.0, 2.0),
    is_at_work=st.booleans(),
)
def test_an_engine_that_goes_on_is_never_a_hang(gaps: list[float], share: float, is_at_work: bool) -> None:
    engine = MadeUp(share=share, is_at_work=is_at_work)
    watchdog = Watchdog(SILENCE_S, lambda: engine.is_at_work, lambda: False)
    for gap in gaps:
        engine.chunks += 1
        assert watch(engine, watchdog, gap) is None


def serve(engine: MadeUp, watchdog: Watchdog, kind: int, *waits: float) -> None:
    """A block of a kind, whose steps come after these waits."""
    engine.begin_block(kind)
    for wait in waits:
        assert watch(engine, watchdog, wait) is None
        engine.steps += 1
    engine.phase = "idle"
    assert watch(engine, watchdog, STEP_S) is None
    engine.phase = "block"


def test_an_engine_that_spins_is_noticed_as_soon_as_one_that_waits(engine: MadeUp, watchdog: Watchdog) -> None:
    engine.is_at_work = True
    serve(engine, watchdog, 7, *[0.5] * 20)
    engine.begin_block(7)
    found = watch(engine, watchdog, 60.0)
    assert found is not None
    assert LEAST_S <= found[0] <= IN_TIME_S
    assert found[1].startswith("no step and no token for 12 s, 1 requests in flight; the longest before was 0.")


@pytest.mark.parametrize("kind", [0, 8], ids=["of no kind", "of another kind"])
def test_what_another_block_took_says_nothing_of_this_one(engine: MadeUp, watchdog: Watchdog, kind: int) -> None:
    for _ in range(3):
        serve(engine, watchdog, 0, 0.5, 0.5)
        serve(engine, watchdog, 7, 0.5, 0.5)
    engine.begin_block(kind)
    assert watch(engine, watchdog, SILENCE_S - 1.0) is None
    assert watch(engine, watchdog, 2.0) is not None


def test_a_step_may_take_many_times_the_longest_of_before(engine: MadeUp, watchdog: Watchdog) -> None:
    serve(engine, watchdog, 7, 0.5, 3.0, 0.5)
    engine.begin_block(7)
    found = watch(engine, watchdog, 120.0)
    assert found is not None
    assert (TIMES * 2.5) <= found[0] <= TIMES * 3.0 + 1.0


def test_what_the_first_block_compiled_is_forgotten(engine: MadeUp, watchdog: Watchdog) -> None:
    serve(engine, watchdog, 7, 60.0, 0.5)
    serve(engine, watchdog, 7, 40.0, 0.5)
    # From here on only the second counts.
    engine.begin_block(7)
    assert watch(engine, watchdog, SILENCE_S - 1.0) is None
    other = Watchdog(SILENCE_S, lambda: True, lambda: False)
    for waits in ((60.0, 0.5), (0.5, 0.5)):
        serve(engine, other, 7, *waits)
    engine.begin_block(7)
    found = watch(engine, other, 60.0)
    assert found is not None
    assert found[0] <= IN_TIME_S


def test_requests_that_are_sent_are_no_progress(engine: MadeUp, watchdog: Watchdog) -> None:
    """In an open loop they come whatever the engine does."""
    engine.share = 0.0
    for _ in range(20):
        engine.sent += 1
        if (found := watch(engine, watchdog, 1.0)) is not None:
            break
    assert found is not None
    assert found[1].endswith("and its processes are idle")


def test_an_engine_that_waits_for_its_next_request_is_none(engine: MadeUp, watchdog: Watchdog) -> None:
    serve(engine, watchdog, 7, 0.5, 0.5)
    serve(engine, watchdog, 7, 0.5, 0.5)
    engine.begin_block(7)
    engine.sent = 0
    assert watch(engine, watchdog, 60.0) is None
    # What was awaited begins with the request.
    engine.sent, engine.is_at_work = 1, True
    assert watch(engine, watchdog, LEAST_S - 1.0) is None


def test_an_engine_that_others_keep_from_the_processor_has_more_time(engine: MadeUp, watchdog: Watchdog) -> None:
    engine.is_at_work = True
    serve(engine, watchdog, 7, 0.5, 0.5)
    engine.begin_block(7)
    engine.share = 0.1
    found = watch(engine, watchdog, 120.0)
    assert found is not None
    assert found[0] >= SPIN_SHARE * LEAST_S / engine.share - 1.0


def test_ranks_of_a_collective_that_never_ends_are_a_hang(engine: MadeUp, watchdog: Watchdog) -> None:
    """Their GPUs spin, their threads sleep, and another node may be at work."""
    serve(engine, watchdog, 7, 0.5, 0.5)
    engine.begin_block(7)
    engine.share, engine.is_gpu_at_work, engine.is_alone = 0.0, True, False
    found = watch(engine, watchdog, 60.0)
    assert found is not None
    assert found[0] <= IN_TIME_S


def test_a_retune_that_spins_is_noticed(engine: MadeUp, watchdog: Watchdog) -> None:
    engine.is_at_work, engine.sent = True, 0
    for _ in range(2):
        engine.phase, engine.since_s = "retune", engine.now_s
        assert watch(engine, watchdog, 1.0) is None
    engine.since_s = engine.now_s
    found = watch(engine, watchdog, 60.0)
    assert found is not None
    assert found[0] <= 20.0
    assert found[1].startswith("no answer to a retune")


@settings(max_examples=50)
@given(
    before=st.lists(st.lists(st.floats(0.5, 9.0), min_size=1, max_size=6), min_size=1, max_size=4),
    times=st.floats(0.0, 0.9 * TIMES),
    share=st.floats(0.0, 2.0),
)
def test_a_wait_that_others_like_it_bear_out_is_never_a_hang(
    before: list[list[float]], times: float, share: float
) -> None:
    engine = MadeUp(share=share, is_at_work=True)
    watchdog = Watchdog(SILENCE_S, lambda: True, lambda: False)
    for waits in before:
        serve(engine, watchdog, 7, *waits)
    engine.begin_block(7)
    longest = min(map(max, before))
    assert watch(engine, watchdog, min(times * (longest - 2 * STEP_S), SILENCE_S - 1.0)) is None
