"""The warm engines of a sweep: the baseline's, and the one that the present trials run on, if both fit."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from orchestrator.cluster import certain_labels
from orchestrator.engines import Engine, EngineConfig, EngineError, EngineInfo
from orchestrator.errors import ChunksmithError
from orchestrator.search import Point, engine_config

MakeEngine = Callable[[], Engine]


@dataclass
class WarmEngine:
    """A started engine. ``live`` is what it was last tuned to; None right after its start, or if a retune failed."""

    group: Point
    engine: Engine
    info: EngineInfo
    live: Point | None = None
    is_warm: bool = False
    is_known: bool = False
    """Whether its start was made known; it may be without being warm, when its first block failed."""
    warmed_roles: set[str] = field(default_factory=set)
    """Roles for which it has served what precedes the first pair of a start."""


CERTAIN_LABELS = certain_labels() | {"plugin-refused", "resources", "lab-shape", "workspace-too-small"}
"""Failures of a start that a second try cannot mend."""

_POLL_S = 0.2

MOST_LOST_STARTS = 6
"""So many starts of one group in a row that were lost are no bad luck any more. A start that found no room is none."""


class BaselineError(ChunksmithError):
    """The baseline's engine does not start: the sweep cannot go on, and no trial is to blame."""


class EnginePool:
    """Keeps at most ``capacity`` engines, 1 or 2: with one, asking for another group stops it.

    For ``start_anew`` there may be two at a time where it keeps one, ``at_once``, until two together failed once.

    A start that fails is tried once more, since the reason may pass (memory that an earlier process still held). What
    fails again is taken to lie in the group's values: it is remembered, and not tried a third time. A start that was
    lost is the caller's to try again, up to ``MOST_LOST_STARTS``.
    """

    def __init__(
        self,
        make_engine: MakeEngine,
        base: EngineConfig,
        baseline_group: Point,
        *,
        capacity: int = 2,
        at_once: int | None = None,
    ) -> None:
        self._make_engine, self._base, self._baseline_group = make_engine, base, baseline_group
        self.capacity, self.at_once = capacity, max(capacity, at_once or 1)
        self._engines: dict[str, WarmEngine] = {}
        self._refused: dict[str, EngineError] = {}
        self._lost_starts: dict[str, int] = {}
        self._starting: list[Engine] = []

    @property
    def groups(self) -> list[Point]:
        """Those whose engines are there."""
        return [engine.group for engine in self._engines.values()]

    @property
    def engines(self) -> list[Engine]:
        """The engines themselves."""
        return [engine.engine for engine in self._engines.values()]

    def get(self, group: Point) -> WarmEngine:
        """The engine of a group, started if it is not there.

        Raises:
            EngineError: It does not start, now or earlier; or it was lost while it did.
            BaselineError: It is the baseline's, without which nothing can be compared.
        """
        key = _key(group)
        if key in self._refused:
            raise self._refused[key]
        if key not in self._engines:
            baseline = _key(self._baseline_group)
            # The baseline's stays, unless there is room for one alone.
            for other in [name for name in self._engines if self.capacity == 1 or baseline not in (name, key)]:
                self._engines.pop(other).engine.stop()
            while len(self._engines) >= self.capacity:
                oldest = next(name for name in self._engines if name != baseline)
                self._engines.pop(oldest).engine.stop()
            self._engines[key] = self._start(group, key)
        return self._engines[key]

    def start_anew(self, groups: Sequence[Point]) -> None:
        """Stop every engine, and start one for each of the groups, all at the same time.

        Args:
            groups: From 1 to ``at_once``. They may name live knobs too, with the values to start with.

        Raises:
            EngineError, BaselineError: As ``get``; none of the engines is left then. Of two that were started together
                one counts as lost, whatever it was, and from then on ``at_once`` is 1: it may have been in the other's
                way.
        """
        wanted = {_key(group): group for group in groups}
        if refused := [self._refused[key] for key in wanted if key in self._refused]:
            raise refused[0]
        self.stop_all()
        starts: dict[str, Future[WarmEngine]] = {}
        with ThreadPoolExecutor(len(wanted), "engine-start") as threads:
            try:
                for key, group in wanted.items():
                    starts[key] = threads.submit(self._start, group, key)
                self._engines |= {key: start.result() for key, start in starts.items()}
            except BaseException as error:
                self._give_up(list(starts.values()), is_interrupt=not isinstance(error, Exception))
                failure = error.__cause__ if isinstance(error, BaselineError) else error
                if len(wanted) > 1 and isinstance(failure, EngineError):
                    self.at_once = 1
                    for key in wanted:
                        self._refused.pop(key, None)
                    detail = f"{failure.detail} (two engines were started together)"
                    raise EngineError(failure.label, detail, lost=True, log_path=failure.log_path) from error
                raise

    def _give_up(self, starts: Sequence[Future[WarmEngine]], *, is_interrupt: bool) -> None:
        """Leave no engine of these starts. An interrupt does not wait for them; one that is about to start cannot be
        stopped yet."""
        while wait(starts, timeout=_POLL_S).not_done:
            for engine in list(self._starting) if is_interrupt else []:
                engine.abort()
        for start in starts:
            if start.exception() is None:
                start.result().engine.abort()

    def discard(self, engine: WarmEngine) -> None:
        """Stop one engine at once, because it is lost. The others stay warm."""
        self._engines.pop(_key(engine.group)).engine.abort()

    def discard_all(self) -> None:
        """Stop every engine at once, without waiting for what it is doing."""
        while self._engines:
            self._engines.popitem()[1].engine.abort()

    def stop_all(self) -> None:
        """Stop every engine in good order."""
        while self._engines:
            self._engines.popitem()[1].engine.stop()

    def _start(self, group: Point, key: str) -> WarmEngine:
        error: EngineError | None = None
        while True:
            engine = self._make_engine()
            self._starting.append(engine)
            try:
                info = engine.start(engine_config(self._base, group))
            except EngineError as failure:
                if failure.lost and not self._is_lost_too_often(key, failure):
                    raise
                if error is None and not failure.lost and failure.label not in CERTAIN_LABELS:
                    error = failure
                    continue
                if key == _key(self._baseline_group):
                    raise BaselineError(f"the baseline's engine does not start: {failure}") from failure
                self._refused[key] = EngineError(failure.label, failure.detail, log_path=failure.log_path)
                raise self._refused[key] from failure
            finally:
                self._starting.remove(engine)
            self._lost_starts.pop(key, None)
            return WarmEngine(group, engine, info)

    def _is_lost_too_often(self, key: str, failure: EngineError) -> bool:
        if failure.label != "no-room":
            self._lost_starts[key] = self._lost_starts.get(key, 0) + 1
        return self._lost_starts.get(key, 0) >= MOST_LOST_STARTS


def _key(group: Point) -> str:
    return json.dumps(dict(group), sort_keys=True)
