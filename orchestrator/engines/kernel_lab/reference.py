"""What the layers must give, written down directly: fp32, one query at a time, nothing chunked, paged or merged.

For tests. Queries are in base 2, as everywhere in the lab.
"""

from __future__ import annotations

import math

import torch


def attention_of_one(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, sink: torch.Tensor | None = None
) -> torch.Tensor:
    """Attention of one query over all the keys that are given.

    Args:
        query: ``[heads, key]``.
        keys: ``[rows, key]`` for all heads, or ``[heads, rows, key]``.
        values: Likewise.
        sink: A further score that has no value, ``[heads]``; None for none.

    Returns:
        ``[heads, value]``, fp32.
    """
    scores = (keys.float() @ query.float().unsqueeze(-1)).squeeze(-1) * math.log(2.0)
    if sink is not None:
        scores = torch.cat((scores, sink.float().unsqueeze(1) * math.log(2.0)), dim=1)
    weights = torch.softmax(scores, dim=1)[:, : keys.shape[-2]]
    return (weights.unsqueeze(1) @ values.float()).squeeze(1)


def v4_attention(
    queries: torch.Tensor,
    first_position: int,
    rows: torch.Tensor,
    compressed: torch.Tensor,
    selected: torch.Tensor,
    *,
    window: int,
    sink: torch.Tensor,
) -> torch.Tensor:
    """Attention of a request's queries in a DeepSeek-V4 layer.

    Args:
        queries: ``[queries, heads, width]``.
        first_position: Position of the first of them.
        rows: Window row of every token of the request, ``[tokens, width]``.
        compressed: Its compressed rows, ``[any, width]``.
        selected: Compressed rows of each query, ``[queries, most]``, -1 for none.
        window: Tokens.
        sink: ``[heads]``.
    """
    outputs = []
    for number, query in enumerate(queries):
        position = first_position + number
        own = selected[number][selected[number] >= 0].long()
        visible = torch.cat((compressed[own], rows[max(0, position - window + 1) : position + 1]))
        outputs.append(attention_of_one(query, visible, visible, sink))
    return torch.stack(outputs)


def mla_attention(
    queries: torch.Tensor,
    first_position: int,
    latents: torch.Tensor,
    key_weight: torch.Tensor,
    value_weight: torch.Tensor,
    *,
    kv_lora_rank: int,
    selected: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention of a request's queries in a dense or sparse MLA layer.

    Args:
        queries: ``[queries, heads, key]``.
        first_position: Position of the first of them.
        latents: Latent row of every token of the request, ``[tokens, latent]``.
        key_weight: ``[heads * nope, kv_lora_rank]``.
        value_weight: ``[kv_lora_rank, heads * value]``.
        selected: Tokens of each query, ``[queries, most]``, -1 for none; None for all up to its own position.
    """
    heads = queries.shape[1]
    vector, rope = latents[:, :kv_lora_rank].float(), latents[:, kv_lora_rank:].float()
    nope = (vector @ key_weight.float().t()).view(-1, heads, key_weight.shape[0] // heads).transpose(0, 1)
    keys = torch.cat((nope, rope.expand(heads, *rope.shape)), dim=2)
    values = (vector @ value_weight.float()).view(-1, heads, value_weight.shape[1] // heads).transpose(0, 1)
    outputs = []
    for number, query in enumerate(queries):
        visible = torch.arange(first_position + number + 1)
        if selected is not None:
            visible = selected[number][selected[number] >= 0].long()
        outputs.append(attention_of_one(query, keys[:, visible], values[:, visible]))
    return torch.stack(outputs)
