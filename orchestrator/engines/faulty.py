"""A fake engine whose only purpose is to inject faults into the tests of the loop. It measures nothing."""

from __future__ import annotations

import dataclasses
import heapq
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from orchestrator.engines.contract import (
    BlockResult,
    Counters,
    EngineConfig,
    EngineError,
    EngineInfo,
    InForce,
    KnobValue,
    RequestTimeline,
    StopRule,
)
from orchestrator.engines.live import check_live_values
from orchestrator.planning import LAYER_TYPES, area_limit, dense_workspace_rows, fcfs_steps, plan_prefill_chunks
from orchestrator.workloads import Prompt, Request, Schedule

BLOCK_SIZE = 16
LAYERS = 2
VOCAB_SIZE = 10_240
DEFAULT_ARGS = {"max_model_len": 16_384, "max_num_batched_tokens": 2_048, "max_num_seqs": 128}
"""Used where the configuration names no value."""

COMPRESS_RATIO = LAYER_TYPES["c4a"].compress_ratio
WINDOW = 128
"""Tokens for each compressed row and of the sliding window, where prefills are planned by area."""

LATENT_BYTES = 576 * 2
"""One workspace row: 512 + 64 numbers of 2 bytes."""

_GAP = 1.0
"""Difference of the two best log probabilities at every position: wide, so that no wrong token is excused."""

