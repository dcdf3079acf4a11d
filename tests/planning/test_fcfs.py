"""The steps of the planning room against those of the scheduler of vLLM, which needs no engine and no weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.planning import SchedulerLimits, Share, fcfs_steps, worst_batches

pytestmark = pytest.mark.vllm

MODEL_LEN = 16_384
Steps = list[list[Share]]


@pytest.fixture(scope="module")
def vllm_steps(tiny_model_folder: Path) -> Callable[[SchedulerLimits, Sequence[tuple[int, int]]], Steps]:
    """Runs the scheduler over requests that are all there, as if a model gave it a token whenever one is due."""
    import torch
    from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig
    from vllm.sampling_params import SamplingParams
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.outputs import ModelRunnerOutput
    from vllm.v1.request import Request
    from vllm.v1.structured_output import StructuredOutputManager

    config = VllmConfig(
        model_config=ModelConfig(model=str(tiny_model_folder), max_model_len=MODEL_LEN, dtype="bfloat16"),
        scheduler_config=SchedulerConfig(
            max_num_batched_tokens=MODEL_LEN, max_num_seqs=4, max_model_len=MODEL_LEN, is_encoder_decoder=False
        ),
        cache_config=CacheConfig(block_size=16, enable_prefix_caching=False),
    )

    def run(limits: SchedulerLimits, lengths: Sequence[tuple[int, int]]) -> Steps:
        # vLLM has forced chunked prefill off for MLA on this processor; the scheduler itself knows no processor.
        own = config.scheduler_config
        own.enable_chunked_prefill = True
        own.max_num_batched_tokens = own.max_num_scheduled_tokens = limits.max_num_batched_tokens
        own.max_num_seqs = limits.max_num_seqs
        own.long_prefill_token_threshold = limits.long_prefill_token_threshold
        config.cache_config.num_gpu_blocks = limits.kv_blocks
        spec = FullAttentionSpec(block_size=limits.block_size, num_kv_heads=1, head_size=1, dtype=torch.float32)
        scheduler = Scheduler(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(limits.kv_blocks, [], [KVCacheGroupSpec(["layer"], spec)]),
            structured_output_manager=StructuredOutputManager(config),
            block_size=limits.block_size,
        )
        for index, (prompt, output) in enumerate(lengths):
            sampling = SamplingParams(max_tokens=output, ignore_eos=True, temperature=0.0)
            scheduler.add_request(Request(str(index), [1] * prompt, sampling, None))
        steps: Steps = []
        while scheduler.requests:
            computed = {name: request.num_computed_tokens for name, request in scheduler.requests.items()}
            planned = scheduler.schedule()
            assert not planned.preempted_req_ids
            granted = planned.num_scheduled_tokens
            steps.append([Share(int(name), computed[name], tokens) for name, tokens in granted.items()])
            requests: list[Any] = [scheduler.requests[name] for name in granted]
            tokens = [[7] if one.num_computed_tokens >= one.num_prompt_tokens else [] for one in requests]
            places = {name: place for place, name in enumerate(granted)}
            scheduler.update_from_output(planned, ModelRunnerOutput(list(granted), places, sampled_token_ids=tokens))
        return steps

    return run


def ours(limits: SchedulerLimits, lengths: Sequence[tuple[int, int]]) -> Steps:
    return list(
        fcfs_steps(
            lengths,
            max_num_batched_tokens=limits.max_num_batched_tokens,
            max_num_seqs=limits.max_num_seqs,
            long_prefill_token_threshold=limits.long_prefill_token_threshold,
        )
    )


def limits_of(**changes: int) -> SchedulerLimits:
    sizes: dict[str, Any] = {
        "max_num_batched_tokens": 1024,
        "max_num_seqs": 4,
        "max_model_len": MODEL_LEN,
        "kv_blocks": 5000,
        "block_size": 16,
    }
    return SchedulerLimits(**{**sizes, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"kv_blocks": 1025},
        {"kv_blocks": 2000, "max_num_seqs": 7},
        {"max_num_batched_tokens": 256, "max_num_seqs": 64, "kv_blocks": 1500, "max_model_len": 4096},
        {"long_prefill_token_threshold": 300, "max_num_seqs": 9},
        {"block_size": 64, "kv_blocks": 700, "max_num_seqs": 128, "max_num_batched_tokens": 2048},
    ],
    ids=str,
)
def test_vllm_forms_the_steps_of_every_worst_batch_and_preempts_nobody(
    vllm_steps: Callable[..., Steps], changes: dict[str, int]
) -> None:
    limits = limits_of(**changes)
    batches = worst_batches(limits)
    assert len(batches) > 2
    for batch in batches:
        assert vllm_steps(limits, batch.lengths) == ours(limits, batch.lengths), batch.name


@given(
    lengths=st.lists(st.tuples(st.integers(1, 400), st.integers(1, 12)), min_size=1, max_size=12),
    seqs=st.integers(1, 6),
    tokens=st.integers(6, 300),
    threshold=st.just(0) | st.integers(1, 200),
)
def test_the_steps_equal_vllms(
    vllm_steps: Callable[..., Steps], lengths: list[tuple[int, int]], seqs: int, tokens: int, threshold: int
) -> None:
    limits = limits_of(max_num_batched_tokens=tokens, max_num_seqs=seqs, long_prefill_token_threshold=threshold)
    assert vllm_steps(limits, lengths) == ours(limits, lengths)


@pytest.mark.parametrize(
    ("lengths", "message"), [([(0, 1)], "prompt tokens must be"), ([(1, 1), (3, 0)], "output tokens must be")]
)
def test_lengths_of_no_request_are_refused(lengths: list[tuple[int, int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(fcfs_steps(lengths, max_num_batched_tokens=8, max_num_seqs=2))
