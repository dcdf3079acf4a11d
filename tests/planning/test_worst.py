"""Every worst batch can be formed, and the step that it is about really comes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from orchestrator.planning import (
    LAYER_TYPES,
    AreaPlanning,
    LayerType,
    SchedulerLimits,
    Share,
    WorstBatch,
    fcfs_steps,
    plan_prefill_chunks,
    worst_batches,
)
from orchestrator.planning.worst import DECODED

LAYERS = tuple(LAYER_TYPES.values())
DEMO = SchedulerLimits(
    max_num_batched_tokens=1024, max_num_seqs=4, max_model_len=16_384, kv_blocks=20_000, block_size=16
)
GPU = SchedulerLimits(
    max_num_batched_tokens=8192,
    max_num_seqs=256,
    max_model_len=131_072,
    kv_blocks=9000,
    block_size=64,
    area=AreaPlanning(prefill_chunk_size=4, max_num_batched_tokens=8192, window=128, layers=LAYERS),
)


@st.composite
def some_limits(draw: st.DrawFn, *, area: bool = False, threshold: bool = True) -> SchedulerLimits:
    """Limits of any engine that vLLM would start: the KV cache holds at least one request of full length."""
    seqs = draw(st.integers(1, 64))
    tokens = draw(st.integers(seqs, 4096))
    length = draw(st.integers(2, 20_000))
    block = draw(st.sampled_from([1, 16, 64, 256]))
    blocks = 1 + -(-length // block) + draw(st.integers(0, 3000))
    planning = AreaPlanning(
        prefill_chunk_size=draw(st.integers(1, 8)),
        max_num_batched_tokens=tokens + draw(st.sampled_from([0, 0, 4096])),
        window=draw(st.sampled_from([64, 128])),
        layers=LAYERS,
        area_cap=draw(st.none() | st.integers(1, 40_000)),
    )
    return SchedulerLimits(
        max_num_batched_tokens=tokens,
        max_num_seqs=seqs,
        max_model_len=length,
        kv_blocks=blocks,
        block_size=block,
        long_prefill_token_threshold=draw(st.just(0) | st.integers(0, 2 * tokens)) if threshold else 0,
        area=planning if area else None,
    )


def steps_of(limits: SchedulerLimits, batch: WorstBatch) -> list[list[Share]]:
    return list(
        fcfs_steps(
            batch.lengths,
            max_num_batched_tokens=limits.max_num_batched_tokens,
            max_num_seqs=limits.max_num_seqs,
            long_prefill_token_threshold=limits.long_prefill_token_threshold,
        )
    )


def named(limits: SchedulerLimits, name: str) -> WorstBatch:
    return next(batch for batch in worst_batches(limits) if batch.name == name)


def prefills(step: Sequence[Share]) -> list[Share]:
    return [share for share in step if share.tokens > 1]


def widest_area(limits: SchedulerLimits, batch: WorstBatch, layer: LayerType) -> int:
    """Rows of the widest chunk of several requests in any step of a batch, by vLLM's planner."""
    assert limits.area is not None
    chunks = (
        plan_prefill_chunks(
            [share.context + share.tokens for share in prefills(step)],
            [share.tokens for share in prefills(step)],
            compress_ratio=layer.compress_ratio,
            has_compressed=layer.has_compressed,
            window=limits.area.window,
            area_limit=limits.area.limit(layer, limits.max_model_len),
        )
        for step in steps_of(limits, batch)
    )
    # A request alone in its chunk is not cut, whatever the limit.
    return max((chunk.area for plan in chunks for chunk in plan if chunk.end - chunk.start > 1), default=0)


