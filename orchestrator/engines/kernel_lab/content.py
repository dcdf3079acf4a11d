"""What a prompt is to the lab: seeded vectors, chosen by hashes of its tokens.

There is no model, so nothing computes hidden states. A token at a position has a hash; the hash and a layer's salt pick
the token's query and latent row out of seeded tables. A compressed row is picked by the hashes of the tokens that it
stands for. Equal prompts thus have equal rows in any batch, and it costs little more than to copy them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, SupportsInt

import numpy as np
import torch
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]

LATENT_TABLE_ROWS: Final = 2048
QUERY_TABLE_ROWS: Final = 512

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)


def token_hashes(tokens: Sequence[int] | NDArray[np.int64], first_position: int) -> Hashes:
    """One hash for each token, of its id and its position.

    Args:
        tokens: Ids, at least 0.
        first_position: Position of the first of them in the prompt.
    """
    ids = np.asarray(tokens, dtype=np.int64).astype(np.uint64)
    positions = np.arange(first_position, first_position + ids.size, dtype=np.uint64)
    return _mixed(_mixed(ids) + positions)


def compressed_hashes(hashes: Hashes, ratio: int) -> Hashes:
    """One hash for each whole group of ``ratio`` tokens."""
    whole = hashes.size // ratio * ratio
    sums: Hashes = hashes[:whole].reshape(-1, ratio).sum(axis=1, dtype=np.uint64)
    return _mixed(sums)


def picked(hashes: Hashes, salt: int, rows: int, device: torch.device) -> torch.Tensor:
    """Rows of a table of ``rows`` rows, one for each hash; another salt picks others."""
    ids = (_mixed(hashes ^ np.uint64(salt)) % np.uint64(rows)).astype(np.int64)
    return torch.from_numpy(ids).to(device)


def salt_of(seed: int, *parts: SupportsInt) -> int:
    """A number of 64 bits that names a seed and what it is for."""
    state = np.array([seed], dtype=np.uint64)
    for part in parts:
        state = _mixed(state + np.uint64(int(part)))
    return int(_mixed(state)[0])


def seeded_normal(seed: int, *shape: int) -> torch.Tensor:
    """Normal numbers (fp32, CPU), the same on every machine."""
    generator = torch.Generator().manual_seed(seed % 2**63)
    return torch.randn(shape, generator=generator)


def _mixed(values: Hashes) -> Hashes:
    """The finaliser of splitmix64 (Steele, Lea and Flood, 2014): every bit of the input reaches every bit."""
    mixed = values + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return mixed ^ (mixed >> np.uint64(31))
