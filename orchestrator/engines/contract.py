"""What an engine is to the rest of Chunksmith: started with engine-scope values, retuned, run for a block, stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from orchestrator.errors import ChunksmithError
from orchestrator.planning import dense_workspace_rows, rule_for_vllm, sparse_workspace_rows
from orchestrator.vllm_plugin import PluginSettings
from orchestrator.workloads import Request, Schedule

KnobValue = bool | int | float | str | None
"""One value of a knob; None means vLLM's own default."""


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Everything that is fixed when an engine starts.

    Attributes:
        model: Folder of the model, or its name on a hub.
        args: Fields of vLLM's ``AsyncEngineArgs``.
        env: Environment of every process of the engine.
        plugin: Settings of our plugin.
    """

    model: str
    args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    plugin: PluginSettings = field(default_factory=PluginSettings)


@dataclass(frozen=True, kw_only=True)
class InForce:
    """What the engine really runs with, read back from the objects that serve requests; None where there is no such
    thing.

    ``workspace_bytes`` is the sum over all builders of one worker; ``kv_blocks`` counts blocks of one worker.
    ``disagreement`` names the first value in which workers or builders differ, with the smallest and the largest; the
    smallest stands in its field then.
    """

    workspace_rows: int | None = None
    workspace_bytes: int | None = None
    workspace_alignment: int | None = None
    builders: int | None = None
    kv_blocks: int | None = None
    prefill_chunk_size: int | None = None
    prefill_area_limit: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    long_prefill_token_threshold: int | None = None
    cpu_chunked_prefill: bool = False
    disagreement: str | None = None


@dataclass(frozen=True, kw_only=True)
class EngineInfo:
    """A started engine.

    Attributes:
        resolved: vLLM's own configuration after its defaults, as far as it can be written as JSON; under ``launch``
            with what it was started: its command or its arguments, and the environment.
        max_model_len: Tokens; with ``block_size``, ``dcp``, ``interleave`` and ``index_topk`` what the sizing rule
            reads.
        index_topk: Tokens that the indexer of sparse attention selects for a query; None for a model without one.
        node: Versions, processor and GPUs of the machine that runs it, which need not be the driver's.
        start_s: Seconds from the call of ``start`` until the engine could serve.
    """

    engine_id: str
    kind: str
    version: str
    host: str
    log_path: str
    vocab_size: int
    max_model_len: int
    block_size: int
    dcp: int
    interleave: int
    index_topk: int | None
    in_force: InForce
    resolved: Mapping[str, Any]
    start_s: float
    node: Mapping[str, Any] = field(default_factory=dict)

    def workspace_rows(self, *, cap: int | None, max_num_seqs: int) -> int:
        """Rows of the MLA prefill workspace that arithmetic gives on this engine; ``cap`` None is vLLM's own."""
        size = {
            "max_model_len": self.max_model_len,
            "max_num_seqs": max_num_seqs,
            "block_size": self.block_size,
            "dcp": self.dcp,
            "interleave": self.interleave,
        }
        rule = rule_for_vllm(self.version)
        if self.index_topk is None:
            return dense_workspace_rows(**size, cap=cap, rule=rule)
        return sparse_workspace_rows(**size, index_topk=self.index_topk, cap=cap, rule=rule)


@dataclass(frozen=True, kw_only=True)
class Counters:
    """What happened inside the engine during one block. The two maxima are over its steps.

    ``area_limited`` counts the prefill plans of several chunks whose area limit was below what the engine reserved for,
    ``long_prefill_cuts`` the prefills that ``long_prefill_token_threshold`` alone cut short.
    """

    context_chunks: int = 0
    workspace_entries: int = 0
    area_plans: int = 0
    area_limited: int = 0
    long_prefill_cuts: int = 0
    scheduler_steps: int = 0
    max_step_tokens: int = 0
    max_running_requests: int = 0


