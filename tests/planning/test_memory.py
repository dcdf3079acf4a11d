from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.planning import buffers, memory
from orchestrator.planning.buffers import GIB, MIB
from orchestrator.planning.layers import C4A, C128A, SWA_ONLY
from orchestrator.planning.memory import Counted, Gpu, buffers_of, fits, knee, kv_effect
from orchestrator.planning.models import MODELS, model_named
from orchestrator.planning.shape import EngineShape

V3 = model_named("deepseek-v3")
FLASH = model_named("deepseek-v4-flash")


def engine(name: str = "deepseek-v3", **flags: Any) -> EngineShape:
    return EngineShape(**{"model": model_named(name), "max_num_seqs": 1024, **flags})


def sizes(shape: EngineShape, **hardware: bool) -> dict[str, float]:
    return {buffer.name: buffer.bytes / MIB for buffer in buffers_of(shape, **hardware)}


def when(shape: EngineShape, **hardware: bool) -> dict[str, Counted]:
    return {buffer.name: buffer.counted for buffer in buffers_of(shape, **hardware)}


# Rows, MiB of latent rows and GiB of the placeholder at 16 and at 128 heads per rank, as derived from each release.
TABLE = [
    ("deepseek-v3", {}, {"0.11": (65_536, 72), "pr-50484": (65_536, 72), "0.28": (65_536, 72)}),
    ("deepseek-v3", {"block_size": 128}, {"0.11": (131_072, 144), "0.28": (65_536, 72)}),
    ("deepseek-v3", {"dcp": 8}, {"0.11": (65_536, 81), "pr-50484": (65_536, 81), "0.28": (65_536, 81)}),
    ("deepseek-v3", {"dcp": 8, "interleave": 16}, {"pr-50484": (131_072, 162), "0.28": (65_536, 81)}),
    ("deepseek-v3", {"dcp": 8, "interleave": 64}, {"0.11": (65_536, 81), "pr-50484": (524_288, 648)}),
    (
        "deepseek-v3",
        {"dcp": 8, "interleave": 128, "block_size": 128},
        {"pr-50484": (1_048_576, 1296), "0.28": (65_536, 81)},
    ),
    ("kimi-k3", {"block_size": 768, "dcp": 8}, {"0.11": (786_432, 972), "0.28": (66_048, 81.6328125)}),
    (
        "kimi-k3",
        {"block_size": 11_000, "max_num_seqs": 256},
        {"0.11": (2_816_000, 3093.75), "0.28": (66_000, 72.509765625)},
    ),
]


@pytest.mark.parametrize(("name", "flags", "expected"), TABLE, ids=lambda value: str(value)[:40])
def test_the_gather_buffer_of_known_engines(name: str, flags: dict[str, int], expected: dict[str, Any]) -> None:
    for rule, (rows, mib) in expected.items():
        shape = engine(name, tp=8, rule=rule, **flags)
        assert shape.workspace_rows() == rows
        assert sizes(shape)["gather buffer"] == mib
        assert when(shape)["gather buffer"] is Counted.AFTER


@pytest.mark.parametrize(("tp", "gib"), [(8, 0.5), (1, 4.0)])
def test_the_placeholder_and_the_real_chunk_of_deepseek_v3(tp: int, gib: float) -> None:
    shape = engine(tp=tp)
    assert sizes(shape)["profile placeholder"] == gib * 1024
    assert sizes(shape)["context chunk"] == gib * 1024 * 896 / 512
    assert sizes(shape, flash_attention_2=True)["context chunk"] == gib * 1024 * 1280 / 512
    assert when(shape)["profile placeholder"] is Counted.PEAK
    assert when(shape)["context chunk"] is Counted.UNSEEN


def test_the_direct_buffers_of_context_parallelism() -> None:
    shape = engine(tp=8, dcp=8, direct_dcp=True, dcp_comm_backend="a2a")
    found = sizes(shape)
    assert found["direct KV gather"] == 144
    assert found["direct query gather"] == 144
    assert found["direct all-to-all"] == 256 + 1
    assert when(shape)["direct KV gather"] is Counted.AFTER
    assert when(shape)["direct all-to-all"] is Counted.BEFORE
    speculative = sizes(replace(shape, num_speculative_tokens=3))
    assert speculative["direct query gather"] == 576
    assert speculative["direct all-to-all"] == 4 * 257
    assert "direct all-to-all" not in sizes(replace(shape, dcp_comm_backend="ag_rs"))
    assert "direct KV gather" not in sizes(replace(shape, direct_dcp=False))


def test_tokens_of_the_decode_buffers() -> None:
    flags = {"max_num_batched_tokens": 8192, "num_speculative_tokens": 10, "max_cudagraph_capture_size": 0}
    assert buffers.dcp_tokens(max_num_seqs=128, **flags) == 1408
    assert buffers.dcp_tokens(max_num_seqs=1024, **flags) == 8192
    assert buffers.dcp_tokens(max_num_seqs=1, **{**flags, "max_cudagraph_capture_size": 512}) == 512


