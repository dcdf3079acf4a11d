"""Read a trace of requests: a CSV or JSONL file with the columns of the Mooncake or of the Azure LLM inference trace.

* Mooncake: ``timestamp`` (ms), ``input_length``, ``output_length``, and where known ``hash_ids``, one for every 512
  tokens of the prompt; equal ids at the front of two prompts mean that they share these tokens.
* Azure: ``TIMESTAMP`` (date and time), ``ContextTokens``, ``GeneratedTokens``.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orchestrator.errors import UserError

BLOCK_TOKENS = 512
"""Tokens that one hash id of a Mooncake trace stands for."""

MOONCAKE = ("timestamp", "input_length", "output_length")
AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


@dataclass(frozen=True, kw_only=True)
class TraceRow:
    """One request of a trace: seconds since the first, tokens, and the ids of its blocks where the trace has them."""

    at_s: float
    input_len: int
    output_len: int
    hash_ids: Sequence[int] | None


def read_trace(path: Path, *, limit: int | None = None) -> list[TraceRow]:
    """The requests of a trace by their time, the first of them at 0.

    Args:
        limit: Only the first so many lines of the file; None for all.

    Raises:
        UserError: One line that names the file and the line, and says what is wrong.
    """
    rows: list[TraceRow] = []
    parse: Callable[[Mapping[str, Any]], TraceRow] | None = None
    for number, record in _records(path):
        if limit is not None and len(rows) == limit:
            break
        parse = parse or _parser(path, record)
        try:
            rows.append(parse(record))
        except (KeyError, TypeError, ValueError) as error:
            what = f"the column {error} is missing" if isinstance(error, KeyError) else str(error)
            raise UserError(f"{path}: line {number}: {what}") from error
    if not rows:
        raise UserError(f"{path}: the trace holds no request")
    rows.sort(key=lambda row: row.at_s)
    begin = rows[0].at_s
    return [
        TraceRow(at_s=row.at_s - begin, input_len=row.input_len, output_len=row.output_len, hash_ids=row.hash_ids)
        for row in rows
    ]


def _records(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Lines with their numbers, read as they are needed."""
    readers = {".csv": _csv_records, ".jsonl": _jsonl_records}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise UserError(f"{path}: a trace is a .csv or .jsonl file, got {path.suffix or 'no suffix'!r}")
    try:
        # Some published CSV files begin with a byte order mark.
        with path.open(encoding="utf-8-sig", newline="") as lines:
            yield from reader(path, lines)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot read the trace: {getattr(error, 'strerror', None) or error}") from error


def _csv_records(_path: Path, lines: Iterable[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.DictReader(lines)
    for record in reader:
        yield reader.line_num, record


def _jsonl_records(path: Path, lines: Iterable[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{path}: line {number}: not JSON: {error}") from error
        if not isinstance(record, dict):
            raise UserError(f"{path}: line {number}: should be an object, got {type(record).__name__}")
        yield number, record


def _parser(path: Path, record: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], TraceRow]:
    """By the columns of the first line."""
    if all(column in record for column in MOONCAKE):
        return _mooncake_row
    if all(column in record for column in AZURE):
        return _azure_row
    found = ", ".join(str(column) for column in record)
    raise UserError(
        f"{path}: unknown columns {found}; a trace has {', '.join(MOONCAKE)}[, hash_ids] (Mooncake) or "
        f"{', '.join(AZURE)} (Azure)"
    )


def _mooncake_row(record: Mapping[str, Any]) -> TraceRow:
    input_len = _tokens(record, "input_length")
    hash_ids = _hash_ids(record.get("hash_ids"))
    if hash_ids is not None and len(hash_ids) * BLOCK_TOKENS < input_len:
        raise ValueError(
            f"hash_ids has {len(hash_ids)} blocks of {BLOCK_TOKENS} tokens, too few for input_length {input_len}"
        )
    return TraceRow(
        at_s=_number(record, "timestamp") / 1000.0,
        input_len=input_len,
        output_len=_tokens(record, "output_length"),
        hash_ids=hash_ids,
    )


def _azure_row(record: Mapping[str, Any]) -> TraceRow:
    text = record["TIMESTAMP"]
    if not isinstance(text, str):
        raise ValueError(f"TIMESTAMP: should be a date and time, got {text!r}")  # noqa: TRY004
    return TraceRow(
        at_s=_instant(text),
        input_len=_tokens(record, "ContextTokens"),
        output_len=_tokens(record, "GeneratedTokens"),
        hash_ids=None,
    )


def _instant(text: str) -> float:
    """Seconds since 1970. The published files have seven digits of a second; Python reads six."""
    whole, dot, rest = text.strip().partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    try:
        time = datetime.fromisoformat(whole + rest[len(digits) :])
    except ValueError:
        raise ValueError(f"TIMESTAMP: should be a date and time, got {text!r}") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return time.timestamp() + (float(f"0.{digits}") if dot and digits else 0.0)


def _number(record: Mapping[str, Any], column: str) -> float:
    value = record[column]
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if isinstance(value, bool) or not 0 <= number < float("inf"):
        raise ValueError(f"{column}: should be a number from 0 up, got {value!r}")
    return number


def _tokens(record: Mapping[str, Any], column: str) -> int:
    number = _number(record, column)
    if number < 1 or number != int(number):
        raise ValueError(f"{column}: should be a whole number of tokens from 1 up, got {record[column]!r}")
    return int(number)


def _hash_ids(value: Any) -> list[int] | None:
    """A list; in a CSV file the text of one."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            raise ValueError(f"hash_ids: should be a list of whole numbers, got {value!r}") from None
    if not isinstance(value, list) or not all(type(item) is int and item >= 0 for item in value):
        raise ValueError(f"hash_ids: should be a list of whole numbers from 0 up, got {value!r}")
    return value
