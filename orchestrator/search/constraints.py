"""Points that arithmetic rules out before any engine is touched."""

from __future__ import annotations

from orchestrator.search.knobs import Point


def violated(point: Point, *, max_num_batched_tokens: int | None, max_num_seqs: int | None) -> str | None:
    """The first rule that a point breaks, as one line; None when it breaks none.

    Source: ``SchedulerConfig`` of vLLM 0.32 refuses ``max_num_seqs`` above ``max_num_batched_tokens``.

    Args:
        max_num_batched_tokens: The value where the point has none; None when it is left to vLLM.
        max_num_seqs: Likewise.
    """
    tokens = point.get("max_num_batched_tokens") or max_num_batched_tokens
    seqs = point.get("max_num_seqs") or max_num_seqs
    if isinstance(tokens, int) and isinstance(seqs, int) and seqs > tokens:
        return f"max_num_seqs {seqs} is above max_num_batched_tokens {tokens}"
    return None
