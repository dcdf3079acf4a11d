"""The output token: the largest of a seeded projection of the attention outputs at a request's last position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import torch

from orchestrator.engines.kernel_lab.content import salt_of, seeded_normal

_FOLDED: Final = 128
_LOGIT_STD: Final = 3.0
"""Spread of the logits. Wide enough that the best two tokens are seldom as close as rounding."""


class TokenHead:
    """Folds the outputs of all heads and layers to a short vector, which it projects to the vocabulary.

    Args:
        sizes: Elements of each layer's output at one position.
        vocab_size: Tokens, at least 2.
    """

    def __init__(self, sizes: Sequence[int], vocab_size: int, seed: int, device: torch.device) -> None:
        self._folded = min(_FOLDED, *sizes)
        self._signs = [
            torch.sign(seeded_normal(salt_of(seed, 1, number), size // self._folded, self._folded)).to(device)
            for number, size in enumerate(sizes)
        ]
        scale = _LOGIT_STD / math.sqrt(self._folded * len(sizes))
        self._projection = (seeded_normal(salt_of(seed, 2), self._folded, vocab_size) * scale).to(device)

    def best_two(self, outputs: Sequence[torch.Tensor]) -> tuple[list[int], list[float]]:
        """The best token of each request, and how much larger its log probability is than that of the second.

        Args:
            outputs: Of each layer, ``[requests, ...]``.
        """
        total = sum(self._normalised(output, signs) for output, signs in zip(outputs, self._signs, strict=True))
        best = torch.topk(total @ self._projection, 2, dim=1)
        return best.indices[:, 0].tolist(), (best.values[:, 0] - best.values[:, 1]).tolist()

    def _normalised(self, output: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
        flat = output.reshape(output.shape[0], -1)[:, : signs.numel()].float()
        folded = (flat.view(-1, *signs.shape) * signs).sum(1)
        # An average over many rows is small. Only its direction is to count.
        return folded / folded.square().mean(1, keepdim=True).sqrt().clamp_min(1e-30)
