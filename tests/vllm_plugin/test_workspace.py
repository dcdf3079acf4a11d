"""The workspace's size by vLLM's own functions, with and without our cap."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.planning import dense_workspace_rows, sparse_workspace_rows, workspace_alignment
from orchestrator.vllm_plugin import workspace
from orchestrator.vllm_plugin.state import WORKER
from tests.vllm_plugin.conftest import builder, runner, vllm_config

Rule = Callable[[Any], int]


@pytest.fixture(scope="module")
def rules(vllm_originals: pytest.MonkeyPatch) -> dict[str, Rule]:
    """vLLM's two sizing rules as they were and as they are with the plugin."""
    from vllm.model_executor.layers.attention.mla_attention import MLACommonMetadataBuilder as Dense
    from vllm.model_executor.layers.attention.sparse_mla_attention import SparseMLACommonMetadataBuilder as Sparse

    own = {
        "dense": Dense.determine_chunked_prefill_workspace_size,
        "sparse": Sparse.determine_chunked_prefill_workspace_size,
    }
    workspace.install()
    return {
        **{f"own {name}": rule for name, rule in own.items()},
        "dense": Dense.determine_chunked_prefill_workspace_size,
        "sparse": Sparse.determine_chunked_prefill_workspace_size,
    }


@st.composite
def sizes(draw: st.DrawFn) -> dict[str, Any]:
    interleave = draw(st.sampled_from([1, 2, 4, 8, 16]))
    return {
        "max_model_len": draw(st.integers(1, 300_000)),
        "max_num_seqs": draw(st.integers(1, 2048)),
        "block_size": interleave * draw(st.integers(1, 16)),
        "dcp": draw(st.sampled_from([1, 2, 3, 4, 8])),
        "interleave": interleave,
    }


topks = st.sampled_from([1, 64, 512, 2048])
caps = st.integers(1, 400_000)


@given(size=sizes(), topk=topks)
def test_without_a_cap_the_size_is_vllms_own(rules: dict[str, Rule], size: dict[str, Any], topk: int) -> None:
    config = vllm_config(**size, index_topk=topk, cpu_chunked_prefill=True)
    assert rules["dense"](config) == rules["own dense"](config)
    assert rules["sparse"](config) == rules["own sparse"](config)


@given(size=sizes(), topk=topks)
def test_vllms_own_cap_asked_for_by_hand_changes_nothing(
    rules: dict[str, Rule], size: dict[str, Any], topk: int
) -> None:
    config = vllm_config(**size, index_topk=topk, mla_workspace_rows=65_536)
    assert rules["dense"](config) == rules["own dense"](config)
    assert rules["sparse"](config) == rules["own sparse"](config)


@given(size=sizes(), topk=topks, cap=caps)
def test_a_cap_gives_what_planning_says(rules: dict[str, Rule], size: dict[str, Any], topk: int, cap: int) -> None:
    config = vllm_config(**size, index_topk=topk, mla_workspace_rows=cap)
    assert rules["dense"](config) == dense_workspace_rows(**size, cap=cap)
    assert rules["sparse"](config) == sparse_workspace_rows(**size, index_topk=topk, cap=cap)
    assert workspace.alignment(config) == workspace_alignment(
        block_size=size["block_size"], dcp=size["dcp"], interleave=size["interleave"]
    )


@pytest.mark.parametrize(
    ("cap", "dcp", "interleave", "dense", "sparse"),
    [
        (256, 1, 1, 256, 256),
        (250, 1, 1, 256, 250),  # without DCP the sparse rule does not round
        (1, 1, 1, 16, 16),
        (250, 3, 16, 288, 288),  # lcm(16, 3 * 16) = 48
        (100_000, 1, 1, 100_000, 8192),  # sparse: 4 requests times top-k 2048
        (300_000, 1, 1, 131_072, 8192),  # dense: 8 requests of 16,384 tokens
    ],
)
def test_caps_by_hand(rules: dict[str, Rule], cap: int, dcp: int, interleave: int, dense: int, sparse: int) -> None:
    config = vllm_config(dcp=dcp, interleave=interleave, mla_workspace_rows=cap)
    assert (rules["dense"](config), rules["sparse"](config)) == (dense, sparse)


