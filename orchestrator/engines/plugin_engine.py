"""What every engine with vLLM behind it has in common: a loop of its own, and the plugin that tunes it and counts."""

from __future__ import annotations

import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any, ClassVar, Final, TypeVar

from orchestrator.engines.background import BackgroundLoop
from orchestrator.engines.contract import (
    BlockResult,
    EngineError,
    EngineInfo,
    InForce,
    KnobValue,
    StopRule,
)
from orchestrator.engines.live import check_live_values
from orchestrator.engines.reports import Reports, in_force
from orchestrator.workloads import Request, Schedule

T = TypeVar("T")

DEATH_POLL_S: Final = 0.5
"""How often a waiting RPC looks whether the engine core is still there."""

CORE_GONE: Final = "vLLM's engine core is gone"


class PluginEngine(ABC):
    """The half of the contract of ``orchestrator.engines.Engine`` that does not depend on how vLLM is reached.

    Attributes:
        kind: Name of this way to reach it, as specs and records have it.
    """

    kind: ClassVar[str]

    def __init__(self, engine_id: str, log_path: str) -> None:
        self._engine_id, self._log_path = engine_id, log_path
        self._loop = BackgroundLoop(f"{self.kind}-loop")
        self._start_values = InForce()

    def retune(self, live_values: Mapping[str, KnobValue]) -> float:
        self._require_running()
        # Checked here, before the first of two processes is told: what one of them refuses, none of them has.
        return self._await(self._timed(check_live_values(live_values, self._start_values)))

    def run(
        self, requests: Sequence[Request], schedule: Schedule, *, top2: bool = False, stop: StopRule | None = None
    ) -> BlockResult:
        self._require_running()
        return self._await(self._run(requests, schedule, top2, stop))

    @property
    @abstractmethod
    def _is_running(self) -> bool:
        """Whether there is a vLLM to talk to."""

    @abstractmethod
    async def _retune(self, values: Mapping[str, int | None]) -> None:
        """Put values that were checked into force."""

    @abstractmethod
    async def _run(
        self, requests: Sequence[Request], schedule: Schedule, top2: bool, stop: StopRule | None
    ) -> BlockResult:
        """Serve one block."""

    def _info(self, reports: Reports, begin: float, facts: Mapping[str, Any]) -> EngineInfo:
        """What a start tells, from the first reports.

        Args:
            begin: When the start began, by ``time.perf_counter``.
            facts: What vLLM's configuration says, by the names of ``EngineInfo``.

        Raises:
            EngineError: The plugin refused something.
        """
        for report in (*reports[0], reports[1]):
            if report["refused"]:
                raise EngineError("plugin-refused", report["refused"], log_path=self._log_path)
        return EngineInfo(
            engine_id=self._engine_id,
            kind=self.kind,
            host=socket.gethostname(),
            log_path=self._log_path,
            in_force=in_force(reports),
            start_s=time.perf_counter() - begin,
            **facts,
        )

    def _dead(self, detail: str = CORE_GONE) -> EngineError:
        return EngineError("engine-dead", detail, lost=True, log_path=self._log_path)

    def _require_running(self) -> None:
        if not self._is_running:
            raise self._dead("the engine is not running")

    def _await(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._loop.wait_for(work)
        except CancelledError as error:
            raise self._dead("the engine was aborted") from error

    async def _timed(self, values: Mapping[str, int | None]) -> float:
        begin = time.perf_counter()
        await self._retune(values)
        return time.perf_counter() - begin
