"""A real vLLM engine in this process and its children: AsyncLLM with our plugin's worker extension."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import re
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.engines.contract import BlockResult, EngineConfig, EngineError, EngineInfo, StopRule
from orchestrator.engines.plugin_engine import DEATH_POLL_S, PluginEngine
from orchestrator.engines.reports import Reports, counters, in_force
from orchestrator.engines.streaming import RequestFailed, StreamChunk, drive
from orchestrator.vllm_plugin import WORKER_EXTENSION, calls
from orchestrator.workloads import Prompt, Request, Schedule

T = TypeVar("T")

QUIET_ENV = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
"""Set for every engine: nothing is sent to anybody, and every process is a fresh one that carries the engine's own
environment."""

_SECRET = re.compile(r"(^|_)(KEY|TOKEN|SECRET|PASSWORD)(_|$)", re.IGNORECASE)


class VllmEngine(PluginEngine):
    """The contract of ``orchestrator.engines.Engine``. One engine for one object, and one object for one process.

    ``start`` changes the environment of its process and patches vLLM there. ``abort`` ends a block that another thread
    waits for; a start it cannot end.
    """

    kind = "vllm"

    def __init__(self, engine_id: str, log_path: str) -> None:
        super().__init__(engine_id, log_path)
        self._environment: tuple[str, ...] = ()
        self._llm: Any = None
        self._requests = 0
        # What was counted up to the end of the last block. Nobody else sends requests, so the next block begins there.
        self._counted: Reports | None = None

    def start(self, config: EngineConfig) -> EngineInfo:
        begin = time.perf_counter()
        os.environ.update(engine_environment(config))
        self._environment = tuple(config.env)
        try:
            info = self._await(self._start(config, begin))
        except EngineError:
            self.stop()
            raise
        except Exception as error:
            # vLLM's start may fail with almost anything; the contract has one error for it.
            self.stop()
            detail = " ".join(f"{type(error).__name__}: {error}".split())[:400]
            raise EngineError("engine-start", detail, log_path=self._log_path) from error
        self._start_values = info.in_force
        return info

    def stop(self) -> None:
        llm, self._llm = self._llm, None
        if llm is not None:
            # vLLM kills workers that are late, and returns before they are gone.
            family = _family(llm)
            self._await(_call(llm.shutdown, timeout=0.0))
            _kill(family)
        self._loop.close()

    def abort(self) -> None:
        if self._llm is not None:
            _kill(_family(self._llm))
        self._loop.cancel_all()
        self.stop()

    async def _start(self, config: EngineConfig, begin: float) -> EngineInfo:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        additional = {**config.args.get("additional_config", {}), **config.plugin.additional_config()}
        args = {
            **config.args,
            "model": config.model,
            "additional_config": additional,
            "worker_extension_cls": WORKER_EXTENSION,
        }
        self._llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**args))
        reports = await self._reports()
        info = self._info(reports, begin, calls.facts(self._llm.vllm_config, self._environment))
        launch = {"engine_args": args, "environment": recorded(engine_environment(config))}
        return dataclasses.replace(info, resolved={**info.resolved, "launch": launch})

    @property
    def _is_running(self) -> bool:
        return self._llm is not None

    async def _retune(self, values: Mapping[str, int | None]) -> None:
        await self._answer(calls.retune(self._llm, values))

    async def _run(
        self, requests: Sequence[Request], schedule: Schedule, top2: bool, stop: StopRule | None
    ) -> BlockResult:
        if self._llm.vllm_config.cache_config.enable_prefix_caching and not await self._llm.reset_prefix_cache():
            raise EngineError("cache-reset", "vLLM did not empty its prefix cache", log_path=self._log_path)
        before = self._counted or await self._reports()
        self._counted = None
        started_at = datetime.now(UTC)

        def stream(_index: int, prompt: Prompt) -> AsyncIterator[StreamChunk]:
            return self._stream(prompt, top2)

        driven = await drive(stream, requests, schedule, stop=stop)
        after = self._counted = await self._reports()
        return BlockResult(
            started_at=started_at,
            duration_s=driven.duration_s,
            requests=driven.timelines,
            in_force=in_force(after),
            counters=counters(before, after),
            stopped=driven.stopped,
        )

    async def _stream(self, prompt: Prompt, top2: bool) -> AsyncIterator[StreamChunk]:
        from vllm import SamplingParams
        from vllm.exceptions import VLLMError
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.exceptions import EngineDeadError

        sampling = SamplingParams(
            temperature=0.0,
            max_tokens=prompt.output_len,
            ignore_eos=True,
            detokenize=False,
            logprobs=2 if top2 else None,
            output_kind=RequestOutputKind.DELTA,
        )
        self._requests += 1
        request_id = f"{self._engine_id}-{self._requests}"
        try:
            async for output in self._llm.generate(
                {"prompt_token_ids": list(prompt.token_ids)}, sampling, request_id=request_id
            ):
                completion = output.outputs[0]
                gaps = _gaps(completion.logprobs) if top2 else None
                yield StreamChunk(list(completion.token_ids), gaps, output.num_cached_tokens or 0)
        except EngineDeadError as error:
            raise self._dead() from error
        except (VLLMError, ValueError) as error:
            # The input is refused with either, depending on what is wrong with it. What vLLM wraps has no text itself.
            raise RequestFailed(str(error) or repr(error.__cause__)) from error

    async def _reports(self) -> Reports:
        return await self._answer(calls.reports(self._llm))

    async def _answer(self, call: Coroutine[Any, Any, T]) -> T:
        """Wait for an RPC. vLLM leaves it open for ever when the engine core dies before it answers."""
        from vllm.v1.engine.exceptions import EngineDeadError

        task = asyncio.ensure_future(call)
        while not task.done():
            await asyncio.wait({task}, timeout=DEATH_POLL_S)
            if self._llm.errored and not task.done():
                task.cancel()
                raise self._dead()
        try:
            return task.result()
        except EngineDeadError as error:
            raise self._dead() from error


def engine_environment(config: EngineConfig) -> dict[str, str]:
    """What is set in the environment of every process of an engine; a model in a folder needs no hub."""
    offline = {"HF_HUB_OFFLINE": "1"} if Path(config.model).is_dir() else {}
    return {**QUIET_ENV, **offline, **config.env}


def recorded(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment as it may be kept in a file: what looks like a secret is not."""
    return {name: "***" if _SECRET.search(name) else value for name, value in environment.items()}


async def _call(function: Any, **kwargs: Any) -> None:
    function(**kwargs)


def _family(llm: Any) -> list[Any]:
    """The engine cores' processes and all that they started."""
    import psutil

    found = []
    for root in llm.engine_core.resources.engine_manager.processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(root.pid)
            found += [process, *process.children(recursive=True)]
    return found


def _kill(processes: Sequence[Any]) -> None:
    """SIGKILL, and wait until they are gone."""
    import psutil

    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=10.0)


def _gaps(logprobs: Any) -> list[float]:
    """Difference of the two best log probabilities at each position of a chunk."""
    gaps = []
    for position in logprobs:
        best = sorted((entry.logprob for entry in position.values()), reverse=True)
        gaps.append(best[0] - best[1])
    return gaps
