"""Questions and answers from a ShareGPT-style file, tokenised on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.errors import UserError
from orchestrator.workloads.kinds.base import WorkloadKind
from orchestrator.workloads.prompts import Prompt
from orchestrator.workloads.requests import Request
from orchestrator.workloads.sections import Count
from orchestrator.workloads.tokens import Stream, draw_tokens, generator

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FRESH_TOKENS = 4
"""Drawn tokens in front of each question, so that no cache knows the prefix of a text that an earlier block sent."""

_BATCH = 256
"""Conversations that are tokenised together; a file may hold many more than a block needs."""


class ShareGPT(WorkloadKind):
    """The first question of ``prompts`` conversations, drawn without repetition; the output is as long as its answer.

    The file is a JSON list of ``{"conversations": [{"value": question}, {"value": answer}, ...]}``. In front of each
    question stand 4 drawn tokens, which count as input. Conversations outside the bounds are passed over.

    Attributes:
        path: The file; a relative path is read from the working folder.
        tokenizer: A ``tokenizer.json``, or the folder of a model that has one.
        output_len: Tokens to generate in place of the answer's length; None for the answer's.
        min_len: Fewest tokens of a question, and of an answer.
        max_input: Most tokens of input.
        max_request: Most tokens of input and output together.
    """

    kind: Literal["sharegpt"] = "sharegpt"
    path: str
    tokenizer: str
    prompts: Count
    output_len: Count | None = None
    min_len: Count = 4
    max_input: Count = 1024
    max_request: Count = 2048

    def draw(self, seed: Sequence[int], *, vocab_size: int) -> list[Request]:
        tokens = generator(seed, Stream.TOKENS)
        requests: list[Request] = []
        for question, answer_len in self._pairs(seed):
            output = self.output_len or answer_len
            fits = len(question) + FRESH_TOKENS <= self.max_input
            if min(len(question), answer_len) < self.min_len or not fits:
                continue
            if len(question) + FRESH_TOKENS + output > self.max_request:
                continue
            if max(question) >= vocab_size:
                raise UserError(
                    f"{self.tokenizer}: gives token {max(question)}, the model knows tokens below {vocab_size}"
                )
            ids = draw_tokens(tokens, FRESH_TOKENS, vocab_size) + question
            requests.append(Request(prompt=Prompt(token_ids=ids, output_len=output)))
            if len(requests) == self.prompts:
                return requests
        raise UserError(f"{self.path}: {len(requests)} conversations are within the bounds, prompts is {self.prompts}")

    def longest_input(self) -> int | None:
        return self.max_input

    def longest_output(self) -> int | None:
        return self.output_len

    def longest_request(self) -> int | None:
        return self.max_request

    def _pairs(self, seed: Sequence[int]) -> Iterator[tuple[list[int], int]]:
        """Tokens of the question and number of tokens of the answer, in an order that the seed gives."""
        path = Path(self.path).expanduser()
        texts, tokenizer = _read_conversations(path), _load_tokenizer(Path(self.tokenizer).expanduser())
        order = generator(seed, Stream.ORDER).permutation(len(texts)).tolist()
        for start in range(0, len(order), _BATCH):
            picked = [texts[index] for index in order[start : start + _BATCH]]
            encoded = tokenizer.encode_batch([text for pair in picked for text in pair], add_special_tokens=False)
            for question, answer in zip(encoded[::2], encoded[1::2], strict=True):
                yield list(question.ids), len(answer.ids)


def _read_conversations(path: Path) -> list[tuple[str, str]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot read it: {getattr(error, 'strerror', None) or error}") from error
    except json.JSONDecodeError as error:
        raise UserError(f"{path}: not JSON: {error}") from error
    if not isinstance(content, list):
        raise UserError(f"{path}: should be a list of conversations, got {type(content).__name__}")
    found = (_first_pair(path, number, item) for number, item in enumerate(content))
    return [pair for pair in found if pair is not None]


def _first_pair(path: Path, number: int, item: Any) -> tuple[str, str] | None:
    """None for a conversation without an answer; the published files have some."""
    turns = item.get("conversations") if isinstance(item, dict) else None
    if not isinstance(turns, list):
        raise UserError(f"{path}: conversation {number}: has no list called conversations")
    texts = [turn.get("value") if isinstance(turn, dict) else None for turn in turns[:2]]
    if not all(isinstance(text, str) for text in texts):
        raise UserError(f"{path}: conversation {number}: a turn has no text called value")
    return (str(texts[0]), str(texts[1])) if len(texts) == 2 else None


def _load_tokenizer(path: Path) -> Tokenizer:
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise UserError(f"{file}: does not exist; tokenizer names a tokenizer.json or the folder of a model with one")
    # Reading records takes this room along, and its installation has no tokenizers.
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise UserError(f"{file}: not a tokenizer: {error}") from error
