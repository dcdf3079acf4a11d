"""Are a run's files what was written? What is damaged is named, and set aside where that is wanted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from orchestrator.errors import ChunksmithError
from orchestrator.records import manifest
from orchestrator.records.atomic import sync_folder
from orchestrator.records.folder import RunFolder
from orchestrator.records.manifest import Entry
from orchestrator.records.parts import parts_of, summary
from orchestrator.records.schemas import SCHEMAS
from orchestrator.records.table_folder import files_of, is_readable
from orchestrator.records.writer import write_empty_table

ASIDE: Final = "damaged"
"""Folder of the run for files that were set aside, one folder per table."""


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong.

    Attributes:
        file: The file, or the table's folder.
        what: What is wrong with it.
        parts: Parts that it holds or held, as far as that is known.
        mended: What was done about it; None if nothing was.
    """

    file: Path
    what: str
    parts: str = ""
    mended: str | None = None


@dataclass(frozen=True)
class TableCheck:
    """One table.

    Attributes:
        table: Its name.
        files: Files without a fault.
        rows: Their rows.
        size: Their bytes.
        unlisted: How many of them no manifest lists, so that they were only read: an older Chunksmith or someone else
            wrote them.
        faults: What is wrong.
    """

    table: str
    files: int
    rows: int
    size: int
    unlisted: int
    faults: tuple[Fault, ...]


def check(run: RunFolder, *, repair: bool = False) -> list[TableCheck]:
    """Check every file of every table by its checksum. A sweep may be writing to the run, unless it is repaired.

    Args:
        repair: Set damaged files aside, strike missing ones off the manifest, and make a missing table anew, without
            rows. The caller holds the run.

    Raises:
        ChunksmithError: The file system refused.
    """
    try:
        return [_check(run, table, repair=repair) for table in SCHEMAS]
    except OSError as error:
        raise ChunksmithError(f"{error.filename or run.path}: cannot check: {error.strerror}.") from error


def _check(run: RunFolder, table: str, *, repair: bool) -> TableCheck:
    folder = run.table(table)
    if not folder.is_dir():
        if repair:
            write_empty_table(run.path, table)
        return TableCheck(table, 0, 0, 0, 0, (Fault(folder, "is missing", mended="made anew" if repair else None),))
    entries = manifest.read(folder)
    faults: list[Fault] = []
    where: dict[str, str] = {}
    files = rows = size = unlisted = 0
    for path in files_of(folder):
        known = entries.pop(path.name, [])
        what = _damage(path, known)
        if what is not None:
            mended = _set_aside(run, path) if repair else None
            faults.append(Fault(path, what, known[-1].parts if known else "", mended))
            continue
        metadata = pq.read_metadata(path)
        parts = parts_of(metadata, path.stem)
        if twice := [part for part in parts if part.name in where]:
            faults.append(Fault(path, f"holds what {where[twice[0].name]} holds too", summary(twice)))
        where |= {part.name: path.name for part in parts}
        files, rows, size = files + 1, rows + metadata.num_rows, size + path.stat().st_size
        unlisted += not known
    for name, known in entries.items():
        if (folder / name).exists():
            continue  # it was written while the others were checked
        if repair:
            _strike(folder, name)
        faults.append(
            Fault(folder / name, "is missing", known[-1].parts, "struck off the manifest" if repair else None)
        )
    return TableCheck(table, files, rows, size, unlisted, tuple(faults))


def _damage(path: Path, entries: list[Entry]) -> str | None:
    """What is wrong with a file; None if nothing is."""
    if not entries:
        return None if is_readable(path) else "cannot be read"
    if _is_listed(path, entries):
        return None
    # A sweep may have written the file since the manifest was read.
    with manifest.locked(path.parent):
        entries = manifest.read(path.parent).get(path.name, [])
        if _is_listed(path, entries):
            return None
    return "is damaged: its checksum is not the manifest's" + ("" if is_readable(path) else ", and it cannot be read")


def _is_listed(path: Path, entries: list[Entry]) -> bool:
    return manifest.checksum(path) in {entry.sha256 for entry in entries[-2:]}


def _set_aside(run: RunFolder, path: Path) -> str:
    folder = run.path / ASIDE / path.parent.name
    folder.mkdir(parents=True, exist_ok=True)
    target, number = folder / path.name, 1
    while target.exists():
        target, number = folder / f"{path.stem}-{number}{path.suffix}", number + 1
    path.rename(target)
    sync_folder(folder)
    _strike(path.parent, path.name)
    return f"set aside as {target.relative_to(run.path)}"


def _strike(folder: Path, name: str) -> None:
    with manifest.locked(folder) as log:
        log.add(Entry(name, 0, "", ""))
