"""What a benchmark puts under load: a server that somebody else started, or a spec's engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

from orchestrator.engines import BlockResult, Counters, EngineConfig, EngineError, InForce, RequestTimeline, StopRule
from orchestrator.errors import ChunksmithError
from orchestrator.measurement.loadgen import Target, run_load
from orchestrator.search import Point, Space
from orchestrator.sweep.bench.plan import engine_group
from orchestrator.sweep.knob_check import LABEL, not_in_force
from orchestrator.sweep.pool import EnginePool, MakeEngine, WarmEngine
from orchestrator.sweep.serving import Serving, TrialFailure
from orchestrator.sweep.spec import SweepSpec
from orchestrator.workloads import Request, Schedule


class ServeFailure(ChunksmithError):
    """A target failed, and serves no more.

    Attributes:
        label: Failure class.
        lost: Another try may well do better.
        log_path: Log of the engine; None for a server that is not ours.
        result: What is left of the block that it ended.
    """

    def __init__(
        self,
        label: str,
        detail: str,
        *,
        lost: bool,
        log_path: str | None = None,
        result: BlockResult,
    ) -> None:
        super().__init__(f"{label}: {detail}" + (f" (engine log: {log_path})" if log_path else ""))
        self.label, self.detail, self.lost, self.log_path, self.result = label, detail, lost, log_path, result


class BenchTarget(Protocol):
    """Something that serves blocks.

    Attributes:
        name: In the records: the engine's id, or the server's URL.
        vocab_size: Token ids of prompts are below this.
        point: Knobs and their values; empty where they are not known.
        group: Those of them with engine scope.
        log_path: Log of the engine; None for a server that is not ours.
        empties_cache: Its prefix cache is emptied before each block.
    """

    empties_cache: bool
    name: str
    vocab_size: int
    point: Point
    group: Point
    log_path: str | None

    def serve(
        self, requests: Sequence[Request], schedule: Schedule, *, stop: StopRule | None
    ) -> tuple[float, BlockResult]:
        """Seconds of setting the point, and the block. Raises ServeFailure."""

    def describe(self) -> dict[str, Any]:
        """As it is written to JSON."""

    def config(self) -> EngineConfig | None:
        """What the engine was started with; None for a server that is not ours."""


class UrlTarget:
    """An OpenAI-compatible server that was there before us.

    Args:
        vocab_size: No endpoint of the protocol tells it.
    """

    empties_cache = False
    group: Point
    point: Point

    def __init__(self, target: Target, *, vocab_size: int) -> None:
        self._target = target
        self.name = public_url(target.url)
        self.vocab_size = vocab_size
        self.point, self.group = {}, {}
        self.log_path: str | None = None

    def serve(
        self, requests: Sequence[Request], schedule: Schedule, *, stop: StopRule | None
    ) -> tuple[float, BlockResult]:
        started_at = datetime.now(UTC)
        try:
            found = run_load(self._target, requests, schedule, stop=stop)
        except ChunksmithError as error:
            raise ServeFailure("server-gone", str(error), lost=True, result=_remains([], started_at)) from error
        result = BlockResult(
            started_at=found.started_at,
            duration_s=found.duration_s,
            requests=found.requests,
            in_force=InForce(),
            counters=Counters(),
            stopped=found.stopped,
        )
        if found.lost is not None:
            raise ServeFailure("server-gone", f"{self.name}: {found.lost}", lost=True, result=result)
        return 0.0, result

    def describe(self) -> dict[str, Any]:
        return {"kind": "url", "url": self.name, "model": self._target.model, "vocab_size": self.vocab_size}

    def config(self) -> EngineConfig | None:
        return None


class EngineTarget:
    """A spec's engine at the spec's baseline. It is started by ``with`` and stopped at its end.

    Args:
        on_start: Called with the engine when it has started.
    """

    empties_cache = True
    point: Point
    group: Point

    def __init__(
        self, spec: SweepSpec, make_engine: MakeEngine, on_start: Callable[[WarmEngine], None] | None = None
    ) -> None:
        self._spec, self._on_start = spec, on_start
        self._config = spec.engine_config()
        self.point, self.group = spec.baseline_point(), engine_group(spec)
        self._pool = EnginePool(make_engine, self._config, self.group, capacity=1)
        self._serving = Serving(spec, self._pool)
        self.name, self.vocab_size = "", 0
        self.log_path: str | None = None
        # Knobs that the baseline leaves out keep whatever the engine starts with.
        asked = [knob for knob in spec.search_space().knobs if self.point.get(knob.name) is not None]
        self._asked = Space(tuple(asked))

    def __enter__(self) -> Self:
        """Raises ChunksmithError when the engine does not start."""
        try:
            self._engine = self._pool.get(self.group)
        except BaseException:
            self._pool.discard_all()
            raise
        info = self._engine.info
        self.name, self.vocab_size, self.log_path = info.engine_id, info.vocab_size, info.log_path
        if self._on_start is not None:
            self._on_start(self._engine)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._pool.stop_all()
        else:
            self._pool.discard_all()

    def serve(
        self, requests: Sequence[Request], schedule: Schedule, *, stop: StopRule | None
    ) -> tuple[float, BlockResult]:
        started_at, log_path = datetime.now(UTC), self.log_path
        try:
            retune_s, result = self._serving.run(self._engine, self.point, requests, schedule, stop=stop)
        except (EngineError, TrialFailure) as error:
            partial = error.partial if isinstance(error, EngineError) else []
            remains = _remains(partial, started_at)
            raise ServeFailure(error.label, error.detail, lost=error.lost, log_path=log_path, result=remains) from error
        if reason := not_in_force(self._asked, self.point, self._spec.engine.plugin, self._engine.info, result):
            raise ServeFailure(LABEL, reason, lost=False, log_path=log_path, result=result)
        return retune_s, result

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "engine",
            "engine_id": self.name,
            "model": self._config.model,
            "point": dict(self.point),
            "log": self.log_path,
        }

    def config(self) -> EngineConfig | None:
        return self._config


def public_url(url: str) -> str:
    """A URL without the user and the password that it may hold: it goes to records."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _remains(requests: Sequence[RequestTimeline], started_at: datetime) -> BlockResult:
    """A block of which only timelines are left; it lasts as long as they show."""
    last = max((one.token_times_s[-1] for one in requests if one.token_times_s), default=0.0)
    return BlockResult(
        started_at=started_at,
        duration_s=max(last, 1e-6),
        requests=requests,
        in_force=InForce(),
        counters=Counters(),
    )
