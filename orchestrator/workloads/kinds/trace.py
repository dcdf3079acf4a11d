"""Requests of a recorded trace, with random tokens in place of text that nobody published."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from orchestrator.errors import UserError
from orchestrator.workloads.kinds.base import WorkloadKind
from orchestrator.workloads.prompts import Prompt
from orchestrator.workloads.requests import Request
from orchestrator.workloads.sections import Count
from orchestrator.workloads.tokens import Stream, draw_tokens, generator
from orchestrator.workloads.trace_file import BLOCK_TOKENS, TraceRow, read_trace


class Trace(WorkloadKind):
    """Lengths and times of a CSV or JSONL file; ``orchestrator.workloads.trace_file`` names the columns.

    Every block replays the same requests with fresh tokens. Blocks of tokens with one hash id are equal inside a block
    of requests, so that prefixes are shared as in the recorded traffic.

    Attributes:
        path: File; a relative path is read from the working folder.
        limit: Only the first so many lines.
        max_request: Longest request in tokens of input and output. A trace that exceeds it is refused: requests that
            are cut or left out would be another workload.
    """

    kind: Literal["trace"] = "trace"
    path: str
    limit: Count | None = None
    max_request: Count | None = None

    def draw(self, seed: Sequence[int], *, vocab_size: int) -> list[Request]:
        rows = read_trace(Path(self.path).expanduser(), limit=self.limit)
        self._check_lengths(rows)
        tokens = generator(seed, Stream.TOKENS)
        blocks: dict[int, list[int]] = {}

        def block(hash_id: int) -> list[int]:
            if hash_id not in blocks:
                blocks[hash_id] = draw_tokens(generator(seed, Stream.SHARED, hash_id), BLOCK_TOKENS, vocab_size)
            return blocks[hash_id]

        requests = []
        for row in rows:
            if row.hash_ids is None:
                ids = draw_tokens(tokens, row.input_len, vocab_size)
            else:
                ids = [token for hash_id in row.hash_ids for token in block(hash_id)][: row.input_len]
            requests.append(Request(prompt=Prompt(token_ids=ids, output_len=row.output_len), at_s=row.at_s))
        return requests

    def longest_input(self) -> int | None:
        return None

    def longest_output(self) -> int | None:
        return None

    def longest_request(self) -> int | None:
        return self.max_request

    def _check_lengths(self, rows: Sequence[TraceRow]) -> None:
        longest = max(row.input_len + row.output_len for row in rows)
        if self.max_request is not None and longest > self.max_request:
            raise UserError(f"{self.path}: a request has {longest} tokens, above max_request {self.max_request}")
