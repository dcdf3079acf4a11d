"""The step planner in the place of vLLM's, through vLLM's own metadata class."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from orchestrator.planning import LAYER_TYPES, planner_of, step_planner

# Imported by the tests and not while they are collected, which every worker of pytest-xdist does.
swa = partial(pytest.importorskip, "vllm.v1.attention.backends.mla.sparse_swa")

# Another file may have built vLLM's argument parser in this process, which loads our plugin.
pytestmark = pytest.mark.usefixtures("vllm_originals")

#: DeepSeek-V4-Flash's 43 layers by ratio: two with the window only, then C4A and C128A in turn.
LAYER_RATIOS = [1, 1, *[4, 128] * 20, 4]


def metadata_of(seq: Any, query: Any, **changes: Any) -> Any:
    """Metadata of one step, as vLLM's builder makes it."""
    fields: dict[str, Any] = {
        "block_table": torch.empty(0),
        "slot_mapping": torch.empty(0),
        "block_size": 64,
        "num_prefills": len(seq),
        "prefill_seq_lens_cpu": torch.tensor(seq, dtype=torch.int32),
        "prefill_query_lens_cpu": torch.tensor(query, dtype=torch.int32),
        "prefill_window_size": 128,
        "prefill_max_model_len": 131_072,
        "prefill_max_num_batched_tokens": 8192,
    }
    return swa().DeepseekSparseSWAMetadata(**{**fields, **changes})


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Install the planner as the plugin does. The list holds each plan that was really computed."""
    computed: list[Any] = []

    def get_prefill_chunk_plan(
        self: Any, compress_ratio: int, prefill_chunk_size: int, has_compressed: bool | None = None
    ) -> Any:
        if self.num_prefills == 0:
            return []
        planner = self.get_prefill_chunk_plan = planner_of(self, on_plan=computed.append)
        return planner(compress_ratio, prefill_chunk_size, has_compressed)

    monkeypatch.setattr(swa().DeepseekSparseSWAMetadata, "get_prefill_chunk_plan", get_prefill_chunk_plan)
    return computed


def random_batch(rng: np.random.Generator) -> tuple[Any, Any]:
    """Lengths of up to 64 requests, some with more query than vLLM's own bounds would let through."""
    seq = rng.integers(1, 131_073, rng.integers(1, 65))
    return seq, rng.integers(1, 8193, seq.size)


def test_installed_plans_equal_vllm_for_every_layer_type(request: pytest.FixtureRequest) -> None:
    rng = np.random.default_rng(5)
    batches = [random_batch(rng) for _ in range(200)]
    calls = [
        (kind.compress_ratio, size, compressed)
        for kind in LAYER_TYPES.values()
        for compressed in (None, kind.has_compressed)
        for size in (1, 4)
    ]
    theirs = [[metadata_of(*batch).get_prefill_chunk_plan(*call) for call in calls] for batch in batches]
    request.getfixturevalue("installed")
    ours = []
    for batch in batches:
        metadata = metadata_of(*batch)
        ours.append([metadata.get_prefill_chunk_plan(*call) for call in calls])
    assert ours == theirs


def test_a_step_plans_once_per_layer_type(installed: list[Any]) -> None:
    for seq in ([5000] * 20, [9000] * 3):
        metadata = metadata_of(seq, [200] * len(seq))
        plans = [metadata.get_prefill_chunk_plan(compress_ratio=ratio, prefill_chunk_size=4) for ratio in LAYER_RATIOS]
        assert all(type(chunk) is tuple for plan in plans for chunk in plan)
        assert {id(plan) for plan in plans[2::2]} == {id(plans[2])}
    assert len(installed) == 2 * 3
    assert installed[3:] == plans[1:4]


def test_the_chunk_size_and_the_layer_choose_the_plan() -> None:
    planner = planner_of(metadata_of([100_000] * 12, [680] * 12))
    assert planner(4, 4) != planner(4, 1)
    assert planner(1, 4) != planner(1, 4, True)
    assert planner(1, 4) == planner(1, 4, False)


def test_a_cap_only_lowers_the_limit() -> None:
    metadata = metadata_of([7000] * 16, [600] * 16)
    free = planner_of(metadata)(1, 4)
    assert free == [(0, 16, 0, 727)]
    assert planner_of(metadata, area_cap=10**9)(1, 4) == free
    capped = planner_of(metadata, area_cap=6000)(1, 4)
    assert capped == [(0, 8, 0, 727), (8, 16, 0, 727)]


def test_only_the_prefills_of_the_tensors_count(installed: list[Any]) -> None:
    assert metadata_of([], []).get_prefill_chunk_plan(4, 4) == []
    assert metadata_of([900, 80], [90, 8], num_prefills=1).get_prefill_chunk_plan(4, 4) == [(0, 1, 225, 442)]


def test_tensors_of_another_kind_give_the_same_plan() -> None:
    metadata = metadata_of([900, 80, 60], [90, 8, 6])
    expected = planner_of(metadata)(4, 4)
    metadata.prefill_query_lens_cpu = metadata.prefill_query_lens_cpu.long()
    assert planner_of(metadata)(4, 4) == expected
    metadata.prefill_seq_lens_cpu = torch.tensor([900, 0, 80, 0, 60, 0], dtype=torch.int16)[::2]
    assert planner_of(metadata)(4, 4) == expected


def test_metadata_without_lengths_is_refused() -> None:
    with pytest.raises(ValueError, match="prefill_seq_lens_cpu"):
        planner_of(metadata_of([5], [5], prefill_query_lens_cpu=None))


def test_a_step_can_be_planned_from_arrays() -> None:
    lengths = np.array([80, 96, 112, 128, 144], np.int32), np.full(5, 4, np.int32)
    planner = step_planner(*lengths, window=64, max_model_len=1024, max_num_batched_tokens=128)
    assert planner(4, 4) == [(0, 5, 36, 103)]
