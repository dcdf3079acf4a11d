"""A run's tables as single files for other programs."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq

from orchestrator.errors import ChunksmithError, UserError, unknown_name
from orchestrator.records.folder import RunFolder
from orchestrator.records.masking import mask, mask_all
from orchestrator.records.migrations import as_present
from orchestrator.records.parts import UNREADABLE
from orchestrator.records.reader import require_known_versions
from orchestrator.records.schemas import SCHEMAS
from orchestrator.records.table_folder import damaged, files_of

FORMATS: Final = ("csv", "parquet")


def export(run: RunFolder, target: Path | str, *, form: str, tables: Sequence[str] = tuple(SCHEMAS)) -> list[str]:
    """Write ``<target>/<table>.<form>`` for each table, whole or not at all; a file that is there is replaced.

    All rows come in the present schema. CSV knows no lists: they are written as JSON, times in ISO 8601.

    Args:
        target: Folder, or its address: ``s3://bucket/folder`` and what else pyarrow or fsspec knows. Who it is that
            writes there they take from the environment, for instance from AWS_ACCESS_KEY_ID.
        form: One of ``FORMATS``.
        tables: Keys of ``SCHEMAS``.

    Returns:
        The paths or addresses of the files.

    Raises:
        UserError: Unknown format, table or kind of address.
        ChunksmithError: A table is missing or damaged, or the file system refused.
    """
    if form not in FORMATS:
        raise unknown_name("format", form, FORMATS)
    for table in tables:
        if table not in SCHEMAS:
            raise unknown_name("table", table, SCHEMAS)
    filesystem, folder = _open_target(str(target))
    shown = mask(str(target)).rstrip("/")
    with _naming(shown):
        filesystem.create_dir(folder, recursive=True)
    written = []
    for table in tables:
        name = f"{table}.{form}"
        with _naming(f"{shown}/{name}"):
            _export(run, table, filesystem, f"{folder}/{name}")
        written.append(f"{shown}/{name}")
    return written


@contextmanager
def _naming(place: str) -> Iterator[None]:
    """Name what could not be written: the file system itself often does not."""
    try:
        yield
    except OSError as error:
        raise ChunksmithError(f"{place}: cannot write: {mask_all(' '.join(str(error).split()))}.") from error


def _open_target(target: str) -> tuple[pa_fs.FileSystem, str]:
    """The file system of a folder, and the folder's path there.

    Raises:
        UserError: It is a file, or an address that nobody knows.
    """
    if "://" not in target:
        path = Path(target).resolve()
        if path.exists() and not path.is_dir():
            raise UserError(f"{target}: is a file, not a folder.")
        return pa_fs.LocalFileSystem(), str(path)
    try:
        return pa_fs.FileSystem.from_uri(target)
    except pa.ArrowInvalid:
        pass  # pyarrow has no such file system of its own
    try:
        import fsspec

        other, path_there = fsspec.core.url_to_fs(target)
    except ImportError as error:
        raise UserError(
            f"{mask(target)}: pip install fsspec, or the library for this kind of address: {mask_all(str(error))}"
        ) from error
    except ValueError as error:
        raise UserError(f"{mask(target)}: unknown kind of address: {mask_all(str(error))}") from error
    handler = pa_fs.FSSpecHandler(other)  # type: ignore[abstract]
    return pa_fs.PyFileSystem(handler), path_there


def batches(run: RunFolder, table: str) -> Iterator[pa.Table]:
    """The rows of a table in the present schema, file by file.

    Raises:
        ChunksmithError: The table is missing, a file is damaged, or its rows have an unknown schema version.
    """
    folder = run.table(table)
    if not folder.is_dir():
        raise ChunksmithError(f"{run.path}: the table {table!r} is missing; this is not a complete run folder.")
    for path in files_of(folder):
        try:
            data = pq.ParquetFile(path).read()
        except UNREADABLE as error:
            raise damaged(path) from error
        require_known_versions(folder, data)
        yield as_present(data, table)


def _export(run: RunFolder, table: str, filesystem: pa_fs.FileSystem, target: str) -> None:
    # Written whole beside the target, or, when that is elsewhere, here: half a file never gets the target's name.
    is_local = isinstance(filesystem, pa_fs.LocalFileSystem)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=Path(target).parent if is_local else None) as folder:
        whole = Path(folder) / Path(target).name
        if whole.suffix == ".csv":
            _write_csv(run, table, whole)
        else:
            with pq.ParquetWriter(whole, SCHEMAS[table], compression="zstd") as writer:
                for data in batches(run, table):
                    writer.write_table(data)
        if is_local:
            whole.replace(target)
        else:
            pa_fs.copy_files(str(whole), target, pa_fs.LocalFileSystem(), filesystem)


def _write_csv(run: RunFolder, table: str, target: Path) -> None:
    schema = pa.schema(
        [pa.field(field.name, pa.string()) if pa.types.is_nested(field.type) else field for field in SCHEMAS[table]]
    )
    with pa_csv.CSVWriter(target, schema.remove_metadata()) as writer:
        for data in batches(run, table):
            columns = [_as_text(column) if pa.types.is_nested(column.type) else column for column in data.columns]
            writer.write_table(pa.Table.from_arrays(columns, names=schema.names).cast(schema.remove_metadata()))


def _as_text(column: pa.ChunkedArray) -> pa.Array:  # type: ignore[type-arg]
    texts = [None if value is None else json.dumps(value, separators=(",", ":")) for value in column.to_pylist()]
    return pa.array(texts, pa.string())
