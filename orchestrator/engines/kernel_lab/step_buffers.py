"""Scratch buffers that hold something for each member of a step, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from orchestrator.engines.kernel_lab.attention import QUERY_STEP, Partial
from orchestrator.engines.kernel_lab.workspace import Scratch, round_up


def padded_by_head(queries: Sequence[torch.Tensor], scratch: Scratch) -> list[torch.Tensor]:
    """Queries of each member as attention takes them: ``[heads, padded tokens, key]``, with zeros in the padding.

    Args:
        queries: Of each member, ``[tokens, heads, key]``; at least one.
    """
    _, heads, key = queries[0].shape
    counts = [round_up(own.shape[0], QUERY_STEP) for own in queries]
    buffer = scratch.take("by head", (sum(counts) * heads * key,), queries[0].dtype)
    found = []
    for count, part, own in zip(counts, buffer.split([count * heads * key for count in counts]), queries, strict=True):
        padded = part.view(heads, count, key)
        padded[:, : own.shape[0]] = own.transpose(0, 1)
        padded[:, own.shape[0] :] = 0
        found.append(padded)
    return found


def room_for_results(queries: Sequence[torch.Tensor], value: int, scratch: Scratch) -> list[Partial]:
    """Room for the results of all members at once.

    Args:
        queries: From :func:`padded_by_head`.
        value: Elements of a value.
    """
    heads = queries[0].shape[0]
    counts = [heads * query.shape[1] for query in queries]
    outs = scratch.take("totals", (sum(counts) * value,), torch.float32).split([count * value for count in counts])
    lses = scratch.take("total lses", (sum(counts),), torch.float32).split(counts)
    return [Partial(out.view(heads, -1, value), lse.view(heads, -1)) for out, lse in zip(outs, lses, strict=True)]
