"""Rows of the MLA chunked-prefill workspace, for every sizing rule that vLLM has had.

A row holds one token's latent vector. Four rules exist:

=============  ======================  ===========================  ========================================
rule           vLLM                    cap when none is given       floor
=============  ======================  ===========================  ========================================
``"0.8"``      0.8 to 0.10             131,072 rows                 ``max_num_seqs * block_size``, not aligned
``"0.11"``     0.11 to 0.27            65,536 rows                  ``max_num_seqs * block_size``, not aligned
``"pr-50484"`` main branch only, 2026  65,536 rows                  ``max_num_seqs * alignment``, aligned
``"0.28"``     0.28 and later          65,536 rows                  one alignment step, aligned
=============  ======================  ===========================  ========================================

vLLM 0.8 to 0.10 do not raise the workspace to the floor but stop with an assertion where it is below;
:mod:`orchestrator.planning.constraints` holds that as a constraint, and the number here is what the start would need.

Sources: ``MLACommonMetadataBuilder.determine_chunked_prefill_workspace_size``, ``SparseMLACommonMetadataBuilder`` and
``align_mla_chunked_context_workspace_size`` of vLLM; pull requests 25290, 50484 and 51733.
"""

from __future__ import annotations

import math
from typing import Final, Literal, SupportsIndex, get_args

from orchestrator.planning._checks import context_parallel, whole
from orchestrator.planning._versions import release

Rule = Literal["0.8", "0.11", "pr-50484", "0.28"]
RULES: Final[tuple[Rule, ...]] = get_args(Rule)

DEFAULT_CAP: Final = 64 * 1024
_CAP_OF_RULE: Final[dict[str, int]] = {"0.8": 128 * 1024}
_FULL_LENGTH_REQUESTS: Final = 8
_PAGES_PER_REQUEST: Final = 4
_FIRST_KNOWN: Final = (0, 8, 0)


def rule_for_vllm(version: str) -> Rule:
    """Name the sizing rule of a vLLM version.

    Args:
        version: A release such as ``"0.31.0"``; suffixes (``"0.28.0rc1"``, ``"0.32.0+cpu"``) are accepted. A version
            newer than the ones this project was checked against gets the newest rule.

    Returns:
        ``"0.8"``, ``"0.11"`` or ``"0.28"``. Never ``"pr-50484"``: that rule lived for eleven days on the main branch,
        and no release has it.

    Raises:
        ValueError: if ``version`` is no version, or is older than 0.8.
    """
    number = release(version)
    if number < _FIRST_KNOWN:
        raise ValueError(f"version must be 0.8 or later, where the known sizing rules begin, got {version!r}")
    if number < (0, 11, 0):
        return "0.8"
    return "0.11" if number < (0, 28, 0) else "0.28"


def workspace_alignment(*, block_size: SupportsIndex, dcp: SupportsIndex = 1, interleave: SupportsIndex = 1) -> int:
    """Rows in one alignment step of the workspace.

    One KV cache block, or under decode context parallelism (DCP) the least common multiple of the block and of one
    interleave run on every rank, so that the gathered shards line up.

    Args:
        block_size: Tokens in a KV cache block, at least 1.
        dcp: Decode context parallel ranks, at least 1.
        interleave: Consecutive tokens that one rank keeps (``cp_kv_cache_interleave_size``), at least 1.

    Raises:
        ValueError: if a size is below 1, or if ``dcp`` is above 1 and ``interleave`` does not divide ``block_size``.
    """
    block, ranks, run = context_parallel(block_size, dcp, interleave)
    return block if ranks == 1 else math.lcm(block, ranks * run)


def align_workspace(
    rows: SupportsIndex, *, block_size: SupportsIndex, dcp: SupportsIndex = 1, interleave: SupportsIndex = 1
) -> int:
    """Round a workspace up to whole alignment steps, at least one (vLLM 0.28 and later).

    Args:
        rows: Rows wanted, at least 1.
        block_size: Tokens in a KV cache block, at least 1.
        dcp: Decode context parallel ranks, at least 1.
        interleave: Consecutive tokens that one rank keeps, at least 1.

    Returns:
        The smallest multiple of :func:`workspace_alignment` that is at least ``rows``.

    Raises:
        ValueError: if a size is below 1, or if ``dcp`` is above 1 and ``interleave`` does not divide ``block_size``.
    """
    step = workspace_alignment(block_size=block_size, dcp=dcp, interleave=interleave)
    return _round_up(whole("rows", rows), step)