@given(some_limits() | some_limits(area=True))
def test_every_batch_can_be_formed(limits: SchedulerLimits) -> None:
    batches = worst_batches(limits)
    assert len({batch.lengths for batch in batches}) == len({batch.name for batch in batches}) == len(batches) > 0
    for batch in batches:
        assert 1 <= len(batch.lengths) <= limits.max_num_seqs
        assert all(prompt >= 1 and output >= 1 for prompt, output in batch.lengths)
        assert all(prompt + output <= limits.max_model_len for prompt, output in batch.lengths)
        blocks = sum(-(-(prompt + output) // limits.block_size) for prompt, output in batch.lengths)
        assert blocks <= limits.kv_blocks - 1
        assert "\n" not in batch.why


@given(some_limits())
def test_the_longest_context_is_the_longest_request(limits: SchedulerLimits) -> None:
    batch = next(one for one in worst_batches(limits) if len(one.lengths) == 1)
    last = steps_of(limits, batch)[-1][0]
    # The last token of all is sampled, and never computed.
    assert last.context + last.tokens == limits.max_model_len - 1


@given(some_limits(threshold=False))
def test_the_deepest_step_is_full_and_the_short_prompts_meet_the_deepest_context_in_it(
    limits: SchedulerLimits,
) -> None:
    batches = {batch.name: batch for batch in worst_batches(limits)}
    assume("deepest step" in batches)
    batch = batches["deepest step"]
    step = next(step for step in steps_of(limits, batch) if any(share.request == 1 for share in step))
    assert [share.request for share in prefills(step)] == list(range(len(batch.lengths)))
    assert step[0].context + step[0].tokens == batch.lengths[0][0]
    if step[0].context:
        assert sum(share.tokens for share in step) == limits.max_num_batched_tokens
        # No whole step more would have fitted into the request, or into the cache beside the others.
        others = sum(-(-(prompt + output) // limits.block_size) for prompt, output in batch.lengths[1:])
        room = min(limits.max_model_len, (limits.kv_blocks - 1 - others) * limits.block_size)
        assert sum(batch.lengths[0]) > room - limits.max_num_batched_tokens


@given(some_limits())
def test_all_requests_of_the_full_cache_decode_together(limits: SchedulerLimits) -> None:
    batches = {batch.name: batch for batch in worst_batches(limits)}
    assume("full cache" in batches)
    batch = batches["full cache"]
    count = len(batch.lengths)
    together = [step for step in steps_of(limits, batch) if len(step) == count and not prefills(step)]
    decoding = [step for step in together if all(s.context >= batch.lengths[s.request][0] for s in step)]
    assert len(decoding) >= DECODED - 1
    # Every request has its share of the cache, or is as long as one can be.
    total = sum(prompt + output for prompt, output in batch.lengths)
    assert total >= min(count * limits.max_model_len, limits.kv_tokens - count * (limits.block_size - 1))
    if limits.max_num_batched_tokens >= 50 * count and not limits.long_prefill_token_threshold:
        # Steps that are wide for their requests leave nobody with much to generate.
        most = max(sum(share.context + 1 for share in step) for step in decoding)
        assert most >= 0.9 * (total - count * DECODED)


@given(some_limits(threshold=False))
def test_the_widest_step_is_full_of_prompts(limits: SchedulerLimits) -> None:
    batches = {batch.name: batch for batch in worst_batches(limits)}
    assume("widest step" in batches)
    batch = batches["widest step"]
    is_led = batch.lengths[0][0] >= limits.max_num_batched_tokens and len(batch.lengths) > 1
    count = len(batch.lengths) - is_led
    steps = steps_of(limits, batch)
    widest = max(steps, key=lambda step: len(prefills(step)))
    assert len(prefills(widest)) == count
    capped = any(prompt + DECODED == limits.max_model_len for prompt, _ in batch.lengths)
    room = (limits.kv_blocks - 1) * limits.block_size
    if not capped and room > 4 * (limits.max_num_batched_tokens + limits.block_size * limits.max_num_seqs):
        assert sum(share.tokens for share in widest) == limits.max_num_batched_tokens
    if is_led:
        # The prompts have the time of a whole step, or of two, to arrive.
        assert not any(share.request for step in steps[: steps.index(widest)] for share in step)


@given(some_limits(area=True, threshold=False), st.sampled_from(LAYERS))
def test_the_widest_area_is_what_the_planner_makes_of_the_batch(limits: SchedulerLimits, layer: LayerType) -> None:
    assert limits.area is not None
    batches = {batch.name: batch for batch in worst_batches(limits)}
    assume(f"widest area, {layer.name} layers" in batches)
    batch = batches[f"widest area, {layer.name} layers"]
    numbers = [int(number) for number in re.findall(r"\d+", batch.why.partition(f"{layer.name} layers")[0])]
    assert numbers[2] == limits.area.limit(layer, limits.max_model_len)
    assert numbers[1] == widest_area(limits, batch, layer) <= numbers[2]


@pytest.mark.parametrize("layer", ["swaonly", "c1a", "c4a", "c128a"])
def test_the_widest_area_of_a_gpu_is_the_planners(layer: str) -> None:
    kind = LAYER_TYPES[layer]
    assert GPU.area is not None
    limit = GPU.area.limit(kind, GPU.max_model_len)
    areas = {batch.name: widest_area(GPU, batch, kind) for batch in worst_batches(GPU)}
    assert 0.99 * limit <= max(areas.values()) <= limit
    assert max(areas, key=lambda name: areas[name]).startswith("widest area")
    # The normal batches stay far below.
    assert areas["longest context"] < 0.5 * limit
    assert areas["full cache"] < 0.7 * limit


def test_the_batches_of_the_demo_are_cheap() -> None:
    batches = worst_batches(DEMO)
    assert [batch.name for batch in batches] == ["widest step", "deepest step", "longest context", "full cache"]
    # At about 0.3 s for a step of 1,024 tokens at its longest context, 0.15 s on average.
    steps = sum(len(steps_of(DEMO, batch)) for batch in batches)
    assert steps < 150
    assert sum(prompt for batch in batches for prompt, _ in batch.lengths) < 105_000


def test_with_a_threshold_long_prefills_stand_side_by_side() -> None:
    limits = SchedulerLimits(
        max_num_batched_tokens=1024,
        max_num_seqs=16,
        max_model_len=16_384,
        kv_blocks=20_000,
        block_size=16,
        long_prefill_token_threshold=256,
    )
    batch = named(limits, "side by side")
    deepest = max(min(share.context for share in step) for step in steps_of(limits, batch) if len(step) == 4)
    assert deepest > 15_000
    names = {one.name for one in worst_batches(limits)}
    assert not names & {"deepest step"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs must be at least 1, got 0"),
        ({"max_num_batched_tokens": 3}, "max_num_batched_tokens must be at least 4, got 3"),
        ({"max_model_len": 1}, "max_model_len must be at least 2, got 1"),
        ({"kv_blocks": 1}, "kv_blocks must be at least 2, got 1"),
        ({"long_prefill_token_threshold": -1}, "long_prefill_token_threshold must be at least 0, got -1"),
    ],
)
def test_limits_that_no_engine_has_are_refused(change: dict[str, int], message: str) -> None:
    sizes: dict[str, Any] = {
        "max_num_batched_tokens": 8,
        "max_num_seqs": 4,
        "max_model_len": 64,
        "kv_blocks": 9,
        "block_size": 16,
    }
    with pytest.raises(ValueError, match=message):
        SchedulerLimits(**{**sizes, **change})