@given(size=sizes(), seqs=st.integers(1, 2048))
def test_a_live_number_of_requests_counts_like_a_configured_one(
    rules: dict[str, Rule], size: dict[str, Any], seqs: int
) -> None:
    live = workspace.workspace_rows(vllm_config(**size), cap=65_536, sparse=False, max_num_seqs=seqs)
    assert live == rules["own dense"](vllm_config(**{**size, "max_num_seqs": seqs}))


@pytest.mark.usefixtures("rules")
class TestResize:
    def test_every_builder_gets_the_new_size(self) -> None:
        model_runner = runner(builder(1024), builder(512))
        assert workspace.resize(model_runner, cap=100, max_num_seqs=None) == 112
        for one in workspace.builders_of(model_runner):
            assert one.chunked_prefill_workspace_size == 112
            assert one.chunked_prefill_workspace.shape == (112, 576)
            assert one.chunked_prefill_workspace.dtype == torch.bfloat16

    def test_no_cap_is_vllms_own(self) -> None:
        model_runner = runner(builder(64))
        assert workspace.resize(model_runner, cap=None, max_num_seqs=None) == 65_536

    def test_the_same_size_keeps_the_tensor(self) -> None:
        model_runner = runner(builder(128))
        before = workspace.builders_of(model_runner)[0].chunked_prefill_workspace
        workspace.resize(model_runner, cap=128, max_num_seqs=None)
        assert workspace.builders_of(model_runner)[0].chunked_prefill_workspace is before

    def test_dcp_gathers_beside_the_rows_and_sets_its_collective_up_again(self) -> None:
        calls: list[tuple[tuple[int, ...], int]] = []
        manager = SimpleNamespace(init_kv_gather=lambda tensor, rows: calls.append((tuple(tensor.shape), rows)))
        model_runner = runner(builder(1024, dcp=2, manager=manager), dcp=2)
        assert workspace.resize(model_runner, cap=256, max_num_seqs=None) == 256
        assert calls == [((384, 576), 256)]

    def test_a_model_without_mla_has_nothing_to_resize(self) -> None:
        assert workspace.resize(runner(), cap=256, max_num_seqs=None) is None

    def test_a_tensor_that_does_not_fit_leaves_the_old_size(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model_runner, empty = runner(builder(128)), torch.empty

        def full(shape: tuple[int, int], **kwargs: Any) -> torch.Tensor:
            if shape[0] > 128:
                raise torch.OutOfMemoryError("injected")
            return empty(shape, **kwargs)

        monkeypatch.setattr(torch, "empty", full)
        with pytest.raises(torch.OutOfMemoryError):
            workspace.resize(model_runner, cap=4096, max_num_seqs=None)
        (one,) = workspace.builders_of(model_runner)
        assert (one.chunked_prefill_workspace_size, one.chunked_prefill_workspace.shape[0]) == (128, 128)


@pytest.mark.usefixtures("rules")
def test_the_planner_counts_its_chunks() -> None:
    """Two requests with 100 and 40 cached tokens in a workspace of 64 rows, by vLLM's own planner."""
    from vllm.model_executor.layers.attention import mla_attention, sparse_mla_attention

    planner = mla_attention.build_mla_chunked_context_metadata
    assert sparse_mla_attention.build_mla_chunked_context_metadata is planner
    common = {
        "prefill_query_start_loc_cpu": torch.tensor([0, 8, 16], dtype=torch.int32),
        "chunked_prefill_workspace": torch.empty((64, 576)),
        "chunked_prefill_workspace_size": 64,
        "block_size": 16,
        "align_chunk_to_block": True,
        "device": torch.device("cpu"),
        "dcp_world_size": 1,
        "dcp_local_block_size": 1,
        "dcp_virtual_block_size": 1,
        "dcp_manager": None,
    }
    chunks = WORKER.context_chunks
    metadata = planner(context_lens_cpu=torch.tensor([100, 40], dtype=torch.int32), **common)
    planned = chunks + len(metadata.chunks)
    assert WORKER.context_chunks == planned > chunks + 1
    planner(context_lens_cpu=torch.tensor([0, 0], dtype=torch.int32), **common)
    assert WORKER.context_chunks == planned, "a step without context has no plan"


def test_entries_are_counted_and_passed_on() -> None:
    before = WORKER.workspace_entries
    counted = workspace.count_entries(lambda left, right: left + right)
    assert counted(1, right=2) == 3
    assert WORKER.workspace_entries == before + 1
