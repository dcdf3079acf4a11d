"""Which rank keeps which token's row, and where: arithmetic alone, no torch.

Runs of ``interleave`` tokens go to the ranks in turn. Ranks x interleave tokens are one turn; a rank keeps one run of
each, so that after whole turns all ranks keep equally many rows. Source of the rule: ``get_dcp_local_seq_lens`` and the
block tables of vLLM, under ``decode_context_parallel_size`` and ``cp_kv_cache_interleave_size``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Sharding:
    """How the tokens of a request are spread.

    Attributes:
        ranks: At least 1.
        interleave: Consecutive tokens that one rank keeps, at least 1.
    """

    ranks: int
    interleave: int

    @property
    def turn(self) -> int:
        """Tokens after which the first rank is up again."""
        return self.ranks * self.interleave

    def local_len(self, tokens: int, rank: int) -> int:
        """Rows that a rank keeps of the first ``tokens`` tokens; also the row of the next token that it keeps."""
        turns, rest = divmod(tokens, self.turn)
        return turns * self.interleave + min(max(rest - rank * self.interleave, 0), self.interleave)

    def padded_rows(self, tokens: int) -> int:
        """Rows of a rank for ``tokens`` tokens, padded to a whole run, so that all ranks have the same number."""
        return -(-tokens // self.turn) * self.interleave

    def is_kept(self, first: int, last: int, rank: int) -> NDArray[np.bool_]:
        """Whether a rank keeps tokens ``first`` to ``last - 1``, ``[last - first]``.

        Their rows follow each other in its cache and begin at ``local_len(first, rank)``.
        """
        kept: NDArray[np.bool_] = np.arange(first, last) // self.interleave % self.ranks == rank
        return kept

    def local_rows(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row of each token in the cache of the rank that keeps it, same shape."""
        rows: NDArray[np.int64] = positions // self.turn * self.interleave + positions % self.interleave
        return rows
