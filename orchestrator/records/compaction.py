"""A table in few large files, with row groups sized for scans; for a run that no sweep holds.

The new files are made in a hidden folder beside the table, and the two folders then change places in one step
(renameat2(2), RENAME_EXCHANGE): a reader lists either the old files or the new ones, never both. One that has listed
the old files and opens one of them after the exchange fails, which no exchange can spare it; it never sees a row twice.
``read_arrow`` then reads again. What a kill leaves is the hidden folder, which the next holder of the run removes.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from orchestrator.errors import ChunksmithError
from orchestrator.records import manifest
from orchestrator.records.atomic import sync_folder
from orchestrator.records.folder import RunFolder
from orchestrator.records.manifest import Entry
from orchestrator.records.parts import UNREADABLE, Part, parts_of, to_metadata
from orchestrator.records.schemas import SCHEMAS
from orchestrator.records.table_folder import PREFIX, damaged, files_of, next_number, read_parts

FILE_BYTES: Final = 64 << 20
"""A file is ended at this size: a part that is written again costs the rewriting of its file."""

GROUP_ROWS: Final = {"trials": 20_000, "blocks": 20_000, "requests": 50_000}
"""Rows of a row group. A scan skips a group by its statistics, and reads the columns it needs of all others."""

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@dataclass(frozen=True)
class Compacted:
    """What became of a table: its files with rows and their bytes, before and after."""

    table: str
    rows: int
    files: tuple[int, int]
    size: tuple[int, int]


class CompactWriter:
    """Writes a table's files into an empty folder; parts of one kind should come together and in order.

    Args:
        folder: Where the files go.
        table: Key of ``SCHEMAS``.
        number: Of the first file.
    """

    def __init__(self, folder: Path, table: str, number: int = 0) -> None:
        self._folder, self._table, self._number = folder, table, number
        self._waiting: list[pa.Table] = []
        self._kind: str | None = None
        self._parts: list[Part] = []
        self._writer: pq.ParquetWriter | None = None
        self.entries: list[Entry] = []

    def add(self, data: pa.Table, parts: Sequence[Part]) -> None:
        """Append parts of one kind with their rows, in the present schema."""
        kind = parts[0].order[0]
        if kind != self._kind:
            # Rows of different phases do not share a row group, so that a scan for one phase skips the others.
            self._write_group()
        self._kind = kind
        self._waiting.append(data)
        self._parts += parts
        if sum(table.num_rows for table in self._waiting) >= GROUP_ROWS[self._table]:
            self._write_group()

    def close(self) -> None:
        """End the last file."""
        self._write_group()
        self._end_file()

    def _write_group(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            self._path = self._folder / f"{PREFIX}{self._number:05d}.parquet"
            self._writer = pq.ParquetWriter(self._path, SCHEMAS[self._table], compression="zstd")
        self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=GROUP_ROWS[self._table])
        self._waiting = []
        if self._path.stat().st_size >= FILE_BYTES:
            self._end_file()

    def _end_file(self) -> None:
        if self._writer is None:
            return
        self._writer.add_key_value_metadata(to_metadata(self._parts))
        self._writer.close()
        with self._path.open("rb") as file:
            os.fsync(file.fileno())
        self.entries.append(Entry.of_file(self._path, self._parts))
        self._writer, self._parts = None, []
        self._number += 1


def compact(run: RunFolder) -> list[Compacted]:
    """Rewrite each table that has several small files. The caller holds the run.

    Raises:
        ChunksmithError: A file is damaged, or the file system refused. Nothing was changed in that table.
    """
    return [_compact(run, table) for table in SCHEMAS]


def _compact(run: RunFolder, table: str) -> Compacted:
    source, target = run.table(table), run.hidden(table)
    if not source.is_dir():
        raise ChunksmithError(f"{run.path}: the table {table!r} is missing; this is not a complete run folder.")
    try:
        with manifest.locked(source):
            files = [path for path in files_of(source) if _rows(path)]
            size = sum(path.stat().st_size for path in files)
            rows = ds.dataset(str(source), schema=SCHEMAS[table], format="parquet").count_rows()
            if sum(path.stat().st_size < FILE_BYTES // 2 for path in files) < 2:
                return Compacted(table, rows, (len(files),) * 2, (size,) * 2)
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            after = _rewrite(source, target, files)
            written = sum(pq.read_metadata(path).num_rows for path in after)
            if written != rows:
                raise ChunksmithError(f"{source}: {rows} rows became {written}; nothing was changed.")
            now = sum(path.stat().st_size for path in after)
            exchange(source, target)
        shutil.rmtree(target)
    except OSError as error:
        raise ChunksmithError(f"{source}: cannot compact: {error.strerror or error}. Nothing was changed.") from error
    return Compacted(table, rows, (len(files), len(after)), (size, now))


def _rows(path: Path) -> int:
    try:
        return pq.read_metadata(path).num_rows
    except UNREADABLE as error:
        raise damaged(path) from error


def by_kind(files: Sequence[Path]) -> dict[str, list[Path]]:
    """The files that hold parts of each kind, kinds in order; a file may stand under several."""
    kinds: dict[str, list[Path]] = {}
    for path in files:
        try:
            parts = parts_of(pq.read_metadata(path), path.stem)
        except UNREADABLE as error:
            raise damaged(path) from error
        for kind in {part.order[0] for part in parts}:
            kinds.setdefault(kind, []).append(path)
    return dict(sorted(kinds.items()))


def parts_of_kind(path: Path, entries: Sequence[Entry], kind: str) -> dict[str, pa.Table]:
    """Rows of the parts of one kind in a file, by their names, in order.

    Args:
        entries: Those of the file in the manifest.

    Raises:
        ChunksmithError: The file is damaged.
    """
    found = read_parts(path, entries)
    if found is None:
        raise damaged(path)
    names = [name for name in found if Part(name, 0).order[0] == kind]
    return {name: found[name] for name in sorted(names, key=lambda name: Part(name, 0).order)}


def _rewrite(source: Path, target: Path, files: Sequence[Path]) -> list[Path]:
    """Write the rows of the files into the new folder, each kind of part together; returns the new files."""
    writer = CompactWriter(target, source.name, next_number(source))
    known = manifest.read(source)
    for kind, holding in by_kind(files).items():
        for path in holding:
            own = parts_of_kind(path, known.get(path.name, []), kind)
            writer.add(pa.concat_tables(own.values()), [Part(name, data.num_rows) for name, data in own.items()])
    writer.close()
    empty = [path for path in files_of(source) if path not in files]
    for path in empty:
        shutil.copy2(path, target / path.name)
    with manifest.locked(target) as log:
        log.add(*writer.entries, *(Entry.of_file(target / path.name, []) for path in empty))
    sync_folder(target)
    return [target / entry.file for entry in writer.entries]


def exchange(first: Path, second: Path) -> None:
    """Let two folders change places in one step.

    Raises:
        ChunksmithError: The file system cannot do so.
        OSError: It refused.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    advice = "this file system cannot exchange two folders; `chunksmith records merge RUN --into NEW` writes a copy"
    if not hasattr(libc, "renameat2"):
        raise ChunksmithError(f"{first}: {advice}.")
    done = libc.renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE)
    if done != 0:
        number = ctypes.get_errno()
        if number in (errno.EINVAL, errno.ENOSYS, errno.EXDEV):
            raise ChunksmithError(f"{first}: {advice}.")
        raise OSError(number, os.strerror(number), str(first))
    sync_folder(first.parent)
