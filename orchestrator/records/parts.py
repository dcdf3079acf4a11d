"""Which rows of a Parquet file were written under which name. A file names its parts itself, in its metadata."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

KEY: Final = "chunksmith.parts"
"""Metadata of a file: JSON, a list of ``[name, count, rows]``. Each stands for ``count`` parts of ``rows`` rows, whose
names count up from ``name``: most parts are one trial each, and a file may hold many thousands."""

UNREADABLE: Final = (pa.ArrowException, OSError, ValueError)
"""What reading a damaged file raises. ValueError: a name in it need not be UTF-8 any more."""

_MOST_PARTS: Final = 1 << 24
"""Of one kind in a file; more cannot be."""

_NUMBERED = re.compile(r"(.*?)(\d+)", re.DOTALL)


@dataclass(frozen=True)
class Part:
    """Rows that were written under one name; they lie together, in the order of the parts."""

    name: str
    rows: int

    @property
    def order(self) -> tuple[str, int]:
        """Sorts parts of one kind together, by their numbers."""
        numbered = _NUMBERED.fullmatch(self.name)
        return (numbered[1], int(numbered[2])) if numbered else (self.name, -1)


def to_metadata(parts: Iterable[Part]) -> dict[str, str]:
    """What a file holds of its parts."""
    runs: list[tuple[str, int, int]] = []
    following = ""
    for part in parts:
        if runs and part.name == following and part.rows == runs[-1][2]:
            first, count, rows = runs[-1]
            runs[-1] = (first, count + 1, rows)
        else:
            runs.append((part.name, 1, part.rows))
        following = _after(part.name)
    return {KEY: json.dumps(runs, separators=(",", ":"))}


def parts_of(metadata: pq.FileMetaData, stem: str) -> list[Part]:
    """The parts of a file. One that names none, as files were before they had several, is a part itself; so is one that
    somebody made of such a file, with other rows.

    Raises:
        pa.ArrowException: The file is damaged.
    """
    text = (metadata.metadata or {}).get(KEY.encode())
    if text is None:
        return [Part(stem, metadata.num_rows)]
    parts = []
    runs = _runs(text)
    if sum(count * rows for _, count, rows in runs) != metadata.num_rows:
        return [Part(stem, metadata.num_rows)]
    for name, count, rows in runs:
        for _ in range(count):
            parts.append(Part(name, rows))
            name = _after(name)
    return parts


def _runs(text: bytes) -> list[tuple[str, int, int]]:
    """What ``to_metadata`` wrote."""
    try:
        runs: list[Any] = json.loads(text)
        for name, count, rows in runs:
            # Where a digit is damaged, a count may be anything.
            if not isinstance(name, str) or not 0 <= int(count) <= _MOST_PARTS or not int(rows) >= 0:
                raise ValueError(f"{name!r}: {count} parts of {rows} rows")
    except (TypeError, ValueError) as error:
        raise pa.ArrowInvalid(f"the names of its parts are damaged: {error}") from error
    return [tuple(run) for run in runs]


def summary(parts: Sequence[Part]) -> str:
    """The names in a few words: ``trial-00000 to trial-00063, confirm-00004``."""
    spans: list[list[str]] = []
    for part in sorted(parts, key=lambda part: part.order):
        if spans and _after(spans[-1][-1]) == part.name:
            spans[-1][1:] = [part.name]
        else:
            spans.append([part.name])
    return ", ".join(" to ".join(span) for span in spans)


def _after(name: str) -> str:
    """The name with the next number; empty if it has none."""
    numbered = _NUMBERED.fullmatch(name)
    return f"{numbered[1]}{int(numbered[2]) + 1:0{len(numbered[2])}d}" if numbered else ""
