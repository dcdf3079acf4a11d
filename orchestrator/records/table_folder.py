"""A table's folder: small writes gathered into larger files, while any reader may be reading.

A reader that knows nothing of this project lists the folder and then opens the files, one after the other. Between the
two, nothing that it has listed may vanish, or it fails, and no row may move from one file to another, or it sees the
row twice or not at all. A merge of files that readers have already seen breaks one or the other, however it is swapped
in: the path is looked up anew at each open. So rows are merged when they are written. A part joins the last file while
that one is small, and the file is replaced by one that holds the old rows and the new (rename(2)). Files never vanish,
and a row stays in its file for good.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.errors import ChunksmithError
from orchestrator.records import manifest
from orchestrator.records.atomic import replace_file
from orchestrator.records.manifest import Entry, Manifest
from orchestrator.records.migrations import as_present
from orchestrator.records.parts import UNREADABLE, Part, parts_of, to_metadata

FULL_BYTES: Final = 1 << 20
"""A file of this size takes no further part: rewriting it for every part would cost too much."""

FULL_ROWS: Final = 10_000
"""Likewise, in rows."""

PREFIX: Final = "merged-"
"""Files of several parts are called by this and a number."""


@dataclass
class _Index:
    """What a table's files hold.

    Attributes:
        state: Of the manifest and the folder when this was true.
        files: File of each part, by the part's name.
        entries: What the manifest says of each file, by its name.
        newest: Number of the newest file of several parts; -1 without one.
        has_room: Whether that one takes further parts.
        held: Name, rows and parts of the file that was written last: the next part nearly always goes there.
    """

    state: tuple[int, ...]
    files: dict[str, str] = field(default_factory=dict)
    entries: dict[str, list[Entry]] = field(default_factory=dict)
    newest: int = -1
    has_room: bool = False
    held: tuple[str, pa.Table, list[Part]] | None = None


_indices: dict[Path, _Index] = {}
"""By folder: reading the files' metadata again before every write would take longer than the write."""


def put(folder: Path, parts: Mapping[str, pa.Table]) -> dict[str, Path]:
    """Write parts, or replace them where they are; returns the file of each. Those that are new come in one step.

    Args:
        folder: Folder of the table, which exists and bears its name.
        parts: Rows by the name of the part, in the present schema.

    Raises:
        ChunksmithError: The file system refused, or a part is in a file that is damaged. What was there is untouched.
    """
    try:
        with manifest.locked(folder) as log:
            there = _index(folder, log).files
            by_file: dict[str | None, dict[str, pa.Table]] = {}
            for name, data in parts.items():
                by_file.setdefault(there.get(name), {})[name] = data
            return {name: path for some in by_file.values() for name, path in _put(folder, log, some).items()}
    except OSError as error:
        raise ChunksmithError(f"{folder}: cannot write: {error.strerror}. Earlier records are untouched.") from error


def has(folder: Path, name: str) -> bool:
    """Whether a part is recorded.

    Raises:
        ChunksmithError: The file system refused.
    """
    try:
        with manifest.locked(folder) as log:
            return name in _index(folder, log).files
    except OSError as error:
        raise ChunksmithError(f"{folder}: cannot read: {error.strerror}.") from error


def seal(folder: Path) -> None:
    """Let the next part of this process begin a file: what the last one holds is to stay as it is. A part that is
    written again still takes its own place.

    Raises:
        ChunksmithError: The file system refused.
    """
    try:
        with manifest.locked(folder) as log:
            _index(folder, log).has_room = False
    except OSError as error:
        raise ChunksmithError(f"{folder}: cannot read: {error.strerror}.") from error


def encode(data: pa.Table, parts: list[Part]) -> pa.Buffer:
    """A file's content, one row group."""
    sink = pa.BufferOutputStream()
    # Small files: a dictionary per column would cost time and bytes and save none.
    with pq.ParquetWriter(sink, data.schema, compression="zstd", use_dictionary=False) as writer:
        writer.write_table(data, row_group_size=max(1, data.num_rows))
        writer.add_key_value_metadata(to_metadata(parts))
    return sink.getvalue()