def dense_workspace_rows(
    *,
    max_model_len: SupportsIndex,
    max_num_seqs: SupportsIndex,
    block_size: SupportsIndex,
    dcp: SupportsIndex = 1,
    interleave: SupportsIndex = 1,
    cap: SupportsIndex | None = None,
    rule: str = "0.28",
) -> int:
    """Workspace rows of a dense MLA backend.

    Args:
        max_model_len: Tokens, at least 1.
        max_num_seqs: Requests, at least 1.
        block_size: Tokens in a KV cache block, at least 1.
        dcp: Decode context parallel ranks, at least 1.
        interleave: Consecutive tokens that one rank keeps, at least 1.
        cap: The most rows before floor and alignment. ``None`` takes the rule's own: 131,072 for ``"0.8"``, else
            65,536.
        rule: One of :data:`RULES`; :func:`rule_for_vllm` maps a version to its rule.

    Returns:
        Rows, as vLLM allocates them on each rank (without DCP's extra gather rows).

    Raises:
        ValueError: if a size is below 1, ``rule`` is not known, or ``dcp`` is above 1 and ``interleave`` does not
            divide ``block_size``.
    """
    context_parallel(block_size, dcp, interleave)
    wanted, seqs, block = _wanted_rows(max_model_len, max_num_seqs, block_size, cap, known_rule(rule))
    if rule in ("0.8", "0.11"):
        return max(wanted, seqs * block)
    return _aligned(wanted, seqs, workspace_alignment(block_size=block, dcp=dcp, interleave=interleave), rule)


def sparse_workspace_rows(
    *,
    max_model_len: SupportsIndex,
    max_num_seqs: SupportsIndex,
    block_size: SupportsIndex,
    index_topk: SupportsIndex,
    dcp: SupportsIndex = 1,
    interleave: SupportsIndex = 1,
    cap: SupportsIndex | None = None,
    rule: str = "0.28",
) -> int:
    """Workspace rows of a sparse MLA backend: the dense wish, but no more than ``max_num_seqs * index_topk``.

    vLLM sizes sparse backends on their own since 0.26. It rounds to the alignment only under decode context
    parallelism, so without it the result need not be a multiple of the block. ``"0.11"`` is the rule of 0.26 and 0.27;
    ``"0.8"`` is the same with the older cap, and no release used it for a sparse backend.

    Args:
        max_model_len: Tokens, at least 1.
        max_num_seqs: Requests, at least 1.
        block_size: Tokens in a KV cache block, at least 1.
        index_topk: Tokens that the indexer selects for a query (2,048 in DeepSeek-V3.2), at least 1. vLLM reads it from
            ``hf_config`` up to 0.29 and from ``hf_text_config`` since 0.30.
        dcp: Decode context parallel ranks, at least 1.
        interleave: Consecutive tokens that one rank keeps, at least 1.
        cap: The most rows before floor and alignment. ``None`` takes the rule's own.
        rule: One of :data:`RULES`.

    Raises:
        ValueError: as :func:`dense_workspace_rows`, and if ``index_topk`` is below 1.
    """
    _, ranks, run = context_parallel(block_size, dcp, interleave)
    wanted, seqs, block = _wanted_rows(max_model_len, max_num_seqs, block_size, cap, known_rule(rule))
    wanted = min(wanted, seqs * whole("index_topk", index_topk))
    if rule in ("0.8", "0.11"):
        return max(wanted, seqs * block)
    rows = max(wanted, block if rule == "0.28" else seqs * block)
    if ranks == 1:
        return rows
    return _aligned(rows, seqs, workspace_alignment(block_size=block, dcp=ranks, interleave=run), rule)


def _aligned(rows: int, max_num_seqs: int, alignment: int, rule: str) -> int:
    floor = max_num_seqs * alignment if rule == "pr-50484" else alignment
    return _round_up(max(rows, floor), alignment)


def _wanted_rows(
    max_model_len: SupportsIndex,
    max_num_seqs: SupportsIndex,
    block_size: SupportsIndex,
    cap: SupportsIndex | None,
    rule: Rule,
) -> tuple[int, int, int]:
    """Rows for 8 full-length requests or 4 pages for every request, capped; with the two checked sizes."""
    seqs = whole("max_num_seqs", max_num_seqs)
    block = whole("block_size", block_size)
    length = whole("max_model_len", max_model_len)
    limit = _CAP_OF_RULE.get(rule, DEFAULT_CAP) if cap is None else whole("cap", cap)
    return min(max(_FULL_LENGTH_REQUESTS * length, _PAGES_PER_REQUEST * seqs * block), limit), seqs, block


def known_rule(rule: str) -> Rule:
    """Return ``rule`` if it names a sizing rule.

    Raises:
        ValueError: if it names none.
    """
    for known in RULES:
        if rule == known:
            return known
    raise ValueError(f"rule must be one of {', '.join(map(repr, RULES))}, got {rule!r}")


def _round_up(rows: int, step: int) -> int:
    return -(-rows // step) * step
