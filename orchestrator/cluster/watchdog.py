"""When an engine counts as hung. Pure: it is given samples, one about every half second.

The rule, in the order in which it is asked:

1. *Stopped.* A process of the engine has been in Linux's state T (stopped) for ``STOPPED_S``, in whatever phase.
2. *No heartbeat.* The owner's beat is older than ``QUIET_S`` and its process used next to no processor time since; or
   older than the silence that is allowed. A thread that computes may hold Python's lock for long, and beats wait.
3. *No progress.* Requests are in flight, or a retune is under way, and for ``QUIET_S`` no step began, no token came,
   none ended, and all processes of the engine together used next to no processor time. A long step uses the processor,
   also where it only waits for a GPU, and is left alone;
4. *No such wait before.* but not for longer than ``TIMES`` the longest such wait in earlier blocks of its kind
   (``Beat.kind``), and no less than ``LEAST_S``: a thread may spin for ever. The first block of a kind, which may
   compile, has no earlier one, and its waits count only for the second. So it is with retunes. Where threads want a
   processor that others have, the engine's processor time since must have come to half of that, too;
5. *Silence.* nor for longer than the silence that is allowed, whatever came before.

Next to no processor time is less than ``IDLE_SHARE`` of one core for each process, and never more than
``MOST_IDLE_SHARE``: an idle worker of vLLM, which polls, uses 1.4 % of a core, and an idle actor 0.7 %. Rules 2 and 3
hold their judgement while a thread wants a processor that others have, while one waits for a disk or a driver, and
while a GPU of the engine is at work or nobody can say. No rule but the first judges a start: it may wait for a download
or for other nodes, and has its own time-out.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from orchestrator.cluster.heartbeat import Beat

STOPPED_S = 5.0
QUIET_S = 10.0
IDLE_SHARE = 0.04
MOST_IDLE_SHARE = 0.5
SILENCE_S = 300.0
"""Default of the silence that is allowed."""

LEAST_S = 12.0
TIMES = 20.0
"""Prompts of a kind differ in length up to twofold, so their steps take up to four times as long; the rest is for a
machine that others use at times."""

SPIN_SHARE = 0.5
"""Of one core, which a thread that spins has to itself on a machine that is not crowded."""

LATE_S = 3.0
"""Between two looks no more time than this counts: a watchdog that was itself kept from looking cannot tell what stood
still from a machine that did."""

MARK = "chunksmith watchdog: "
"""Stands in front of the verdict in the engine's log."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The engine at one time.

    Attributes:
        at_s: ``CLOCK_MONOTONIC``.
        steps: What its scheduler wrote, if it did; that it changes is what counts.
        stopped: Names of its stopped processes, by pid.
        processes: How many it has, its owner included.
        cpu_s: Processor time of all its processes on this node since any time before, in seconds.
        owner_cpu_s: The same of its owner alone.
    """

    at_s: float
    beat: Beat | None
    steps: bytes = b""
    stopped: Mapping[int, str]
    processes: int
    cpu_s: float
    owner_cpu_s: float


class Watchdog:
    """Judges one engine.

    Args:
        silence_s: Longest time without a step and a token, and without a heartbeat, however busy the engine is.
        are_threads_at_work: Asked before a verdict: whether a thread of it runs, waits to run, or waits for a disk or a
            device.
        are_gpus_at_work: Likewise.
    """

    def __init__(
        self, silence_s: float, are_threads_at_work: Callable[[], bool], are_gpus_at_work: Callable[[], bool]
    ) -> None:
        self._silence_s = silence_s
        self._are_threads_at_work, self._are_gpus_at_work = are_threads_at_work, are_gpus_at_work
        self._waits: dict[tuple[str, int], _Waits] = {}
        self._all, self._owner = _Spell(), _Spell()
        self._stopped_since: dict[int, float] = {}
        self._beat_at_s, self._beat_s = 0.0, 0.0
        self._progress: tuple[object, ...] = ()
        self._progress_s = 0.0
        self._wait: _Wait | None = None
        self._now_s, self._last_s = 0.0, math.inf

    def look(self, sample: Sample) -> str | None:
        """Why the engine counts as hung, in one line; None while it does not."""
        self._now_s += min(max(0.0, sample.at_s - self._last_s), LATE_S)
        self._last_s = sample.at_s
        share = min(sample.processes * IDLE_SHARE, MOST_IDLE_SHARE)
        is_quiet = self._all.add(self._now_s, sample.cpu_s, share)
        is_owner_quiet = self._owner.add(self._now_s, sample.owner_cpu_s, IDLE_SHARE)
        stopped, beat = self._stopped(sample), sample.beat
        if stopped is not None or beat is None or beat.phase == "start":
            return stopped
        return self._no_heartbeat(beat, is_owner_quiet) or self._no_progress(sample, beat, is_quiet)

    def _stopped(self, sample: Sample) -> str | None:
        since = self._stopped_since
        self._stopped_since = {pid: since.get(pid, self._now_s) for pid in sample.stopped}
        for pid, begun_s in self._stopped_since.items():
            if self._now_s - begun_s >= STOPPED_S:
                return f"process {pid} ({sample.stopped[pid]}) was stopped for {STOPPED_S:.0f} s (state T)"
        return None

    def _no_heartbeat(self, beat: Beat, is_owner_quiet: bool) -> str | None:
        if beat.at_s != self._beat_at_s:
            self._beat_at_s, self._beat_s = beat.at_s, self._now_s
        age_s = self._now_s - self._beat_s
        if age_s >= self._silence_s or (age_s >= QUIET_S and is_owner_quiet and not self._is_at_work()):
            return f"no heartbeat of its process for {age_s:.0f} s in phase {beat.phase}"
        return None

    def _is_at_work(self) -> bool:
        return self._are_threads_at_work() or self._are_gpus_at_work()

    def _no_progress(self, sample: Sample, beat: Beat, is_quiet: bool) -> str | None:
        progress = (beat.since_s, beat.sent, beat.ended, beat.chunks, sample.steps)
        if progress != self._progress:
            self._progress, self._progress_s = progress, self._now_s
        if beat.phase not in ("block", "retune"):
            self._end_wait()
            return None
        wait = self._awaited(sample, beat)
        wait_s = self._now_s - wait.begun_s
        silent_s = max(wait_s, self._now_s - self._progress_s)
        what = f"no answer to a retune for {silent_s:.0f} s"
        if beat.phase == "block":
            what = f"no step and no token for {silent_s:.0f} s, {beat.in_flight} requests in flight"
        if silent_s >= self._silence_s:
            return what
        if wait_s >= QUIET_S and beat.is_alone and is_quiet and not self._is_at_work():
            return f"{what}, and its processes are idle"
        longest_s = wait.earlier.longest_s
        if longest_s is None:
            return None
        allowed_s = max(LEAST_S, TIMES * longest_s)
        has_run = sample.cpu_s - wait.begun_cpu_s >= SPIN_SHARE * allowed_s
        if wait_s >= allowed_s and (has_run or not self._are_threads_at_work()):
            return f"{what}; the longest before was {longest_s:.1f} s"
        return None

    def _awaited(self, sample: Sample, beat: Beat) -> _Wait:
        """The wait for the next step, token or answer. A request that is sent meanwhile does not shorten it."""
        mark = (beat.since_s, beat.ended, beat.chunks, sample.steps)
        is_due = beat.phase == "retune" or beat.in_flight > 0
        if self._wait is None or self._wait.mark != mark or not is_due:
            self._end_wait()
            # A block of which nobody says what it is like has no other of its kind.
            is_known = beat.phase == "retune" or beat.kind != 0
            earlier = self._waits.setdefault((beat.phase, beat.kind), _Waits()) if is_known else _Waits()
            earlier.enter(beat.since_s)
            self._wait = _Wait(mark, earlier, self._now_s, sample.cpu_s)
        self._wait.last_s = self._now_s
        return self._wait

    def _end_wait(self) -> None:
        if self._wait is not None:
            self._wait.earlier.add(self._wait.last_s - self._wait.begun_s)
            self._wait = None


class _Waits:
    """The longest waits in blocks of one kind, or in retunes, as far as they have ended."""

    def __init__(self) -> None:
        self._since_s, self._blocks = -1.0, 0
        self._first_s = self._later_s = 0.0

    def enter(self, since_s: float) -> None:
        """A block that began then goes on."""
        if since_s != self._since_s:
            self._since_s, self._blocks = since_s, self._blocks + 1

    def add(self, wait_s: float) -> None:
        """A wait of the present block has ended."""
        if self._blocks == 1:
            self._first_s = max(self._first_s, wait_s)
        else:
            self._later_s = max(self._later_s, wait_s)

    @property
    def longest_s(self) -> float | None:
        """Of the blocks but the first; in the second, of the first; None in the first."""
        if self._blocks < 2:
            return None
        return self._first_s if self._blocks == 2 else self._later_s


@dataclass
class _Wait:
    """A wait that goes on.

    Attributes:
        mark: Changes when it ends.
        earlier: Those of its kind.
        begun_s: When it began, and ``last_s`` when it was last seen.
        begun_cpu_s: Processor time of the engine by then.
    """

    mark: tuple[object, ...]
    earlier: _Waits
    begun_s: float
    begun_cpu_s: float
    last_s: float = 0.0


class _Spell:
    """Whether processor time has stood still, or almost, for ``QUIET_S``."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque()

    def add(self, at_s: float, cpu_s: float, share: float) -> bool:
        self._seen.append((at_s, cpu_s))
        while len(self._seen) > 1 and self._seen[1][0] <= at_s - QUIET_S:
            self._seen.popleft()
        first_s, first_cpu_s = self._seen[0]
        span_s = at_s - first_s
        return span_s >= QUIET_S and cpu_s - first_cpu_s < share * span_s