@dataclass(frozen=True, kw_only=True)
class RequestTimeline:
    """Raw timestamps of one request, in seconds from the start of its block.

    ``arrival_s`` is when the load meant to send it, ``send_s`` when it was sent. ``token_times_s`` has one entry for
    each chunk of the stream, which is one token unless the engine joins several. ``top2_gaps`` is the difference of
    the log probabilities of the two best tokens at each output position, where they were asked for.
    """

    index: int
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    arrival_s: float
    send_s: float
    first_token_s: float | None
    end_s: float | None
    token_times_s: Sequence[float]
    output_token_ids: Sequence[int]
    top2_gaps: Sequence[float] | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class BlockResult:
    """One short measurement: raw timelines, what was in force, and what the engine counted. No metric is computed
    here.

    Attributes:
        stopped: Why the block was ended before its last request, by the rule that was given; None if it was not.
    """

    started_at: datetime
    duration_s: float
    requests: Sequence[RequestTimeline]
    in_force: InForce
    counters: Counters
    stopped: str | None = None


class StopRule(Protocol):
    """Decides while a block runs whether to end it. It has to be picklable: it is carried to the engine's process."""

    def __call__(
        self, send_s: Sequence[float], first_token_s: Sequence[float], end_s: Sequence[float], now_s: float
    ) -> str | None:
        """Why to end the block; None to go on. One entry for each request that was sent, NaN for what is to come."""


class EngineError(ChunksmithError):
    """An engine failed.

    Attributes:
        label: Its failure class.
        lost: A fresh engine may well do better.
        partial: Timelines of the block that it ended, where they outlived the engine.
    """

    def __init__(self, label: str, detail: str, *, lost: bool = False, log_path: str | None = None) -> None:
        super().__init__(f"{label}: {detail}" + (f" (engine log: {log_path})" if log_path else ""))
        self.label, self.detail, self.lost, self.log_path = label, detail, lost, log_path
        self.partial: Sequence[RequestTimeline] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_error, (self.label, self.detail, self.lost, self.log_path, list(self.partial))


def _rebuild_error(
    label: str, detail: str, lost: bool, log_path: str | None, partial: Sequence[RequestTimeline]
) -> EngineError:
    error = EngineError(label, detail, lost=lost, log_path=log_path)
    error.partial = partial
    return error


class RejectedError(ValueError):
    """Live values that ``TunedRuns.retune_and_run`` could not put into force, for a reason for which ``retune`` raises
    ValueError. No request was sent."""


class Engine(Protocol):
    """The contract. ``orchestrator.engines.testing`` holds the suite that every engine passes."""

    def start(self, config: EngineConfig) -> EngineInfo:
        """Start and warm nothing up. Raises EngineError; nothing is left running then."""

    def retune(self, live_values: Mapping[str, KnobValue]) -> float:
        """Put the live knobs into force and return the seconds it took.

        A knob that is not named, or None, goes to its value at engine start. Raises ValueError for an unknown knob
        or a value out of range, EngineError when the engine is gone.
        """

    def run(
        self, requests: Sequence[Request], schedule: Schedule, *, top2: bool = False, stop: StopRule | None = None
    ) -> BlockResult:
        """Serve the requests once, each at its time, and return the raw timelines, one for each in their order.

        A prefix cache is emptied first. ``top2`` asks for the gaps between the two best tokens.
        """

    def stop(self) -> None:
        """Stop in good order and free everything. Does nothing when the engine is not running."""

    def abort(self) -> None:
        """Free everything at once, also while a block is running or the engine hangs."""


@runtime_checkable
class TunedRuns(Protocol):
    """What an engine offers beside the contract where every call has a price: two calls in one round trip."""

    def retune_and_run(
        self,
        live_values: Mapping[str, KnobValue],
        requests: Sequence[Request],
        schedule: Schedule,
        *,
        top2: bool = False,
        stop: StopRule | None = None,
    ) -> tuple[float, BlockResult]:
        """``retune``, then ``run``; what both return. Raises RejectedError in place of a ValueError of the former."""
