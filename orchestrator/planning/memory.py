"""What MLA prefill costs in memory, what a change of it is worth in KV cache, and whether an engine fits.

vLLM sizes the KV cache as ``utilisation * total - consumed - transient peak - CUDA graphs``. So a buffer that the
engine makes before the profile counts fully; a transient counts only where it is the peak; a buffer made after the
profile takes from what the utilisation leaves free. Sizes are per rank. The buffers themselves: ``buffers.py``, one by
one, and :func:`buffers_of`, those of an engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orchestrator.planning import buffers
from orchestrator.planning._checks import whole
from orchestrator.planning.constraints import violations
from orchestrator.planning.inventory import (
    Buffer,
    Counted,
    area_of,
    buffers_of,
    locked_workspace_bytes,
    placeholder_bytes,
    reserved_bytes,
    transient_bytes,
    worst_bytes,
)
from orchestrator.planning.shape import EngineShape
from orchestrator.planning.workspace import workspace_alignment

__all__ = [
    "Buffer",
    "Counted",
    "Gpu",
    "KvEffect",
    "Verdict",
    "area_of",
    "block_bytes",
    "buffers_of",
    "fits",
    "knee",
    "kv_effect",
    "locked_workspace_bytes",
    "placeholder_bytes",
    "reserved_bytes",
    "transient_bytes",
    "worst_bytes",
]

GIB: Final = buffers.GIB


@dataclass(frozen=True)
class KvEffect:
    """What a change is worth.

    Attributes:
        bytes: KV cache bytes gained on each rank; negative when lost.
        blocks: KV blocks gained on each rank.
        tokens: Tokens gained on each rank. With DCP a sequence is spread over the ranks: ``dcp`` times as many.
        headroom_bytes: Bytes gained outside the KV cache, where buffers made after the profile lie.
        saturated: Whether the new placeholder is no longer the peak, so that going further gains no KV cache.
    """

    bytes: int
    blocks: int
    tokens: int
    headroom_bytes: int
    saturated: bool


def kv_effect(
    before: EngineShape,
    after: EngineShape,
    *,
    other_peak_bytes: int = 0,
    other_users: int = 0,
    bytes_per_block: int | None = None,
) -> KvEffect:
    """KV blocks gained or lost by a change of the engine.

    A transient counts only as the largest of its kind, so its savings are a difference of maxima, never a sum.

    Args:
        before: The engine as it is.
        after: The engine as it would be; the same model.
        other_peak_bytes: Largest transient of the profile other than the placeholder (the experts', the sampler's).
            0 is the case most in favour of the change.
        other_users: Largest request for DeepSeek-V4's shared workspace other than the gather, in bytes.
        bytes_per_block: Bytes of one KV block on a rank; ``None`` computes it for models whose blocks are uniform.

    Raises:
        ValueError: if the models differ, an argument is negative, or the block cannot be computed.
    """
    if before.model != after.model:
        raise ValueError(f"after must be of the same model, got {before.model.name} and {after.model.name}")
    peak = whole("other_peak_bytes", other_peak_bytes, least=0)
    block = block_bytes(after) if bytes_per_block is None else whole("bytes_per_block", bytes_per_block)
    taken = [_taken_from_kv(shape, peak, whole("other_users", other_users, least=0)) for shape in (before, after)]
    late = [sum(item.bytes for item in buffers_of(shape) if item.counted is Counted.AFTER) for shape in (before, after)]
    gained = taken[0] - taken[1]
    # Toward zero: a part of a block is neither gained nor lost.
    blocks = gained // block if gained >= 0 else -(-gained // block)
    saturated = placeholder_bytes(after) <= peak
    return KvEffect(gained, blocks, blocks * after.block_size, late[0] - late[1], saturated)


def block_bytes(shape: EngineShape) -> int:
    """Bytes of one KV block on a rank of the largest pipeline stage.

    Raises:
        ValueError: for DeepSeek-V4, whose block is not one number.
    """
    whole_model = shape.model.kv_bytes_per_block(shape.block_size, shape.kv_cache_dtype)
    return whole_model // shape.model.attention_layers * shape.layers_per_rank


def _taken_from_kv(shape: EngineShape, other_peak: int, other_users: int) -> int:
    kept = sum(item.bytes for item in buffers_of(shape) if item.counted is Counted.BEFORE)
    if shape.model.is_v4:
        kept += locked_workspace_bytes(shape, other_users=other_users) - locked_workspace_bytes(shape)
    return kept + max(placeholder_bytes(shape), other_peak)


def knee(shape: EngineShape, *, other_peak_bytes: int) -> int:
    """Workspace rows below which less workspace gains no more KV cache: there another transient is the peak.

    Args:
        shape: The engine.
        other_peak_bytes: Largest transient of the profile other than the placeholder.

    Returns:
        Rows, a multiple of the alignment and at least one step of it.

    Raises:
        ValueError: if ``other_peak_bytes`` is negative.
    """
    model = shape.model
    row = shape.heads_per_rank * (model.qk_nope_head_dim + model.v_head_dim) * 2
    step = workspace_alignment(block_size=shape.block_size, dcp=shape.dcp, interleave=shape.interleave)
    rows = whole("other_peak_bytes", other_peak_bytes, least=0) // row
    return max(rows // step, 1) * step


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU and what lies on it before any prefill buffer.

    Attributes:
        total_bytes: Memory of the device.
        weights_bytes: Weights on it.
        other_peak_bytes: Largest transient of the profile other than the placeholder.
        graph_bytes: Estimate for CUDA graphs.
        other_bytes: What else is resident: the driver, communicators, other processes.
    """

    total_bytes: int
    weights_bytes: int
    other_peak_bytes: int = 0
    graph_bytes: int = 0
    other_bytes: int = 0


