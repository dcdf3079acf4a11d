"""The kernel lab as an engine: real prefill attention, in this process, on the device that it is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch

from orchestrator.engines.contract import EngineConfig, EngineError, EngineInfo, KnobValue, StopRule
from orchestrator.engines.kernel_lab import reports
from orchestrator.engines.kernel_lab.args import CHUNK_ORDERS, LabArgs, lab_args
from orchestrator.engines.kernel_lab.counters import LabBlockResult, LabInForce
from orchestrator.engines.kernel_lab.dcp.group import MakePeers, SpawnedPeers
from orchestrator.engines.kernel_lab.dcp.peers import Peers
from orchestrator.engines.kernel_lab.dcp.rank import RankSetup
from orchestrator.engines.kernel_lab.dcp.share import Share
from orchestrator.engines.kernel_lab.errors import LabError
from orchestrator.engines.kernel_lab.failures import engine_error
from orchestrator.engines.kernel_lab.machine import device_named, pin, shared_cores
from orchestrator.engines.kernel_lab.model import LabModel
from orchestrator.engines.kernel_lab.roof import Roof, measure_roof
from orchestrator.engines.kernel_lab.scheduler import Limits, StepScheduler
from orchestrator.engines.kernel_lab.service import Service
from orchestrator.engines.live import check_live_values
from orchestrator.engines.streaming import Driven, drive
from orchestrator.planning import warm_up
from orchestrator.workloads import Request, Schedule

_DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


@dataclass
class _Started:
    """What there is between a start and a stop."""

    args: LabArgs
    model: LabModel
    peers: Peers | None
    executor: ThreadPoolExecutor
    roof: Roof
    limits: Limits
    start_force: LabInForce
    force: LabInForce


class KernelLabEngine:
    """The contract of ``orchestrator.engines.Engine``.

    ``EngineConfig.args`` are those of :class:`LabArgs`; ``model`` and ``env`` have no effect.

    The engine is the layers' attention alone: no projections, no experts, no sampling beyond the largest of a seeded
    projection. Steps are computed on a thread of its own, so that requests are taken on and stamped while one runs.
    With ``decode_context_parallel_size`` above 1 it is rank 0 of so many; counters are of this rank.

    Args:
        make_peers: How the other ranks are made.
    """

    def __init__(self, engine_id: str, log_path: str, *, make_peers: MakePeers = SpawnedPeers) -> None:
        self._make_peers = make_peers
        self._engine_id, self._log_path = engine_id, log_path
        self._started: _Started | None = None
        self._is_aborted = threading.Event()
        self._block: tuple[asyncio.AbstractEventLoop, Service] | None = None

    def start(self, config: EngineConfig) -> EngineInfo:
        begin = time.perf_counter()
        self._is_aborted.clear()
        try:
            args = lab_args(config.args)
            device = device_named(args.device)
            cores = shared_cores(args.cores, 0, args.decode_context_parallel_size)
            executor = ThreadPoolExecutor(1, self._engine_id, initializer=pin, initargs=(args.threads, cores))
            peers = None
            try:
                roof, dtype = executor.submit(measure_roof, device, _DTYPES.get(args.dtype)).result()
                setup = RankSetup(args, config.plugin, dtype, device)
                peers = self._make_peers(setup) if setup.ranks > 1 else None
                model = executor.submit(_model, setup, peers).result()
            except BaseException:
                if peers is not None:
                    peers.close()
                executor.shutdown()
                raise
        except (LabError, RuntimeError, OSError, MemoryError) as error:
            raise self._translated(error, "engine-start") from error
        warm_up()
        limits = Limits(args.max_num_batched_tokens, args.max_num_seqs, args.long_prefill_token_threshold)
        force = reports.in_force(args, model, limits, cpu_chunked_prefill=config.plugin.cpu_chunked_prefill)
        self._started = _Started(args, model, peers, executor, roof, limits, force, force)
        resolved = reports.resolved(args, model, roof, dtype)
        start_s = time.perf_counter() - begin
        self._log(f"started in {start_s:.2f} s: {json.dumps(resolved)}")
        return EngineInfo(
            engine_id=self._engine_id,
            kind="kernel_lab",
            version=args.vllm,
            host=socket.gethostname(),
            log_path=self._log_path,
            vocab_size=args.vocab_size,
            max_model_len=args.max_model_len,
            block_size=args.tokens_per_block,
            dcp=args.decode_context_parallel_size,
            interleave=args.cp_kv_cache_interleave_size,
            index_topk=args.index_topk if args.mla_kind == "sparse" else None,
            in_force=force,
            resolved=resolved,
            start_s=start_s,
        )

    def retune(self, live_values: Mapping[str, KnobValue]) -> float:
        """As in the contract, and ``chunk_order``, one of ``CHUNK_ORDERS``."""
        started = self._require_running()
        begin = time.perf_counter()
        others = dict(live_values)
        order = others.pop("chunk_order", None)
        if order is not None and order not in CHUNK_ORDERS:
            raise ValueError(f"chunk_order must be one of {', '.join(CHUNK_ORDERS)}, got {order!r}")
        values = check_live_values(others, started.start_force)
        start = started.args
        limits = Limits(
            _or(values["max_num_batched_tokens"], start.max_num_batched_tokens),
            _or(values["max_num_seqs"], start.max_num_seqs),
            _or(values["long_prefill_token_threshold"], start.long_prefill_token_threshold),
        )
        try:
            started.model.retune(
                cap=values["mla_workspace_rows"],
                max_num_seqs=limits.max_num_seqs,
                prefill_chunk_size=values["prefill_chunk_size"],
                prefill_area_limit=values["prefill_area_limit"],
                order=order if isinstance(order, str) else None,
            )
        except LabError as error:
            raise self._translated(error, "engine-error") from error
        started.limits = limits
        started.force = reports.in_force(
            start, started.model, limits, cpu_chunked_prefill=started.start_force.cpu_chunked_prefill
        )
        return time.perf_counter() - begin

    def run(
        self, requests: Sequence[Request], schedule: Schedule, *, top2: bool = False, stop: StopRule | None = None
    ) -> LabBlockResult:
        started = self._require_running()
        started_at = datetime.now(UTC)
        started.model.begin_block()
        try:
            driven, scheduler = asyncio.run(self._run(started, requests, schedule, top2, stop))
            lab = started.model.end_block(started.roof)
        except EngineError as error:
            self._log(str(error))
            self.stop()
            raise
        except LabError as error:
            self.stop()
            raise self._translated(error, "engine-error") from error
        return LabBlockResult(
            started_at=started_at,
            duration_s=driven.duration_s,
            requests=driven.timelines,
            in_force=started.force,
            counters=reports.counters(started.model, scheduler),
            stopped=driven.stopped,
            lab=lab,
        )

    def stop(self) -> None:
        started, self._started = self._started, None
        if started is not None:
            started.executor.shutdown()
            if started.peers is not None:
                started.peers.close()

    def abort(self) -> None:
        self._is_aborted.set()
        if (block := self._block) is not None:
            loop, service = block
            # The block may have ended a moment ago, and its loop with it.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(service.wake)
        started, self._started = self._started, None
        if started is not None:
            started.executor.shutdown(wait=False)
            if started.peers is not None:
                started.peers.close()

    async def _run(
        self,
        started: _Started,
        requests: Sequence[Request],
        schedule: Schedule,
        top2: bool,
        stop: StopRule | None,
    ) -> tuple[Driven, StepScheduler]:
        longest = min(started.args.max_model_len, started.model.largest_request())
        service = Service(
            started.model, started.executor, started.limits, longest=longest, top2=top2, check=self._check
        )
        self._block = asyncio.get_running_loop(), service
        driving = asyncio.create_task(drive(service.stream, requests, schedule, stop=stop))
        serving = asyncio.create_task(service.serve())
        try:
            await asyncio.wait({driving, serving}, return_when=asyncio.FIRST_COMPLETED)
            if not driving.done():
                failure = self._failure_of(serving)
                service.fail(failure)
                if service.in_flight == 0:
                    # Nothing would tell the load generator before the next request is due.
                    driving.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await driving
                raise failure
            return driving.result(), service.scheduler
        finally:
            self._block = None
            for task in (driving, serving):
                task.cancel()
            await asyncio.gather(driving, serving, return_exceptions=True)
            # After an abort the executor takes nothing on, and the blocks go with the model.
            with contextlib.suppress(RuntimeError):
                await service.close()

    def _check(self) -> None:
        if self._is_aborted.is_set():
            raise LabError("aborted", "the engine was aborted")

    def _failure_of(self, serving: asyncio.Task[None]) -> EngineError:
        error = serving.exception()
        assert error is not None
        if self._is_aborted.is_set():
            # Whatever it says: the executor was taken away under it.
            error = LabError("aborted", "the engine was aborted")
        failure = self._translated(error, "engine-error")
        failure.__cause__ = error
        return failure

    def _translated(self, error: BaseException, label: str) -> EngineError:
        return engine_error(error, label, self._log_path)

    def _require_running(self) -> _Started:
        if self._started is None:
            raise EngineError("engine-dead", "the engine is not running", lost=True, log_path=self._log_path)
        return self._started

    def _log(self, line: str) -> None:
        with Path(self._log_path).open("a", encoding="utf-8") as log:
            log.write(f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {self._engine_id} {line}\n")


def _model(setup: RankSetup, peers: Peers | None) -> LabModel:
    share = None if peers is None else Share(peers.collective, setup.args.cp_kv_cache_interleave_size)
    return LabModel(setup.args, setup.plugin, setup.dtype, setup.device_of(0), share=share, peers=peers)


def _or(value: int | None, start: int) -> int:
    return start if value is None else value