def test_a_sparse_model_is_profiled_with_dense_rows() -> None:
    shape = engine("deepseek-v3.2", tp=8, max_num_seqs=8)
    by_name = {buffer.name: buffer for buffer in buffers_of(shape)}
    assert by_name["gather buffer"].rows == 16_384
    assert by_name["profile placeholder"].rows == 65_536
    assert by_name["profile placeholder"].bytes == GIB // 2
    assert by_name["context chunk"].bytes == 16_384 * 16 * 448 * 2
    assert shape.workspace_rows(sparse=False) == 65_536


def test_the_extra_buffers_of_sparse_models() -> None:
    shape = engine("deepseek-v3.2", kv_cache_dtype="fp8_ds_mla")
    found = sizes(shape, sm100=True)
    assert found["indexer keys"] == 825
    assert found["fp8 up-conversion"] == 900
    assert found["indexer logits, at most"] == 512
    assert "top-k mask" not in found
    unquantised = replace(shape, kv_cache_dtype="auto")
    assert sizes(unquantised, sm100=True)["top-k mask"] == 128
    assert "top-k mask" not in sizes(unquantised)
    assert "fp8 up-conversion" not in sizes(unquantised)
    million = replace(shape, max_model_len=1_000_000)
    assert sizes(million)["indexer keys"] == 16_000_000 * 132 / MIB
    assert sizes(replace(million, vllm="0.31.0"))["indexer keys"] == 40_000_000 * 132 / MIB
    assert "indexer keys" not in sizes(engine("deepseek-v3"))


def test_the_shared_workspace_of_deepseek_v4() -> None:
    shape = engine("deepseek-v4-flash")
    assert memory.area_of(shape, C4A) == 1_081_856
    assert memory.reserved_bytes(shape, C4A) == 1_081_856 * 1024 + 8192 * 640 * 4 + 8192 * 4
    assert memory.reserved_bytes(replace(shape, vllm="0.26.0"), C4A) == 1_081_856 * 1024
    assert round(memory.reserved_bytes(shape, C4A) / MIB, 1) == 1076.5
    assert round(memory.reserved_bytes(shape, C128A) / MIB, 1) == 84.5
    assert round(memory.reserved_bytes(shape, SWA_ONLY) / MIB, 1) == 36.5
    short = replace(shape, max_model_len=131_072)
    assert round(memory.reserved_bytes(short, C4A) / MIB, 1) == 180.5
    assert sizes(shape)["C128A indices"] == 512
    assert memory.locked_workspace_bytes(shape) == memory.reserved_bytes(shape, C4A)
    assert memory.locked_workspace_bytes(replace(shape, num_ubatches=2)) == 2 * memory.reserved_bytes(shape, C4A)
    assert memory.locked_workspace_bytes(shape, other_users=5 * GIB) == 5 * GIB
    assert shape.workspace_rows() == 0


@pytest.mark.parametrize(
    ("name", "length", "fine", "over"),
    [
        ("deepseek-v4-flash", 1 << 20, 33_792, 34_048),
        ("deepseek-v4-pro", 1 << 20, 36_096, 36_352),
        ("deepseek-v4-flash", 1 << 18, 42_240, 42_496),
        ("deepseek-v4-pro", 1 << 18, 63_488, 63_744),
    ],
)
def test_long_steps_can_find_the_workspace_locked_too_small(name: str, length: int, fine: int, over: int) -> None:
    gpu = Gpu(total_bytes=192 * GIB, weights_bytes=0)
    small = engine(name, max_model_len=length, max_num_batched_tokens=fine)
    assert fits(small, gpu).serves
    large = replace(small, max_num_batched_tokens=over)
    verdict = fits(large, gpu)
    assert verdict.starts
    assert not verdict.serves
    assert verdict.reasons[0].startswith("the worst batch of a c128a layer asks")
    # The experts may have asked for more, and then there is room.
    assert fits(large, gpu, other_users=4 * GIB).serves
    # Before 0.27 the indices were not part of the workspace.
    assert fits(replace(large, vllm="0.26.0"), gpu).serves


@pytest.mark.parametrize(
    ("before", "after", "blocks"),
    [
        ({"tp": 8, "max_num_seqs": 2048, "rule": "0.11"}, {"rule": "0.28"}, 119),
        ({"tp": 1, "max_num_seqs": 2048, "rule": "0.11"}, {"rule": "0.28"}, 954),
        ({"tp": 8, "dcp": 8, "interleave": 64, "rule": "pr-50484"}, {"rule": "0.28"}, 835),
    ],
)
def test_kv_blocks_that_the_fix_gains(before: dict[str, Any], after: dict[str, Any], blocks: int) -> None:
    old = engine(**before)
    new = replace(old, **after)
    effect = kv_effect(old, new)
    assert effect.blocks == blocks
    assert effect.tokens == blocks * 64
    assert not effect.saturated
    assert kv_effect(new, old).blocks == -blocks
    assert effect.headroom_bytes > 0