@dataclass(frozen=True)
class Verdict:
    """Whether an engine can run.

    Attributes:
        starts: Whether the engine starts.
        serves: Whether its worst batch fits as well.
        kv_bytes: Bytes left for the KV cache; 0 when there are none.
        spare_bytes: Bytes left beside the KV cache in the worst batch; negative when it does not fit.
        reasons: Why not, one line each; empty when it does.
    """

    starts: bool
    serves: bool
    kv_bytes: int
    spare_bytes: int
    reasons: tuple[str, ...]


def fits(shape: EngineShape, gpu: Gpu, *, flash_attention_2: bool = False, other_users: int = 0) -> Verdict:
    """Tell by arithmetic whether an engine starts, and whether its worst batch fits.

    An engine that breaks a constraint of its version gets no arithmetic: nothing of it is ever allocated.

    Args:
        shape: The engine.
        gpu: The device.
        flash_attention_2: Whether the prefill kernel pads values to the width of keys.
        other_users: Largest request for DeepSeek-V4's shared workspace other than the gather, in bytes.
    """
    reasons = [f"{rule.name}: {rule.message(shape)}" for rule in violations(shape)]
    if reasons:
        return Verdict(False, False, 0, 0, tuple(reasons))
    kept = gpu.weights_bytes + gpu.other_bytes
    available = int(shape.gpu_memory_utilization * gpu.total_bytes) - gpu.graph_bytes - kept
    kv = available - _taken_from_kv(shape, gpu.other_peak_bytes, other_users)
    if kv <= 0:
        reasons.append(f"no memory for the KV cache: {-kv / GIB:.2f} GiB short")
    elif not shape.model.is_v4:
        needed = -(-shape.length // (shape.block_size * shape.dcp))
        blocks = kv // block_bytes(shape)
        if blocks < needed:
            reasons.append(
                f"the KV cache holds {blocks} blocks, one request of max_model_len={shape.length} needs {needed}"
            )
    starts = not reasons
    late = sum(item.bytes for item in buffers_of(shape) if item.counted is Counted.AFTER)
    unseen = transient_bytes(shape, flash_attention_2=flash_attention_2)
    beyond = max(0, unseen - max(placeholder_bytes(shape), gpu.other_peak_bytes))
    spare = gpu.total_bytes - int(shape.gpu_memory_utilization * gpu.total_bytes) - late - beyond
    if spare < 0:
        reasons.append(
            f"the worst context chunk is {-spare / GIB:.2f} GiB too large: {late / GIB:.2f} GiB of buffers made after"
            f" the profile and {beyond / GIB:.2f} GiB beyond its placeholder, in what the utilisation leaves free"
        )
    locked = _lock_reason(shape, other_users)
    if locked:
        reasons.append(locked)
    return Verdict(starts, not reasons, max(kv, 0), spare, tuple(reasons))


def _lock_reason(shape: EngineShape, other_users: int) -> str | None:
    """Why a batch could find the shared workspace locked and too small, or ``None``."""
    if not shape.model.is_v4:
        return None
    slots = shape.num_ubatches * shape.num_lanes
    held = locked_workspace_bytes(shape, other_users=other_users) // slots
    kind = max((kind for kind, _ in shape.model.layer_types), key=lambda kind: worst_bytes(shape, kind))
    worst = worst_bytes(shape, kind)
    if worst <= held:
        return None
    return (
        f"the worst batch of a {kind.name} layer asks {worst / buffers.MIB:.2f} MB of a workspace locked at"
        f" {held / buffers.MIB:.2f} MB"
    )
