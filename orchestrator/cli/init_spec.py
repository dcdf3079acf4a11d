"""The text of a spec for somebody's model, machines and load, with the reason of each line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orchestrator.cli.architectures import ARCHITECTURES, TINY, Architecture
from orchestrator.errors import UserError
from orchestrator.models import TinyMLAConfig
from orchestrator.planning.models import MODELS

SHORTEST_INPUT: Final = 512
"""A prompt that fits into one scheduler step never enters the workspace, and steps below 256 tokens serve nobody."""

GUARD_TOKENS: Final = 32
"""Tokens of an answer that the accuracy guard compares."""

_STEPS: Final = (256, 512, 1024, 2048, 4096, 8192, 16384)
_SEQS: Final = (16, 32, 64, 128, 256)


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the user said.

    Attributes:
        architecture: Key of ``ARCHITECTURES``.
        model: Folder or name on the hub.
        tp: Tensor parallel ranks of an engine; with ``dcp`` None the context is spread over a searched number of them.
        input_len: Tokens of a typical prompt; ``output_len`` of its answer.
        concurrency: Requests in flight; or ``rate``, requests per second.
        slo: Limit in ms by metric (``ttft``, ``tpot``, ``e2el``).
        objective: Column of the blocks table, or ``goodput_at_slo``.
    """

    architecture: str
    model: str
    study: str
    nodes: int
    gpus_per_node: int
    tp: int
    dcp: int | None
    input_len: int
    output_len: int
    concurrency: int | None
    rate: float | None
    slo: dict[str, float]
    objective: str
    trials: int

    def __post_init__(self) -> None:
        if self.input_len < SHORTEST_INPUT:
            raise UserError(
                f"--input-len: must be at least {SHORTEST_INPUT}, got {self.input_len}: a prompt that fits into one "
                "scheduler step never reaches the workspace that the sweep is about"
            )
        if self.input_len + max(self.output_len, GUARD_TOKENS) > self.longest:
            raise UserError(
                f"--input-len: {self.input_len} tokens and those of an answer exceed the {self.longest} of "
                f"{self.architecture}"
            )
        if self.is_tiny:
            return
        if self.tp > self.gpus_per_node:
            raise UserError(
                f"--tp: {self.tp} is above the {self.gpus_per_node} GPUs of a node, and an engine stays on one node"
            )
        if self.dcp is not None and self.tp % self.dcp:
            raise UserError(f"--dcp: {self.dcp} has to divide --tp {self.tp}: it shares those ranks and adds none")
        if (self.dcp or 1) > 1 and not self.kind.has_dcp:
            raise UserError(
                f"--dcp: vLLM 0.32 runs {self.architecture} without decode context parallelism; leave it out"
            )

    @property
    def kind(self) -> Architecture:
        """What is known of the architecture."""
        return ARCHITECTURES[self.architecture]

    @property
    def is_tiny(self) -> bool:
        """The model that is built from a seed, on a CPU."""
        return self.architecture == TINY

    @property
    def steps(self) -> list[int]:
        """Token budgets of a scheduler step, below a prompt; at most the largest four."""
        return [tokens for tokens in _STEPS if tokens < self.input_len][-4 if not self.is_tiny else -3 :]

    @property
    def max_model_len(self) -> int:
        """Room for twice the typical request in units of 1,024 tokens, as far as the model goes."""
        room = -(-2 * (self.input_len + self.output_len) // 1024) * 1024
        return min(room, self.longest)

    @property
    def longest(self) -> int:
        """Most tokens of a request that the model was published for."""
        shape = self.kind.shape
        return TinyMLAConfig().max_position_embeddings if shape is None else MODELS[shape].max_model_len

    @property
    def seqs(self) -> list[int]:
        """Numbers of requests in a step: the load's own and more, never above the smallest step."""
        if self.is_tiny:
            return [4]
        wanted = self.concurrency or 1
        fitting = [number for number in _SEQS if number <= self.steps[0]]
        return [number for number in fitting if number >= wanted][-3:] or fitting[-1:]


def spec_text(wish: Wishes) -> str:
    """The spec as YAML with comments. ``load_spec`` accepts it."""
    parts = [_head(wish), _engine(wish), _space(wish), _constraints(wish), _load(wish), _budget(wish)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(wish: Wishes) -> str:
    if wish.is_tiny:
        where = "Runs on a CPU, with a tiny DeepSeek-V3-style model that is built from a seed."
    else:
        engines = wish.nodes * (wish.gpus_per_node // wish.tp)
        where = (
            f"{wish.architecture} on {wish.nodes} x {wish.gpus_per_node} GPUs: room for {engines} "
            f"{'engine' if engines == 1 else 'engines'} of {wish.tp} GPUs at a time."
        )
    return "\n".join(
        [
            f"# {where}",
            "# Written by `chunksmith init`; every line is yours to change. `chunksmith validate` says how large the",
            "# space is and what a sweep costs, `chunksmith sweep --dry-run` which engines it starts.",
            "version: 1",
            f"study: {wish.study}",
            f"model: {wish.model}",
            "seed: 0",
        ]
    )


def _engine(wish: Wishes) -> str:
    args: list[str] = []
    if wish.is_tiny:
        args += ["dtype: bfloat16", "enforce_eager: true"]
    else:
        args.append(f"tensor_parallel_size: {wish.tp}")
        if wish.dcp is not None and wish.dcp > 1:
            args.append(f"decode_context_parallel_size: {wish.dcp}   # shares the GPUs of tensor parallelism")
        args.append(f"block_size: {wish.kind.block_size}")
    if wish.kind.cache is not None:
        args.append(f"kv_cache_dtype: {wish.kind.cache}")
    args += [
        f"max_model_len: {wish.max_model_len}   # twice a typical request; raise it to what you promise your users",
        f"max_num_batched_tokens: {wish.steps[-1]}   # the largest of the space: buffers are made for it",
        f"max_num_seqs: {wish.seqs[-1]}",
        "enable_chunked_prefill: true",
        "enable_prefix_caching: false   # every block brings new prompts",
    ]
    lines = ["engine:", "  args:", *_indented(args, 4)]
    if wish.is_tiny:
        lines += [
            "  plugin:",
            "    cpu_chunked_prefill: true   # vLLM turns it off for MLA on a CPU without AMX",
            "  env:",
            '    OMP_NUM_THREADS: "1"   # more threads of a shared machine wait for each other',
            "    VLLM_CPU_OMP_THREADS_BIND: nobind",
            '    VLLM_CPU_KVCACHE_SPACE: "1"   # GiB',
            "    # Fixed, or glibc moves them, and a fresh engine is slower than a retuned one.",
            '    MALLOC_MMAP_THRESHOLD_: "33554432"',
            '    MALLOC_TRIM_THRESHOLD_: "2147483648"',
        ]
    return "\n".join(lines)


def _space(wish: Wishes) -> str:
    kind, knobs = wish.kind, []
    if kind.has_rows:
        low = 128 if wish.is_tiny else 2048
        knobs += [
            "# Rows of context that one chunk gathers and expands; 65,536 are vLLM's, and no flag reaches them.",
            f"mla_workspace_rows: {{scope: live, low: {low}, high: 65536, log2: true}}",
        ]
    else:
        knobs += [
            "# Rows of one chunk; null is the reservation that vLLM makes. One request alone is always let through.",
            "prefill_area_limit: {scope: live, values: [null, 8192, 16384, 32768, 65536, 131072]}",
            "# Requests that the reservation is made for. In the running engine it can only be lowered.",
            "prefill_chunk_size: {scope: live, values: [1, 2, 3, 4]}",
        ]
    knobs += [
        "# Tokens of a step, all below a prompt: one that fits into a step never reaches the workspace.",
        f"max_num_batched_tokens: {{scope: live, values: {wish.steps}}}",
    ]
    if not wish.is_tiny:
        if len(wish.seqs) > 1:
            knobs.append(f"max_num_seqs: {{scope: live, values: {wish.seqs}}}")
        knobs += [
            "# Most tokens of a step that one long prompt may take; 0 is no limit.",
            f"long_prefill_token_threshold: {{scope: live, values: [0, {wish.steps[0]}]}}",
            *_dcp(wish),
            *(line for text in kind.knobs for line in text.splitlines()),
            "# FULL graphs with decode context parallelism were seen to hang after a prefill of 128 Ki tokens.",
            "compilation_config.cudagraph_mode: {scope: engine, values: [FULL_AND_PIECEWISE, PIECEWISE]}",
            "# What is left free takes what is made after the KV cache is sized, the workspace among it.",
            "gpu_memory_utilization: {scope: engine, low: 0.86, high: 0.94, step: 0.02}",
        ]
    return "\n".join(["space:", *_indented(knobs, 2)])


def _dcp(wish: Wishes) -> list[str]:
    """Decode context parallelism: searched where the user left it open, and what belongs to it where it is in use."""
    if not wish.kind.has_dcp or wish.tp == 1 or wish.dcp == 1:
        return []
    lines, only = [], ""
    if wish.dcp is None:
        ranks = [number for number in (1, 2, 4, 8, 16) if wish.tp % number == 0]
        lines = [
            "# All ranks keep the same latent cache; this spreads it: more tokens, more exchange.",
            f"decode_context_parallel_size: {{scope: engine, values: {ranks}}}",
        ]
        only = ", when: decode_context_parallel_size > 1"
    return [
        *lines,
        "# Consecutive tokens that one rank keeps; how partial results are joined; whether queries are gathered.",
        f"cp_kv_cache_interleave_size: {{scope: engine, values: [1, 16, 64]{only}}}",
        f"dcp_comm_backend: {{scope: engine, values: [ag_rs, a2a]{only}}}",
        f"dcp_q_replicate: {{scope: engine, values: [false, true]{only}}}",
    ]


def _constraints(wish: Wishes) -> str:
    kind = wish.kind
    if kind.shape is None:
        return ""
    lines = ["constraints:", f"  model: {kind.shape}", f"  use: [{', '.join(kind.topics)}]"]
    if kind.has_rows:
        lines += [
            "  rules:",
            "    # A chunk with fewer rows than that spends more on merging partial results than on attending.",
            "    - mla_workspace_rows >= max_num_batched_tokens / 4",
        ]
        lines += [
            "  # To rule out what does not fit, add what your engine's log says of one GPU:",
            "  # memory: {total_gib: ..., weights_gib: ..., other_peak_gib: ..., graph_gib: ..., other_gib: ...}",
        ]
    else:
        lines.append("  # What does not fit into memory is learnt from failed trials.")
    return "\n".join(lines)


def _load(wish: Wishes) -> str:
    prompts = _prompts(wish)
    lines = [
        "# Fixed lengths compare best; `{kind: lognormal, ...}` or a trace of yours come closer to real traffic.",
        f"workload: {{prompts: {prompts}, input_len: {wish.input_len}, output_len: {wish.output_len}}}",
    ]
    if wish.rate is not None:
        lines.append(f"load: {{kind: poisson, rate: {wish.rate:g}}}")
    else:
        lines.append(f"load: {{concurrency: {wish.concurrency}}}")
    if wish.slo:
        limits = ", ".join(f"{name}_ms: {limit:g}" for name, limit in wish.slo.items())
        lines.append(f"slo: {{{limits}, share: 0.99}}   # a point that breaks it is infeasible")
    if wish.objective == "goodput_at_slo":
        assert wish.rate is not None
        lines += [
            "# The largest rate that keeps the SLO, found by short probes of the point and the baseline in turns.",
            f"rate_search: {{low: {wish.rate / 4:g}, high: {wish.rate * 4:g}, requests: {max(prompts, 50)}}}",
        ]
    lines.append(f"objective: {{metric: {wish.objective}}}")
    return "\n".join(lines)


def _prompts(wish: Wishes) -> int:
    """Requests of a block: half a minute of the rate, or four rounds of the loop; the tiny model serves fewer."""
    if wish.is_tiny:
        return max(1, wish.concurrency or 4)
    wanted = round(30 * wish.rate) if wish.rate is not None else 4 * (wish.concurrency or 1)
    return min(max(wanted, 8), 512)


def _budget(wish: Wishes) -> str:
    pairs = "min_pairs: 2, max_pairs: 4, half_width: 0.03" if wish.is_tiny else "min_pairs: 2, max_pairs: 6"
    # Beyond one step, so that the guard's prompts go through the workspace too.
    guard, prompts = min(wish.input_len, max(32768, wish.steps[-1] + 1)), 4 if wish.is_tiny else 8
    lines = [
        f"trials: {wish.trials}",
        f"blocks: {{warmup: 1, {pairs}}}   # point and baseline in turns",
        f"confirm: {{points: 3, pairs: {5 if wish.is_tiny else 8}}}   # the best, once more, with fresh prompts",
        "# `starts: 4` beside them starts both engines anew four times: the interval then holds what restarts change.",
        f"accuracy: {{prompts: {prompts}, input_len: {guard}, output_len: {GUARD_TOKENS}, tolerance: 0.1}}",
    ]
    if not wish.is_tiny:
        lines.append(
            f"resources: {{cpus: {2 * wish.tp}, gpus: {wish.tp}}}   # of one engine; Ray places as many as fit"
        )
    return "\n".join(lines)


def _indented(lines: list[str], by: int) -> list[str]:
    return [" " * by + line for line in lines]
