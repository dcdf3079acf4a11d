"""A run that lies in an object storage, as a folder here: every command that reads a run can read that."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from orchestrator.errors import ChunksmithError, UserError
from orchestrator.records import manifest
from orchestrator.records.folder import RunFolder
from orchestrator.records.manifest import Entry
from orchestrator.records.remote.address import checked
from orchestrator.records.remote.place import Place, RemoteError
from orchestrator.records.schemas import SCHEMAS

IN_ORDER: Final = ("trials", "blocks", "requests")
"""Tables, as they are read: what has a row in ``trials`` was there before in the others."""

TRIES: Final = 3
"""How often an object is read that a sweep has replaced meanwhile."""

_DOCUMENT = re.compile(r"spec\.yaml|provenance\.json|soak/trial-\d+\.json")
_FILE = re.compile(rf"({'|'.join(SCHEMAS)})/[A-Za-z0-9][^/]*\.parquet")


def fetch(address: str, into: Path) -> RunFolder:
    """Copy a run's records into a new folder, also while a sweep writes there: every trial comes with its blocks.

    The copy is for reading. It has no journal, so no sweep goes on with it.

    Args:
        address: Of the run's own folder.
        into: Does not exist, or is empty.

    Raises:
        UserError: It is no address, there is no run, it may not be read, or ``into`` is taken.
        ChunksmithError: The storage does not answer, or the file system refused.
    """
    place = Place(checked(address, where=address))
    if into.exists() and not (into.is_dir() and not any(into.iterdir())):
        raise UserError(f"{into}: is not empty; choose another folder.")
    try:
        names = place.names()
        documents = {name for name in names if _DOCUMENT.fullmatch(name)}
        if "spec.yaml" not in documents and not any(map(_FILE.fullmatch, names)):
            raise UserError(f"{place.address}: holds no run; the address of a run ends with its name.")
        into.mkdir(parents=True, exist_ok=True)
        for table in IN_ORDER:
            _fetch_table(place, table, into)
        place.fetch(documents, into)
    except RemoteError as error:
        if error.is_refusal:
            raise UserError(str(error)) from error
        raise
    except OSError as error:
        raise ChunksmithError(f"{into}: cannot write: {error.strerror}.") from error
    return RunFolder(into)


@contextmanager
def snapshot(address: str) -> Iterator[RunFolder]:
    """As ``fetch``, into a temporary folder that bears the run's name and is removed at the end. What goes wrong with
    the folder meanwhile is told of the address."""
    with tempfile.TemporaryDirectory(prefix="chunksmith-") as folder:
        run = fetch(address, Path(folder) / address.rstrip("/").rpartition("/")[2])
        try:
            yield run
        except ChunksmithError as error:
            error.args = (str(error).replace(str(run.path), address.rstrip("/")),)
            raise


def _fetch_table(place: Place, table: str, into: Path) -> None:
    # Listed only now: what the tables before this one need may be new.
    names = {name for name in place.names(table) if _FILE.fullmatch(name)}
    listed: dict[str, list[Entry]] = {}
    for _ in range(TRIES):
        place.fetch(names, into)
        # After the files: the line of an object is there before the object is.
        listed = manifest.parse(place.read(f"{table}/{manifest.NAME}") or b"")
        names = {name for name in names if not _is_listed(into / name, listed.get(Path(name).name, []))}
        if not names:
            break
    # What comes last may be on its way there, or newer than the list of the files.
    while listed and not (into / table / (last := next(reversed(listed)))).exists():
        del listed[last]
    if listed:
        entries = [entry for of_file in listed.values() for entry in of_file]
        (into / table).mkdir(exist_ok=True)
        (into / table / manifest.NAME).write_text(manifest.text_of(entries))


def _is_listed(path: Path, entries: list[Entry]) -> bool:
    return not entries or not path.exists() or manifest.checksum(path) in {entry.sha256 for entry in entries[-2:]}
