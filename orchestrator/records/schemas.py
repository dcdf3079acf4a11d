"""Columns of the three tables that a run writes: one row per trial, per block and per request.

Each column carries its description, and its unit and allowed values where it has them, in its field metadata, so a
Parquet file explains itself. A column that is not nullable always has a value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import pyarrow as pa

SCHEMA_VERSION = 4
"""Raised whenever a column is added, removed, renamed, retyped or given another meaning."""

OUTCOMES = ("complete", "infeasible", "failed", "lost")
DIRECTIONS = ("minimize", "maximize")
PHASES = ("search", "confirm", "accuracy", "soak", "bench")
BLOCK_OUTCOMES = ("complete", "invalid", "stopped", "failed")
VERDICTS = ("undecided", "better", "worse", "equal")
STOPS = ("decided", "narrow", "worse than the best", "all pairs")
PAIRINGS = ("one engine", "two warm engines", "alternated starts")
ROLES = ("baseline", "candidate")
FIDELITIES = ("planning", "simulator", "lab", "short", "full")

BLOCK_STATISTICS = ("mean", "median", "p90", "p95", "p99")
LATENCY_METRICS = {
    "ttft": "time to first token",
    "tpot": "time per output token without the first, a mean per request",
    "itl": "inter-token latency, pooled over all requests",
    "e2el": "end-to-end latency",
    "guidellm_tpot": "end-to-end latency over the output tokens, GuideLLM's TPOT",
    "arrival_ttft": "time from the intended arrival to the first token",
    "arrival_e2el": "time from the intended arrival to the last token",
}

Field: TypeAlias = "pa.Field[Any]"
"""A column of any type."""

_TIMESTAMP = pa.timestamp("us", tz="UTC")


def _field(
    name: str,
    kind: pa.DataType,
    description: str,
    *,
    unit: str | None = None,
    nullable: bool = False,
    values: Iterable[str] = (),
) -> Field:
    metadata = {"description": description}
    if unit is not None:
        metadata["unit"] = unit
    if allowed := "|".join(values):
        metadata["values"] = allowed
    return pa.field(name, kind, nullable=nullable, metadata=metadata)


def _list(kind: pa.DataType) -> pa.DataType:
    """List without null members. The member is called ``element``, as in Parquet, so a file gives back this type."""
    return pa.list_(pa.field("element", kind, nullable=False))


def _schema(table: str, fields: Iterable[Field]) -> pa.Schema:
    version = _field("schema_version", pa.int32(), "Version of this table's columns.")
    metadata: dict[bytes | str, bytes | str] = {
        b"chunksmith.table": table.encode(),
        b"chunksmith.schema_version": str(SCHEMA_VERSION).encode(),
    }
    return pa.schema([version, *fields], metadata=metadata)


def _fidelity(description: str) -> Field:
    return _field(
        "fidelity",
        pa.string(),
        f"{description} Null in rows of schema version 3 and before, which are full.",
        nullable=True,
        values=FIDELITIES,
    )


def _latency_fields() -> Iterable[Field]:
    for metric, meaning in LATENCY_METRICS.items():
        for statistic in BLOCK_STATISTICS:
            name = f"{statistic}_{metric}_ms"
            yield _field(name, pa.float64(), f"{statistic} of {meaning}.", unit="ms", nullable=True)


def _throughput_fields() -> Iterable[Field]:
    for name, what, unit in (
        ("request_throughput", "Completed requests", "requests/s"),
        ("output_throughput", "Output tokens", "tokens/s"),
        ("total_token_throughput", "Prompt and output tokens", "tokens/s"),
        ("prefill_token_throughput", "Prompt tokens that were computed, not taken from the cache,", "tokens/s"),
        ("request_goodput", "Requests that keep the SLO", "requests/s"),
    ):
        yield _field(name, pa.float64(), f"{what} per second of the block.", unit=unit, nullable=True)
        each = f"{what} per second of the block and GPU."
        yield _field(f"{name}_per_gpu", pa.float64(), each, unit=unit, nullable=True)


def _lab_fields() -> Iterable[Field]:
    """What the kernel lab alone counts, over the prefills of a block."""
    yield _field("chunk_order", pa.string(), "Order in force in the kernel lab.", nullable=True)
    for name, kind, description, unit in (
        ("prefill_s", pa.float64(), "Time in the prefill attention path of all layers.", "s"),
        ("gather_s", pa.float64(), "Of it, copying cache rows into the workspace.", "s"),
        ("attend_s", pa.float64(), "Of it, products and softmax.", "s"),
        ("all_gather_s", pa.float64(), "Of the gathers, exchange between ranks.", "s"),
        ("chunks", pa.int64(), "Fillings of the workspace, over all layers.", "chunks"),
        ("launches", pa.int64(), "Kernels that a GPU would launch for them.", "launches"),
        ("gathered_rows", pa.int64(), "Rows that were copied into the workspace.", "rows"),
        ("padded_rows", pa.int64(), "Rows that chunks spanned beyond those.", "rows"),
        ("workspace_peak_bytes", pa.int64(), "Most workspace that a chunk asked for.", "bytes"),
        ("workspace_reserved_bytes", pa.int64(), "Size of the workspace buffers.", "bytes"),
        ("scratch_bytes", pa.int64(), "Buffers of the kernels beside them.", "bytes"),
        ("gather_bytes", pa.int64(), "What gathers read and wrote.", "bytes"),
        ("all_gather_bytes", pa.int64(), "What ranks received from each other.", "bytes"),
        ("flops", pa.int64(), "Floating point operations that the layers needed.", "operations"),
        ("gather_gb_per_s", pa.float64(), "Rate of the gathers.", "GB/s"),
        ("attend_gflop_per_s", pa.float64(), "Rate of the products.", "GFLOP/s"),
        ("roof_copy_gb_per_s", pa.float64(), "Rate of a plain copy on the device.", "GB/s"),
        ("roof_gflop_per_s", pa.float64(), "Rate of a large product on the device.", "GFLOP/s"),
    ):
        yield _field(f"lab_{name}", kind, f"Kernel lab: {description}", unit=unit, nullable=True)


TRIALS = _schema(
    "trials",
    [
        _field("study", pa.string(), "Name of the study."),
        _field("trial", pa.int32(), "Number of the trial in the study, from 0."),
        _fidelity("Effort of the measurement: only full trials are compared, told to Optuna and confirmed."),
        _field("outcome", pa.string(), "How the trial ended.", values=OUTCOMES),
        _field("failure", pa.string(), "Class of the failure.", nullable=True),
        _field("failure_detail", pa.string(), "One line on the failure.", nullable=True),
        _field("point", pa.string(), "JSON object: one value per knob."),
        _field("attempt", pa.int32(), "How many times the trial was started before, from 0."),
        _field("engine_id", pa.string(), "Engine that ran the trial; null if none was touched.", nullable=True),
        _field("engine_group", pa.string(), "JSON object: the engine-scope values, shared by one warm engine."),
        _field("engine_log", pa.string(), "Log file of the engine.", nullable=True),
        _field("metric", pa.string(), "Objective: a column of the blocks table."),
        _field("direction", pa.string(), "Which way the objective is better.", values=DIRECTIONS),
        _field("ratio", pa.float64(), "Geometric mean of candidate / baseline over the pairs.", nullable=True),
        _field("ratio_low", pa.float64(), "Lower end of the interval of ratio.", nullable=True),
        _field("ratio_high", pa.float64(), "Upper end of the interval of ratio.", nullable=True),
        _field("pairs", pa.int32(), "Pairs behind ratio; 0 if nothing was measured."),
        _field(
            "objectives",
            _list(
                pa.struct(
                    [
                        _field("metric", pa.string(), "A column of the blocks table."),
                        _field("direction", pa.string(), "Which way it is better.", values=DIRECTIONS),
                        _field("ratio", pa.float64(), "Geometric mean of candidate / baseline over the pairs."),
                        _field("ratio_low", pa.float64(), "Lower end of the interval of ratio."),
                        _field("ratio_high", pa.float64(), "Upper end of the interval of ratio."),
                    ]
                )
            ),
            "Every objective, where the study has several, metric and ratio being the first; null if it has one.",
            nullable=True,
        ),
        _field("verdict", pa.string(), "Of the sequential test; null if none.", nullable=True, values=VERDICTS),
        _field("stop", pa.string(), "Why no further pair was measured.", nullable=True, values=STOPS),
        _field("pairing", pa.string(), "On which engines the two roles of a pair were served.", values=PAIRINGS),
        _field("baseline_value", pa.float64(), "Objective at the baseline, in the metric's unit.", nullable=True),
        _field("candidate_value", pa.float64(), "Objective at the point, in the metric's unit.", nullable=True),
        _field("workspace_rows", pa.int64(), "MLA workspace in force.", unit="rows", nullable=True),
        _field("workspace_bytes", pa.int64(), "MLA workspace in force.", unit="bytes", nullable=True),
        _field("workspace_alignment", pa.int64(), "Rows are a multiple of this.", unit="rows", nullable=True),
        _field("builders", pa.int32(), "MLA metadata builders that the plugin reached.", nullable=True),
        _field("kv_blocks", pa.int64(), "Blocks of the KV cache.", unit="blocks", nullable=True),
        _field(
            "serve_args",
            _list(pa.string()),
            "Arguments after `vllm serve` for the point, in order; empty if it cannot be served.",
        ),
        _field("env", pa.string(), "JSON object: environment variables that reproduce the point."),
        _field("seed", pa.int64(), "Seed of the trial."),
        _field("started_at", _TIMESTAMP, "When the trial started."),
        _field("finished_at", _TIMESTAMP, "When the trial ended."),
        _field("measuring_s", pa.float64(), "Time spent in blocks.", unit="s"),
        _field("starting_s", pa.float64(), "Time spent in engine starts.", unit="s", nullable=True),
        _field(
            "reused_from",
            pa.string(),
            "Run and trial of an earlier study that measured the point; null if this one did.",
            nullable=True,
        ),
    ],
)

BLOCKS = _schema(
    "blocks",
    [
        _field("study", pa.string(), "Name of the study."),
        _field("trial", pa.int32(), "Number of the trial in the study, from 0."),
        _fidelity("Effort of the measurement that the block belongs to."),
        _field("phase", pa.string(), "What the block was run for.", values=PHASES),
        _field("block", pa.int32(), "Number of the block in its trial and phase, from 0."),
        _field("pair", pa.int32(), "Blocks of one trial and phase with the same pair are compared."),
        _field("role", pa.string(), "Which of the two points was measured.", values=ROLES),
        _field("dropped", pa.bool_(), "Left out of every comparison, for instance as warm-up."),
        _field("outcome", pa.string(), "How the block ended; only complete ones count.", values=BLOCK_OUTCOMES),
        _field("failure", pa.string(), "Why it is not complete, its class in front.", nullable=True),
        _field("engine_id", pa.string(), "Engine that ran the block, or the server's URL."),
        _field("point", pa.string(), "JSON object: one value per knob, as measured."),
        _field("prompts_seed", pa.int64(), "Seed of the prompts."),
        _field("load", pa.string(), "JSON object: how the requests arrived."),
        _field("started_at", _TIMESTAMP, "When the block started."),
        _field("duration_s", pa.float64(), "Length of the block.", unit="s"),
        _field("retune_ms", pa.float64(), "Time to set the point in the running engine.", unit="ms"),
        _field("requests", pa.int32(), "Requests sent.", unit="requests"),
        _field("failed_requests", pa.int32(), "Requests that ended in an error.", unit="requests"),
        _field("failures", pa.string(), "JSON object: failed requests by their class."),
        _field("slip_p50_ms", pa.float64(), "Send minus intended arrival, median.", unit="ms", nullable=True),
        _field("slip_p99_ms", pa.float64(), "Send minus intended arrival, p99.", unit="ms", nullable=True),
        *_latency_fields(),
        *_throughput_fields(),
        _field(
            "goodput_at_slo",
            pa.float64(),
            "Largest rate at which the SLO held, in the block that ended the search for it.",
            unit="requests/s",
            nullable=True,
        ),
        _field("workspace_rows", pa.int64(), "MLA workspace in force.", unit="rows", nullable=True),
        _field("workspace_bytes", pa.int64(), "MLA workspace in force.", unit="bytes", nullable=True),
        _field("context_chunks", pa.int64(), "Context chunks planned.", unit="chunks"),
        _field("workspace_entries", pa.int64(), "Times the context path, which uses the workspace, was entered."),
        _field("area_plans", pa.int64(), "Prefill plans made by area.", unit="plans"),
        _field("area_limited", pa.int64(), "Of them, those that a lowered area limit split.", unit="plans"),
        _field("long_prefill_cuts", pa.int64(), "Prefills that the long-prefill threshold cut.", unit="prefills"),
        _field("scheduler_steps", pa.int64(), "Steps of the scheduler.", unit="steps"),
        _field("max_step_tokens", pa.int64(), "Most tokens in one scheduler step.", unit="tokens"),
        _field("max_running_requests", pa.int64(), "Most requests running in one step.", unit="requests"),
        _field("cached_tokens", pa.int64(), "Prompt tokens found in the prefix cache.", unit="tokens"),
        *_lab_fields(),
    ],
)

REQUESTS = _schema(
    "requests",
    [
        _field("study", pa.string(), "Name of the study."),
        _field("trial", pa.int32(), "Number of the trial in the study, from 0."),
        _field("phase", pa.string(), "What the block was run for.", values=PHASES),
        _field("block", pa.int32(), "Number of the block in its trial and phase, from 0."),
        _field("request", pa.int32(), "Number of the request in its block, from 0."),
        _field("role", pa.string(), "Which of the two points was measured.", values=ROLES),
        _field("prompt_tokens", pa.int32(), "Length of the prompt.", unit="tokens"),
        _field("output_tokens", pa.int32(), "Length of the output.", unit="tokens"),
        _field("cached_tokens", pa.int32(), "Prompt tokens found in the prefix cache.", unit="tokens"),
        _field("arrival_s", pa.float64(), "Planned send time from the start of the block.", unit="s"),
        _field("send_s", pa.float64(), "Real send time from the start of the block.", unit="s"),
        _field("first_token_s", pa.float64(), "First token, from the start of the block.", unit="s", nullable=True),
        _field("end_s", pa.float64(), "End of the response, from the start of the block.", unit="s", nullable=True),
        _field("token_times_s", _list(pa.float64()), "Each output token, from the start of the block.", unit="s"),
        _field("output_token_ids", _list(pa.int32()), "Output tokens, the stop token included."),
        _field(
            "top2_gaps",
            _list(pa.float32()),
            "Gap between the log probabilities of the two best tokens at each output position; phase accuracy only.",
            nullable=True,
        ),
        _field("error", pa.string(), "One line on why the request failed; null if it did not.", nullable=True),
    ],
)

SCHEMAS: dict[str, pa.Schema] = {"trials": TRIALS, "blocks": BLOCKS, "requests": REQUESTS}
