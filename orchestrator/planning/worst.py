"""The worst batches that vLLM's scheduler can form: what a soak runs, because no profile sees them.

vLLM profiles one dummy batch at the start and sizes its buffers by it; an engine that serves for days meets others.
Each batch here is a list of requests that are sent together and that the scheduler then turns into the step in
question, by :func:`orchestrator.planning.fcfs_steps`. None asks for more than the engine promises: no request is longer
than ``max_model_len``, all fit into the KV cache together, and there are at most ``max_num_seqs``.

An engine starts on the first request before the others have arrived. So where the order matters a long prompt goes
first: it takes whole steps for itself, and the others wait until its last one leaves room.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from orchestrator.planning._checks import whole
from orchestrator.planning.chunks import area_limit
from orchestrator.planning.layers import LayerType

Lengths = tuple[tuple[int, int], ...]

DECODED: Final = 4
"""Tokens that a request generates where their number does not matter: a few steps of decoding after the prefill."""

_SHORT: Final = 16
"""Most tokens of a short prompt."""

_LEAST: Final = 2
"""Fewest tokens of a prompt: vLLM counts a request with one token in a step as decoding."""

_LEAD_STEPS: Final = 2
"""Steps that the first prompt takes where the others have to be there when it is done."""


@dataclass(frozen=True, kw_only=True)
class WorstBatch:
    """Requests that are sent together.

    Attributes:
        name: A few words.
        why: What makes it the worst of its kind, in one sentence.
        lengths: Prompt and output tokens of each request, in the order of sending.
    """

    name: str
    why: str
    lengths: Lengths


@dataclass(frozen=True, kw_only=True)
class AreaPlanning:
    """What the chunk planner of DeepSeek-V4 goes by.

    Attributes:
        prefill_chunk_size: In force, in requests.
        max_num_batched_tokens: At engine start: the planner does not know of a lower live value.
        window: Tokens of the sliding window.
        layers: The kinds of layer that the model has.
        area_cap: ``prefill_area_limit`` in force, in rows; ``None`` leaves the planner's own limit.
    """

    prefill_chunk_size: int
    max_num_batched_tokens: int
    window: int
    layers: tuple[LayerType, ...]
    area_cap: int | None = None

    def limit(self, layer: LayerType, max_model_len: int) -> int:
        """Most rows of a chunk of several requests, in layers of one kind."""
        own = area_limit(
            prefill_chunk_size=self.prefill_chunk_size,
            compress_ratio=layer.compress_ratio,
            max_model_len=max_model_len,
            window=self.window,
            max_num_batched_tokens=self.max_num_batched_tokens,
            has_compressed=layer.has_compressed,
        )
        return own if self.area_cap is None else min(own, whole("area_cap", self.area_cap))


@dataclass(frozen=True, kw_only=True)
class SchedulerLimits:
    """What bounds a batch, as it is in force.

    Attributes:
        max_num_batched_tokens: Tokens of a step, at least ``max_num_seqs``.
        max_num_seqs: Requests that run at a time, at least 1.
        max_model_len: Tokens of a request with its output, at least 2.
        kv_blocks: Blocks of the KV cache, at least 2.
        block_size: Tokens that the scheduler puts into a block; under decode context parallelism those of all ranks.
        long_prefill_token_threshold: Most tokens of one prefill in a step while there are other requests; 0 is off.
        area: Where the model plans its prefills by area, else ``None``.
    """

    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    kv_blocks: int
    block_size: int
    long_prefill_token_threshold: int = 0
    area: AreaPlanning | None = None

    def __post_init__(self) -> None:
        whole("max_num_seqs", self.max_num_seqs)
        whole("max_num_batched_tokens", self.max_num_batched_tokens, least=self.max_num_seqs)
        whole("max_model_len", self.max_model_len, least=2)
        whole("kv_blocks", self.kv_blocks, least=1 + -(-2 // whole("block_size", self.block_size)))
        whole("long_prefill_token_threshold", self.long_prefill_token_threshold, least=0)

    @property
    def usable_blocks(self) -> int:
        """Blocks that requests can have: vLLM's ``BlockPool`` keeps one, the null block, for itself."""
        return self.kv_blocks - 1

    @property
    def kv_tokens(self) -> int:
        """Tokens that the KV cache holds."""
        return self.usable_blocks * self.block_size

    @property
    def longest(self) -> int:
        """Tokens of the longest request."""
        return min(self.max_model_len, self.kv_tokens)

    @property
    def cuts_prefills(self) -> bool:
        """Whether the long-prefill threshold is below what a step could give to one request."""
        return 0 < self.long_prefill_token_threshold < self.max_num_batched_tokens

    def blocks_of(self, tokens: int) -> int:
        """Blocks that a request of so many tokens takes."""
        return -(-tokens // self.block_size)


def worst_batches(limits: SchedulerLimits) -> tuple[WorstBatch, ...]:
    """Build the worst batches, cheap ones first; none has the lengths of another.

    Where a threshold cuts long prefills, the ones that need a single long prefill to fill whole steps cannot be
    formed: long prefills side by side take their place.
    """
    found: dict[Lengths, WorstBatch] = {}
    for build in (_widest_step, _widest_areas, _deepest_step, _longest_context, _side_by_side, _full_cache):
        for batch in build(limits):
            found.setdefault(batch.lengths, batch)
    return tuple(found.values())


def _widest_step(limits: SchedulerLimits) -> Iterator[WorstBatch]:
    """Every activation of a step is sized by its tokens, and per-request buffers by its prompts
    (``Scheduler.schedule``: ``max_num_scheduled_tokens`` and ``max_num_running_reqs``)."""
    budget = limits.max_num_batched_tokens
    lead = min(_LEAD_STEPS, (limits.longest - DECODED) // budget) * budget
    leads = lead > 0 and limits.max_num_seqs > 2 and not limits.cuts_prefills
    leading = ((lead, DECODED),) if leads else ()
    # While the rest is prefilled, the leading request decodes one token.
    seqs, tokens = limits.max_num_seqs - len(leading), budget - len(leading)
    blocks = limits.usable_blocks - sum(limits.blocks_of(sum(each)) for each in leading)
    count = min(seqs, tokens // _LEAST)
    while count > 1:
        most = min(limits.longest - DECODED, blocks // count * limits.block_size - DECODED)
        if limits.cuts_prefills:
            most = min(most, limits.long_prefill_token_threshold)
        each, more = divmod(tokens, count)
        if most >= _LEAST:
            prompts = [min(each + (number < more), most) for number in range(count)]
            why = f"{count} prompts are prefilled in one step of {sum(prompts) + len(leading)} tokens"
            lengths = (*leading, *((prompt, DECODED) for prompt in prompts))
            yield WorstBatch(name="widest step", why=why, lengths=lengths)
            return
        count //= 2


def _longest_context(limits: SchedulerLimits) -> Iterator[WorstBatch]:
    """The context of one prefill alone is cut into the most chunks (``plan_mla_context_chunks``), each of all rows of
    the workspace, and the last steps decode at the largest context."""
    total = limits.longest
    output = min(DECODED, total - 1)
    why = f"one request of {total} tokens, the longest that is let in, prefills and decodes at its largest context"
    yield WorstBatch(name="longest context", why=why, lengths=((total - output, output),))


def _deepest_step(limits: SchedulerLimits) -> Iterator[WorstBatch]:
    """One step holds the deepest context beside the most prompts without any: the context chunks and their padded keys
    and values come on top of a full step (``build_mla_chunked_context_metadata``; up to vLLM 0.27 the workspace was
    split evenly over the requests with context)."""
    short, count = _short_prompts(limits)
    if count == 0 or limits.cuts_prefills:
        return
    budget = limits.max_num_batched_tokens
    room = _room_beside(limits, short, count)
    last = min(budget - count * short, room)
    if last < _LEAST:
        return
    context = (room - last) // budget * budget
    why = f"{context} tokens of context are gathered in a step that {count} short prompts share"
    yield WorstBatch(name="deepest step", why=why, lengths=_beside(context + last, short, count))


def _widest_areas(limits: SchedulerLimits) -> Iterator[WorstBatch]:
    """One chunk takes the most rows that the area limit lets through
    (``DeepseekSparseSWAMetadata.get_prefill_chunk_plan``); if fewer were reserved, ``WorkspaceManager`` stops at its
    lock. Every request of a chunk is given the depth of the deepest, so one long prompt beside short ones is enough."""
    if limits.area is None or limits.cuts_prefills:
        return
    short, most = _short_prompts(limits)
    for layer in limits.area.layers if most else ():
        if (found := _widest_area(limits, limits.area, layer, short, most)) is None:
            continue
        area, count, prompt = found
        limit = limits.area.limit(layer, limits.max_model_len)
        why = f"{count + 1} requests in one chunk span {area} of the {limit} rows that {layer.name} layers may use"
        # Further prompts do no harm if the step has room: they show a limit that is too large.
        last = (prompt - 1) % limits.max_num_batched_tokens + 1
        spare = (limits.max_num_batched_tokens - last - count * short) // short
        lengths = _beside(prompt, short, min(most, count + max(spare, 0)))
        yield WorstBatch(name=f"widest area, {layer.name} layers", why=why, lengths=lengths)


def _widest_area(
    limits: SchedulerLimits, area: AreaPlanning, layer: LayerType, short: int, most: int
) -> tuple[int, int, int] | None:
    """Rows of the widest chunk, the number of short prompts in it, and the tokens of the long one."""
    budget, limit = limits.max_num_batched_tokens, area.limit(layer, limits.max_model_len)
    room = _room_beside(limits, short, most)
    # Without compressed rows a context beyond the window adds nothing; with them the deepest two differ in what their
    # last step may hold.
    enough = max(_LEAD_STEPS, -(-area.window // budget))
    deepest = max(room - short, 0) // budget if layer.has_compressed else min(enough, max(room - short, 0) // budget)
    best: tuple[int, int, int] | None = None
    for steps in sorted({deepest, max(deepest - 1, 0)}, reverse=True):
        if steps == 0 and best is not None:
            break  # Only where there is no room for a whole step: the others may come too late for the first.
        context = steps * budget

        def width(last: int, context: int = context) -> int:
            pool = (context + last) // layer.compress_ratio if layer.has_compressed else 0
            return pool + last + min(context, area.window - 1)

        for count in range(1, most + 1):
            # Not below the short prompts: the long one has to be the widest.
            lasts = range(short, min(budget - count * short, room - context) + 1)
            fitting = bisect_right(lasts, limit // (count + 1), key=width)
            if fitting > 0:
                last = lasts[fitting - 1]
                best = max(best or (0, 0, 0), ((count + 1) * width(last), count, context + last))
    return best


def _side_by_side(limits: SchedulerLimits) -> Iterator[WorstBatch]:
    """With a threshold several long prefills advance in one step, and the contexts of all of them share the workspace
    (``Scheduler.schedule``: ``long_prefill_token_threshold``)."""
    if not limits.cuts_prefills:
        return
    wanted = -(-limits.max_num_batched_tokens // limits.long_prefill_token_threshold)
    count = min(limits.max_num_seqs, wanted, limits.usable_blocks)
    total = min(limits.longest, limits.usable_blocks // count * limits.block_size)
    if count > 1 and total >= _LEAST + DECODED:
        why = f"{count} prompts of {total - DECODED} tokens are prefilled side by side"
        yield WorstBatch(name="side by side", why=why, lengths=((total - DECODED, DECODED),) * count)


def _full_cache(limits: SchedulerLimits) -> Iterator[WorstBatch]:
    """The most requests decode together when the KV cache is full: at one block more ``KVCacheManager.allocate_slots``
    fails, and ``Scheduler.schedule`` preempts.

    What is prefilled first has to decode until the last prompt is done, so its share of the cache holds more output.
    """
    count = min(limits.max_num_seqs, limits.usable_blocks)
    while count > 0:
        share, more = divmod(limits.usable_blocks, count)
        totals = [min(limits.max_model_len, (share + (number < more)) * limits.block_size) for number in range(count)]
        lengths = _decoding_together(limits, totals)
        if lengths is not None:
            why = f"{count} requests decode together with {sum(totals)} of {limits.kv_tokens} tokens in the KV cache"
            yield WorstBatch(name="full cache", why=why, lengths=lengths)
            return
        count //= 2


def _decoding_together(limits: SchedulerLimits, totals: list[int]) -> Lengths | None:
    """Requests of the given sizes that all decode when the last of them has been prefilled; ``None`` if they would have
    to generate more than they are given."""
    # Tokens of prompts that a step takes at least while some of the requests decode.
    rate, extra = limits.max_num_batched_tokens - (len(totals) - 1), 0
    if limits.cuts_prefills:
        rate = min(rate, limits.long_prefill_token_threshold)
        # Side by side, a prompt may be done before an earlier one that is longer by up to a block.
        extra = -(-limits.block_size // limits.long_prefill_token_threshold) + 1
    behind = [0, *accumulate(reversed(totals[1:]))][::-1]
    outputs = [-(-rest // rate) + extra + DECODED for rest in behind]
    if len(totals) > 1 and any(2 * output > total for output, total in zip(outputs, totals, strict=True)):
        return None
    outputs = [min(output, total - 1) for output, total in zip(outputs, totals, strict=True)]
    return tuple((total - output, output) for output, total in zip(outputs, totals, strict=True))


def _short_prompts(limits: SchedulerLimits) -> tuple[int, int]:
    """Tokens and number of the short prompts that go beside a long one; no number if there is no room."""
    short = max(_LEAST, min(_SHORT, limits.max_num_batched_tokens // (2 * limits.max_num_seqs)))
    short = min(short, limits.max_model_len - DECODED)
    if short < _LEAST:
        return _LEAST, 0
    # The long one is what it is about: the others get a quarter of the cache, or what it can never use.
    spare = max(limits.usable_blocks - limits.blocks_of(limits.max_model_len), limits.usable_blocks // 4)
    in_cache = spare // limits.blocks_of(short + DECODED)
    in_step = (limits.max_num_batched_tokens - short) // short
    return short, max(min(limits.max_num_seqs - 1, in_step, in_cache), 0)


def _room_beside(limits: SchedulerLimits, short: int, count: int) -> int:
    """Tokens of the longest prompt that so many short ones leave room for; below 1 if there is none."""
    blocks = limits.usable_blocks - count * limits.blocks_of(short + DECODED)
    return min(limits.max_model_len, blocks * limits.block_size) - DECODED


def _beside(prompt: int, short: int, count: int) -> Lengths:
    return ((prompt, DECODED), *(((short, DECODED),) * count))