_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What goes wrong in one engine. Blocks are counted from 0 over that engine's life; warm-up blocks count.

    Attributes:
        start_error: Raised by ``start``.
        start_error_if: Limits ``start_error`` to some configurations; None means every one.
        run_errors: Raised by ``run`` in place of a block, by block: an ``EngineError``, after which the engine is
            dead, or for instance ``KeyboardInterrupt()``, after which it lives on.
        failed_requests: Indices of the requests that fail, by block.
        cached_tokens: Prompt tokens of every request that the prefix cache served, by block.
        workspace_unused: The workspace path is never entered, as with chunked prefill off.
        rows_in_force: Reported as the workspace's rows, whatever was asked for.
        forced_args: Engine arguments with other values than those asked for, as vLLM does on some platforms.
        ignored_knobs: Live knobs that ``retune`` accepts and does not apply.
        wrong_tokens_if: Points (the live values last asked for) at which every second greedy token differs.
        unreserved_rows: The engine plans its prefills by area, as C4A layers of DeepSeek-V4 do, and the area limit of
            its start exceeds the rows that it reserved and locked by so many: a step with a wider chunk kills it. None
            plans nothing by area.
    """

    start_error: EngineError | None = None
    start_error_if: Callable[[EngineConfig], bool] | None = None
    run_errors: Mapping[int, BaseException] = field(default_factory=dict)
    failed_requests: Mapping[int, Collection[int]] = field(default_factory=dict)
    cached_tokens: Mapping[int, int] = field(default_factory=dict)
    workspace_unused: bool = False
    rows_in_force: int | None = None
    forced_args: Mapping[str, Any] = field(default_factory=dict)
    ignored_knobs: Collection[str] = ()
    wrong_tokens_if: Callable[[Mapping[str, KnobValue]], bool] | None = None
    unreserved_rows: int | None = None


class FaultyEngine:
    """The contract of ``orchestrator.engines.Engine`` with faults put in, for tests of what uses an engine.

    No clock is waited for: timelines are made up. A prefill is fastest when the workspace has ``best_rows`` rows, takes
    1.08 times as long at half or twice of that and 1.78 times at 64 times as many; every scheduler step costs 1 ms on
    top. As in vLLM, only a prompt longer than ``max_num_batched_tokens`` enters the workspace path.

    Args:
        faults: What goes wrong; None for nothing.
        seed: Of the noise; two engines with one seed give equal timelines.
        best_rows: Workspace rows of the fastest prefill, at least 1.
        noise: Standard deviation of a request's speed, as a share.

    Attributes:
        config: What it was started with; None before.
        blocks: Blocks begun so far.
        retuned: Live values of each retune that was accepted.
        is_running: Between a start and a stop, abort or death.
    """

    def __init__(
        self, faults: Faults | None = None, *, seed: int = 0, best_rows: int = 1024, noise: float = 0.01
    ) -> None:
        self.faults = faults or Faults()
        self.config: EngineConfig | None = None
        self.blocks = 0
        self.retuned: list[Mapping[str, KnobValue]] = []
        self.is_running = False
        self._seed, self._best_rows, self._noise = seed, best_rows, noise
        self._engine_id = f"faulty-{seed}"
        self._max_model_len = 0
        self._start_cap: int | None = None
        self._start = self._force = InForce()
        self._asked: Mapping[str, KnobValue] = {}
        self._clock = _EPOCH

    def start(self, config: EngineConfig) -> EngineInfo:
        faults = self.faults
        if faults.start_error is not None and (faults.start_error_if is None or faults.start_error_if(config)):
            raise faults.start_error
        args = {**DEFAULT_ARGS, **config.args}
        self.config, self.is_running = config, True
        self._max_model_len = args["max_model_len"]
        self._start_cap = config.plugin.mla_workspace_rows
        self._start = InForce(
            workspace_alignment=BLOCK_SIZE,
            builders=1,
            kv_blocks=4096,
            prefill_chunk_size=config.plugin.prefill_chunk_size or 4,
            prefill_area_limit=config.plugin.prefill_area_limit,
            max_num_batched_tokens=args["max_num_batched_tokens"],
            max_num_seqs=args["max_num_seqs"],
            long_prefill_token_threshold=args.get("long_prefill_token_threshold", 0),
            cpu_chunked_prefill=config.plugin.cpu_chunked_prefill,
        )
        self._start = self._force = self._with_workspace(self._start, self._start_cap)
        return EngineInfo(
            engine_id=self._engine_id,
            kind="faulty",
            version="0.32.0",
            host="localhost",
            log_path=f"{self._engine_id}.log",
            vocab_size=VOCAB_SIZE,
            max_model_len=self._max_model_len,
            block_size=BLOCK_SIZE,
            dcp=1,
            interleave=1,
            index_topk=None,
            in_force=self._start,
            resolved={"scheduler_config": {**args, **faults.forced_args}},
            start_s=1.0,
        )

    def retune(self, live_values: Mapping[str, KnobValue]) -> float:
        self._require_running()
        values = check_live_values(live_values, self._start)
        self._asked = dict(live_values)
        self.retuned.append(self._asked)
        applied = {name: value for name, value in values.items() if name not in self.faults.ignored_knobs}
        cap = applied.pop("mla_workspace_rows", None)
        changed: dict[str, Any] = {name: value for name, value in applied.items() if value is not None}
        self._force = self._with_workspace(dataclasses.replace(self._start, **changed), cap or self._start_cap)
        return 0.001

    def run(
        self, requests: Sequence[Request], schedule: Schedule, *, top2: bool = False, stop: StopRule | None = None
    ) -> BlockResult:
        """Requests are served in their order, each prefill on its own. ``stop`` is asked every made-up second."""
        self._require_running()
        block, self.blocks = self.blocks, self.blocks + 1
        error = self.faults.run_errors.get(block)
        if error is not None:
            self.is_running = not isinstance(error, EngineError)
            raise error
        self._require_reserved(requests, schedule)
        timelines = self._timelines(block, requests, schedule, top2)
        duration = max((one.token_times_s[-1] for one in timelines if one.token_times_s), default=0.001)
        stopped = None
        for now in range(1, int(duration) + 1) if stop is not None else ():
            if (stopped := _judge(stop, timelines, now)) is not None:
                timelines, duration = [_cut(one, now) for one in timelines], float(now)
                break
        started_at, self._clock = self._clock, self._clock + timedelta(seconds=duration)
        return BlockResult(
            started_at=started_at,
            duration_s=duration,
            requests=timelines,
            in_force=self._force,
            counters=self._counters(
                [one.prompt for one, timeline in zip(requests, timelines, strict=True) if timeline.token_times_s],
                schedule,
            ),
            stopped=stopped,
        )

    def stop(self) -> None:
        self.is_running = False

    def abort(self) -> None:
        self.is_running = False

    def _require_running(self) -> None:
        if not self.is_running:
            raise EngineError("engine-dead", "the engine is gone", lost=True, log_path=f"{self._engine_id}.log")

    def _area_limit(self, chunk_size: int | None) -> int:
        return area_limit(
            prefill_chunk_size=_whole(chunk_size),
            compress_ratio=COMPRESS_RATIO,
            max_model_len=self._max_model_len,
            window=WINDOW,
            max_num_batched_tokens=_whole(self._start.max_num_batched_tokens),
        )

    def _require_reserved(self, requests: Sequence[Request], schedule: Schedule) -> None:
        """Plan the prefills of every step, as if all requests that may be in flight together were there at once, and
        die at the first chunk that was not reserved."""
        if self.faults.unreserved_rows is None:
            return
        reserved = self._area_limit(self._start.prefill_chunk_size) - self.faults.unreserved_rows
        limit = self._area_limit(self._force.prefill_chunk_size)
        if self._force.prefill_area_limit is not None:
            limit = min(limit, self._force.prefill_area_limit)
        steps = fcfs_steps(
            [(len(one.prompt.token_ids), one.prompt.output_len) for one in requests],
            max_num_batched_tokens=_whole(self._force.max_num_batched_tokens),
            max_num_seqs=min(_whole(self._force.max_num_seqs), schedule.concurrency or len(requests)),
            long_prefill_token_threshold=_whole(self._force.long_prefill_token_threshold),
        )
        for step in steps:
            # As in vLLM, one token is a decode.
            prefills = [share for share in step if share.tokens > 1]
            chunks = plan_prefill_chunks(
                [share.context + share.tokens for share in prefills],
                [share.tokens for share in prefills],
                compress_ratio=COMPRESS_RATIO,
                window=WINDOW,
                area_limit=limit,
            )
            needed = max((chunk.area for chunk in chunks), default=0)
            if needed > reserved:
                self.is_running = False
                detail = f"{needed} rows, {reserved} reserved"
                raise EngineError("workspace-locked", detail, log_path=f"{self._engine_id}.log")

    def _with_workspace(self, force: InForce, cap: int | None) -> InForce:
        rows = self.faults.rows_in_force or dense_workspace_rows(
            max_model_len=self._max_model_len, max_num_seqs=_whole(force.max_num_seqs), block_size=BLOCK_SIZE, cap=cap
        )
        return dataclasses.replace(force, workspace_rows=rows, workspace_bytes=rows * LATENT_BYTES)

    def _timelines(
        self, block: int, requests: Sequence[Request], schedule: Schedule, top2: bool
    ) -> list[RequestTimeline]:
        rng = np.random.default_rng([self._seed, block])
        failing = self.faults.failed_requests.get(block, ())
        due = schedule.times_of(len(requests))
        in_flight = [0.0] * (schedule.concurrency or max(1, len(requests)))
        served = [0.0] * _whole(self._force.max_num_seqs)
        timelines: list[RequestTimeline] = []
        for index, prompt in enumerate(request.prompt for request in requests):
            slowness = float(np.exp(rng.normal(0.0, self._noise)))
            send = max(due[index], heapq.heappop(in_flight) if schedule.is_closed else 0.0)
            if (before := requests[index].follows) is not None:
                send = max(send, (timelines[before].end_s or 0.0) + requests[index].think_s)
            error = self._request_error(index, prompt, failing)
            times: list[float] = []
            if error is None:
                first = max(send, heapq.heappop(served)) + self._prefill_s(len(prompt.token_ids)) * slowness
                times = [first + 0.002 * slowness * step for step in range(prompt.output_len)]
                heapq.heappush(served, times[-1])
            if schedule.is_closed:
                heapq.heappush(in_flight, times[-1] if times else send)
            timelines.append(
                RequestTimeline(
                    index=index,
                    prompt_tokens=len(prompt.token_ids),
                    output_tokens=len(times),
                    cached_tokens=self.faults.cached_tokens.get(block, 0),
                    arrival_s=send,
                    send_s=send,
                    first_token_s=times[0] if times else None,
                    end_s=times[-1] if times else None,
                    token_times_s=times,
                    output_token_ids=self._tokens(prompt)[: len(times)],
                    top2_gaps=[_GAP] * len(times) if top2 else None,
                    error=error,
                )
            )
        return timelines

    def _request_error(self, index: int, prompt: Prompt, failing: Collection[int]) -> str | None:
        if index in failing:
            return "injected fault"
        length = len(prompt.token_ids) + prompt.output_len
        return f"{length} tokens exceed {self._max_model_len}" if length > self._max_model_len else None

    def _prefill_s(self, prompt_tokens: int) -> float:
        distance = np.log2(_whole(self._force.workspace_rows) / self._best_rows)
        steps = _ceil_div(prompt_tokens, _whole(self._force.max_num_batched_tokens))
        return float(prompt_tokens * 1e-5 * (1.0 + 0.02 * distance**2 + 0.06 * min(abs(distance), 1.0)) + steps * 1e-3)

    def _tokens(self, prompt: Prompt) -> list[int]:
        rng = np.random.default_rng(zlib.crc32(np.asarray(prompt.token_ids, dtype=np.int64).tobytes()))
        tokens = [int(token) for token in rng.integers(10, VOCAB_SIZE, size=prompt.output_len)]
        if self.faults.wrong_tokens_if is not None and self.faults.wrong_tokens_if(self._asked):
            tokens[::2] = [token ^ 1 for token in tokens[::2]]
        return tokens

    def _counters(self, served: Sequence[Prompt], schedule: Schedule) -> Counters:
        """As if every prompt were prefilled alone; the context of each step after its first is what was cached."""
        budget, rows = _whole(self._force.max_num_batched_tokens), _whole(self._force.workspace_rows)
        contexts = [context for prompt in served for context in range(budget, len(prompt.token_ids), budget)]
        used = not self.faults.workspace_unused
        slots = schedule.concurrency or len(served)
        threshold = _whole(self._force.long_prefill_token_threshold)
        # As in vLLM, the threshold leaves a request alone that is the only one.
        is_cut = 0 < threshold < budget and min(slots, len(served)) > 1
        return Counters(
            long_prefill_cuts=sum(len(prompt.token_ids) > threshold for prompt in served) if is_cut else 0,
            context_chunks=sum(_ceil_div(context, rows) for context in contexts) if used else 0,
            workspace_entries=LAYERS * len(contexts) if used else 0,
            area_plans=len(served) + len(contexts) if self.faults.unreserved_rows is not None else 0,
            scheduler_steps=len(contexts) + sum(prompt.output_len for prompt in served),
            max_step_tokens=max((min(budget, len(prompt.token_ids)) for prompt in served), default=0),
            max_running_requests=min(len(served), slots, _whole(self._force.max_num_seqs)),
        )


def _judge(stop: StopRule | None, timelines: Sequence[RequestTimeline], now: float) -> str | None:
    """What a rule says at a time, of what is known by then."""
    sent = [one for one in timelines if one.send_s <= now]
    if stop is None or not sent:
        return None

    def known(time_s: float | None) -> float:
        return time_s if time_s is not None and time_s <= now else float("nan")

    firsts, ends = [known(one.first_token_s) for one in sent], [known(one.end_s) for one in sent]
    return stop([one.send_s for one in sent], firsts, ends, now)


def _cut(one: RequestTimeline, now: float) -> RequestTimeline:
    """A timeline as it is when its block ends at a time."""
    if one.end_s is not None and one.end_s <= now:
        return one
    times = [time_s for time_s in one.token_times_s if time_s <= now]
    return dataclasses.replace(
        one,
        output_tokens=len(times),
        first_token_s=times[0] if times else None,
        end_s=None,
        token_times_s=times,
        output_token_ids=one.output_token_ids[: len(times)],
        error=f"{'cancelled' if one.send_s <= now else 'not_sent'}: the block was ended early",
    )


class FaultyEngines:
    """Makes engines for a pool: the first with the first ``Faults``, and so on; further ones have none.

    Attributes:
        made: Every engine in the order of its making.
    """

    def __init__(self, *faults: Faults, seed: int = 0, best_rows: int = 1024, noise: float = 0.01) -> None:
        self.made: list[FaultyEngine] = []
        self._faults = faults
        self._seed, self._best_rows, self._noise = seed, best_rows, noise

    def __call__(self) -> FaultyEngine:
        number = len(self.made)
        faults = self._faults[number] if number < len(self._faults) else None
        # Two engines differ in their noise, as two real ones do.
        engine = FaultyEngine(faults, seed=self._seed + number, best_rows=self._best_rows, noise=self._noise)
        self.made.append(engine)
        return engine


def _whole(value: int | None) -> int:
    assert value is not None
    return value


def _ceil_div(number: int, divisor: int) -> int:
    return -(-number // divisor)
