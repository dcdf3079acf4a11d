"""The files of one table, and the same files in an object storage.

A row stays in its file for good, and files never vanish while a sweep writes. An object must not change either: a
reader fetches it piece by piece, and fails when the pieces are of two versions. (A reader of the run folder holds the
file that it has opened.) So a file that is sent is sealed first: further parts go into the next one. Only a part that
is written again, as after a crash, changes its object.

An object's line in the manifest is there before the object is, and after a failed write both may be true; the object
itself says then which it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.records import manifest
from orchestrator.records.manifest import Entry
from orchestrator.records.remote.place import Place
from orchestrator.records.table_folder import files_of, seal

BATCH_BYTES: Final = 64 << 20
"""Files are read and sent this many bytes at a time."""


@dataclass(frozen=True)
class Content:
    """A file as it was read."""

    name: str
    content: bytes
    entry: Entry


class TableMirror:
    """One table. ``look`` comes first, and again after every failure.

    Attributes:
        damaged: Files of the folder that are not what was written. They are not sent: what the storage has may be
            whole.
    """

    def __init__(self, folder: Path, place: Place) -> None:
        self._folder, self._place = folder, place
        self._manifest = manifest.Follower(folder)
        self._local: dict[str, tuple[tuple[int, ...], str]] = {}
        self._there: dict[str, Entry | None] = {}
        self.damaged: set[str] = set()

    @property
    def table(self) -> str:
        """Its name."""
        return self._folder.name

    def look(self, names: set[str], *, verify: bool = False) -> None:
        """Learn what the storage has.

        Args:
            names: Of all its objects.
            verify: Read every object, instead of believing the manifest there.

        Raises:
            RemoteError: It does not answer.
        """
        files = {name.partition("/")[2] for name in names if name.startswith(f"{self.table}/")}
        content = self._place.read(self._object(manifest.NAME)) if manifest.NAME in files else None
        listed = manifest.parse(content or b"")
        # In the manifest's order: what comes last may still be on its way.
        objects = [name for name in [*listed, *sorted(files - listed.keys())] if name in files]
        self._there = {
            name: self._certain(name, listed.get(name, []), verify) for name in objects if name.endswith(".parquet")
        }

    def missing(self) -> list[str]:
        """Names of objects that the storage lacks, or has in another state, or has and should not."""
        left = [path.name for path in files_of(self._folder) if self._is_new(path)]
        return [self._object(name) for name in [*left, *self._gone()]]

    def changed(self) -> Iterator[Content]:
        """The files that the storage lacks, as they are now and stay.

        Raises:
            OSError, ChunksmithError: The file system refused.
        """
        # Before they are sealed: one that begins after that is not.
        files = [path for path in files_of(self._folder) if self._is_new(path)]
        if files:
            seal(self._folder)
        for path in files:
            signature = _signature(path)
            if path.name in self.damaged and self._local[path.name][0] == signature:
                continue
            content = path.read_bytes()
            checksum = hashlib.sha256(content).hexdigest()
            self._local[path.name] = signature, checksum
            listed = self._manifest.read().get(path.name, [])
            entry = next((one for one in listed if one.sha256 == checksum), None)
            if listed and entry is None:
                self.damaged.add(path.name)
                continue
            self.damaged.discard(path.name)
            if self._is_new(path):
                yield Content(path.name, content, entry or Entry(path.name, len(content), checksum, ""))

    def send(self, contents: Iterator[Content] | Sequence[Content]) -> int:
        """Put files there and remove those that the folder has no more; returns how many of both.

        Raises:
            RemoteError: The storage does not answer.
            OSError, ChunksmithError: The file system refused.
        """
        # A compaction's new files hold the old ones' rows: first those go, or a reader would see rows twice.
        sent = self._remove(self._gone())
        batch: list[Content] = []
        for content in contents:
            batch.append(content)
            if sum(len(one.content) for one in batch) >= BATCH_BYTES:
                sent += self._put(batch)
                batch = []
        return sent + self._put(batch)

    def _put(self, batch: Sequence[Content]) -> int:
        if not batch:
            return 0
        self._write_manifest([one.entry for one in batch])
        for one in batch:
            self._place.write(self._object(one.name), one.content)
            self._there[one.name] = one.entry
        return len(batch)

    def _remove(self, names: Sequence[str]) -> int:
        if names:
            self._place.remove([self._object(name) for name in names])
            for name in names:
                del self._there[name]
            self._write_manifest([])
        return len(names)

    def _write_manifest(self, coming: Sequence[Entry]) -> None:
        certain = [entry for entry in self._there.values() if entry is not None]
        self._place.write(self._object(manifest.NAME), manifest.text_of([*certain, *coming]).encode())

    def _certain(self, name: str, entries: Sequence[Entry], verify: bool) -> Entry | None:
        """What an object is; None if it is nothing that was listed."""
        if len(entries) == 1 and not verify:
            return entries[0]
        content = self._place.read(self._object(name))
        checksum = hashlib.sha256(content or b"").hexdigest()
        return next((entry for entry in entries if entry.sha256 == checksum), None)

    def _gone(self) -> list[str]:
        # A table whose whole folder is missing is a fault, and no reason to empty the storage.
        if not self._folder.is_dir():
            return []
        return sorted(self._there.keys() - {path.name for path in files_of(self._folder)})

    def _is_new(self, path: Path) -> bool:
        known, there = self._local.get(path.name), self._there.get(path.name)
        if known is None or there is None:
            return True
        return known[0] != _signature(path) or known[1] != there.sha256

    def _object(self, name: str) -> str:
        return f"{self.table}/{name}"


def _signature(path: Path) -> tuple[int, ...]:
    """Another one whenever the file was replaced."""
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size