def _put(folder: Path, log: Manifest, new: Mapping[str, pa.Table]) -> dict[str, Path]:
    """Write parts that are all in one file, or in none."""
    index = _index(folder, log)
    home = index.files.get(next(iter(new)))
    file = home or (_file(index.newest) if index.has_room else None)
    earlier: tuple[pa.Table, list[Part]] | None = None
    if file is not None and index.held is not None and index.held[0] == file:
        earlier = index.held[1:]
    elif file is not None:
        earlier = _read(folder / file, index.entries.get(file, ()))
    if home is not None and earlier is None:
        # A second file with the part could show its rows twice.
        raise damaged(folder / home)
    if file is None or earlier is None:
        # A file that is damaged is left as it is, for `records check` to name.
        index.newest += 1
        file, earlier = _file(index.newest), (next(iter(new.values())).slice(0, 0), [])
    data, parts = _joined(*earlier, new)
    content = encode(data, parts)
    entry = Entry.of(file, content, parts)
    replace_file(folder / file, content, before=lambda: log.add(entry))
    index.files.update(dict.fromkeys(new, file))
    index.entries[file] = [entry]
    index.held = file, data, parts
    if file == _file(index.newest):
        index.has_room = _has_room(entry.size, sum(part.rows for part in parts))
    index.state = _state(folder, log)
    return dict.fromkeys(new, folder / file)


def _joined(data: pa.Table, parts: list[Part], new: Mapping[str, pa.Table]) -> tuple[pa.Table, list[Part]]:
    """A file's rows and parts with some parts put in place of those of the same names."""
    tables, start, begin = [], 0, 0
    for part in parts:
        if part.name in new:
            tables.append(data.slice(begin, start - begin))
            begin = start + part.rows
        start += part.rows
    tables = [*tables, data.slice(begin), *new.values()]
    kept = [part for part in parts if part.name not in new]
    return pa.concat_tables(tables).combine_chunks(), [*kept, *(Part(name, one.num_rows) for name, one in new.items())]


def read_parts(path: Path, entries: Sequence[Entry] = ()) -> dict[str, pa.Table] | None:
    """The parts of a file in the present schema; None where it is gone, damaged, or not what the manifest says.

    Args:
        entries: Those of the file in the manifest, in order.
    """
    found = _read(path, entries)
    if found is None:
        return None
    data, parts = found
    starts = itertools.accumulate((part.rows for part in parts), initial=0)
    return {part.name: data.slice(start, part.rows) for part, start in zip(parts, starts, strict=False)}


def _read(path: Path, entries: Sequence[Entry]) -> tuple[pa.Table, list[Part]] | None:
    """The rows of a file in the present schema and its parts; None where ``read_parts`` has none."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    if entries and hashlib.sha256(content).hexdigest() not in {entry.sha256 for entry in entries[-2:]}:
        return None
    try:
        opened = pq.ParquetFile(pa.BufferReader(content))
        return as_present(opened.read(), path.parent.name), parts_of(opened.metadata, path.stem)
    except UNREADABLE:
        return None


def next_number(folder: Path) -> int:
    """Of the next file of several parts."""
    names = [*(path.name for path in files_of(folder)), *manifest.read(folder)]
    return 1 + max(map(_number, names), default=-1)


def _index(folder: Path, log: Manifest) -> _Index:
    known = _indices.get(folder)
    if known is None or known.state != _state(folder, log):
        _indices[folder] = known = _build(folder, log)
    return known


def _build(folder: Path, log: Manifest) -> _Index:
    index = _Index(_state(folder, log), entries=manifest.read(folder))
    for path in files_of(folder):
        try:
            metadata = pq.read_metadata(path)
            parts = parts_of(metadata, path.stem)
        except UNREADABLE:
            continue
        index.files |= {part.name: path.name for part in parts}
        if (number := _number(path.name)) > index.newest:
            index.newest, index.has_room = number, _has_room(path.stat().st_size, metadata.num_rows)
    if (number := next_number(folder) - 1) > index.newest:
        index.newest, index.has_room = number, False
    return index


def files_of(folder: Path) -> list[Path]:
    """The Parquet files of a table that readers see, by name."""
    return sorted(path for path in folder.glob("*.parquet") if not path.name.startswith((".", "_")))


def damaged(path: Path) -> ChunksmithError:
    """The error about a file of a table that is not what was written."""
    run = path.parent.parent
    return ChunksmithError(f"{path}: is damaged. To set it aside: chunksmith records check {run} --repair")


def is_readable(path: Path) -> bool:
    """Whether all rows of a file can be read. One that is gone counts as readable."""
    try:
        file = pq.ParquetFile(path)
        file.read()
        parts_of(file.metadata, path.stem)
    except FileNotFoundError:
        return True
    except UNREADABLE:
        return False
    return True


def _state(folder: Path, log: Manifest) -> tuple[int, ...]:
    return (*log.signature, folder.stat().st_mtime_ns)


def _has_room(size: int, rows: int) -> bool:
    return size < FULL_BYTES and rows < FULL_ROWS


def _file(number: int) -> str:
    return f"{PREFIX}{number:05d}.parquet"


def _number(file: str) -> int:
    """The number of a file of several parts; -1 for another file."""
    digits = file.removeprefix(PREFIX).removesuffix(".parquet")
    return int(digits) if file.startswith(PREFIX) and digits.isdecimal() else -1