def test_savings_are_a_maximum_and_not_a_sum() -> None:
    old = engine(tp=8, max_num_seqs=2048, rule="0.11")
    new = replace(old, rule="0.28")
    assert kv_effect(old, new).bytes == GIB // 2
    assert kv_effect(old, new, other_peak_bytes=768 * MIB).bytes == GIB // 4
    beyond = kv_effect(old, new, other_peak_bytes=2 * GIB)
    assert (beyond.bytes, beyond.blocks) == (0, 0)
    assert beyond.saturated
    # Two changes that each save nothing alone because the other is the peak.
    assert kv_effect(old, replace(old, mla_workspace_rows=1024), other_peak_bytes=GIB).bytes == 0


@given(st.integers(0, 4 * GIB), st.sampled_from([1, 2, 8]), st.sampled_from([64, 128]))
def test_below_the_knee_no_kv_cache_is_gained(peak: int, tp: int, block: int) -> None:
    shape = engine(tp=tp, block_size=block)
    rows = knee(shape, other_peak_bytes=peak)
    assert rows % block == 0
    at_knee = replace(shape, mla_workspace_rows=rows)
    above = replace(shape, mla_workspace_rows=rows + block)
    if above.workspace_rows() > rows:
        assert kv_effect(above, at_knee, other_peak_bytes=peak).bytes > 0
    # One step is the least there can be, even where it is above the other peak.
    if rows > block:
        below = replace(shape, mla_workspace_rows=rows // 2)
        assert kv_effect(at_knee, below, other_peak_bytes=peak).bytes == 0


def test_the_effect_of_another_model_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="same model"):
        kv_effect(engine(), engine("kimi-k2"))
    with pytest.raises(ValueError, match="other_peak_bytes must be at least 0"):
        kv_effect(engine(), engine(), other_peak_bytes=-1)
    flash = engine("deepseek-v4-flash")
    with pytest.raises(ValueError, match="bytes_per_block of deepseek-v4-flash"):
        kv_effect(flash, flash)
    smaller = replace(flash, prefill_chunk_size=2)
    assert kv_effect(flash, smaller, bytes_per_block=MIB).bytes == 2 * 270_464 * 1024


def test_bytes_of_a_block() -> None:
    assert V3.kv_bytes_per_block(64) == 4_497_408
    assert V3.kv_bytes_per_block(64, "fp8") == 4_497_408 // 2
    assert model_named("deepseek-v3.2").kv_bytes_per_block(64, "fp8_ds_mla") == 61 * 64 * (656 + 132)
    assert memory.block_bytes(engine(pp=2)) == 31 * 64 * 1152
    with pytest.raises(ValueError, match="kv_cache_dtype must be"):
        V3.kv_bytes_per_block(64, "int4")


def test_an_engine_that_fits() -> None:
    verdict = fits(engine(tp=8), Gpu(total_bytes=141 * GIB, weights_bytes=85 * GIB, other_peak_bytes=2 * GIB))
    assert (verdict.starts, verdict.serves, verdict.reasons) == (True, True, ())
    assert verdict.kv_bytes == int(0.92 * 141 * GIB) - 87 * GIB


@pytest.mark.parametrize(
    ("flags", "gpu", "starts", "reason"),
    [
        ({"tp": 8, "dcp": 3}, {}, False, "dcp-divides-tp: dcp must divide tp, got dcp=3, tp=8"),
        ({"tp": 8, "dcp": 8, "interleave": 48}, {}, False, "interleave-divides-block"),
        ({"tp": 8}, {"weights_bytes": 140 * GIB}, False, "no memory for the KV cache: 10.78 GiB short"),
        ({"tp": 8}, {"weights_bytes": 129 * GIB}, False, "the KV cache holds"),
        (
            {"gpu_memory_utilization": 0.99},
            {"weights_bytes": 90 * GIB},
            True,
            "the worst context chunk is 1.66 GiB too",
        ),
    ],
)
def test_an_engine_that_does_not_fit_says_why(
    flags: dict[str, Any], gpu: dict[str, int], starts: bool, reason: str
) -> None:
    verdict = fits(engine(**flags), Gpu(**{"total_bytes": 141 * GIB, "weights_bytes": 0, **gpu}))
    assert verdict.starts is starts
    assert not verdict.serves
    assert reason in verdict.reasons[0]


def test_every_shipped_model_can_be_described() -> None:
    for name in MODELS:
        shape = engine(name)
        assert all(buffer.bytes > 0 for buffer in buffers_of(shape))
        assert sum(count for _, count in shape.model.layer_types) in (0, shape.model.attention_layers)
    with pytest.raises(ValueError, match=r"got 'kimi-k4'; did you mean 'kimi-k"):
        model_named("kimi-k4")


def test_a_bad_flag_is_named() -> None:
    with pytest.raises(ValueError, match="max_num_seqs must be at least 1, got 0"):
        engine(max_num_seqs=0)
    with pytest.raises(ValueError, match="mla_workspace_rows must be a whole number"):
        engine(mla_workspace_rows=1.5)
    with pytest.raises(ValueError, match="version must look like"):
        engine(vllm="newest")
    with pytest.raises(ValueError, match="rule must be one of"):
        engine(rule="0.9")
    assert engine(tp=8, dcp=8, pp=2, dp=4).gpus == 64
