"""``_manifest.jsonl`` of a table: the checksum of every file that was ever written there, and the lock of its writers.

Lines are only added. A file's line stands before the file has its name: a kill between the two leaves a file that the
line before describes, so the last two lines of a file both count until it is written again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from orchestrator.records.parts import Part, summary

NAME: Final = "_manifest.jsonl"
"""Parquet readers skip names that begin with an underscore."""


@dataclass(frozen=True)
class Entry:
    """One line.

    Attributes:
        file: Name in the table's folder.
        size: Bytes.
        sha256: Checksum of the content, hexadecimal; empty when the file was taken out.
        parts: Names of its parts, in a few words.
    """

    file: str
    size: int
    sha256: str
    parts: str

    @classmethod
    def of(cls, file: str, content: bytes | pa.Buffer, parts: Sequence[Part]) -> Entry:
        """The entry of a file."""
        return cls(file, len(memoryview(content)), hashlib.sha256(content).hexdigest(), summary(parts))

    @classmethod
    def of_file(cls, path: Path, parts: Sequence[Part]) -> Entry:
        """The entry of a file that is on the disk."""
        return cls(path.name, path.stat().st_size, checksum(path), summary(parts))


def checksum(path: Path) -> str:
    """SHA-256 of a file, hexadecimal.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Manifest:
    """The manifest of one table, held by this process for writing."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @property
    def signature(self) -> tuple[int, int]:
        """Another one after every change, by whichever process."""
        status = os.fstat(self._descriptor)
        return status.st_ino, status.st_size

    def add(self, *entries: Entry) -> None:
        """Add lines, and wait until they are on the disk."""
        size = os.fstat(self._descriptor).st_size
        text = text_of(entries)
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            # A writer was killed inside its line.
            text = "\n" + text
        with os.fdopen(os.dup(self._descriptor), "wb") as file:
            file.write(text.encode())
        os.fsync(self._descriptor)


@contextmanager
def locked(folder: Path) -> Iterator[Manifest]:
    """Hold a table for writing: one process and thread at a time. The kernel lets go when a holder dies.

    Raises:
        OSError: The file system refused.
    """
    path = folder / NAME
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # A compaction may have put another folder here while this one waited.
            if path.exists() and path.stat().st_ino == os.fstat(descriptor).st_ino:
                yield Manifest(descriptor)
                return
        finally:
            os.close(descriptor)


def read(folder: Path) -> dict[str, list[Entry]]:
    """The entries by file, in order; a file that was taken out is left out. Empty where there is no manifest.

    A line that a kill cut off is skipped.
    """
    path = folder / NAME
    return parse(path.read_bytes()) if path.exists() else {}


def parse(content: bytes) -> dict[str, list[Entry]]:
    """As ``read``, of a manifest's content."""
    found: dict[str, list[Entry]] = {}
    _take(found, content)
    return found


class Follower:
    """Reads a manifest that grows: every time only what is new, as ``read`` would give it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._file, self._read = -1, 0
        self._found: dict[str, list[Entry]] = {}

    def read(self) -> dict[str, list[Entry]]:
        """The entries until now."""
        if not self._path.exists():
            return {}
        with self._path.open("rb") as file:
            if self._file != (number := os.fstat(file.fileno()).st_ino):
                # A compaction has put another folder here.
                self._file, self._read, self._found = number, 0, {}
            file.seek(self._read)
            # Up to the last line's end: a writer may be inside the next.
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._read += len(whole)
        _take(self._found, whole)
        return self._found


def text_of(entries: Iterable[Entry]) -> str:
    """A manifest with these entries."""
    return "".join(json.dumps(vars(entry)) + "\n" for entry in entries)


def _take(found: dict[str, list[Entry]], content: bytes) -> None:
    for line in content.splitlines():
        entry = _entry(line)
        if entry is None:
            continue
        if entry.sha256:
            found.setdefault(entry.file, []).append(entry)
        else:
            found.pop(entry.file, None)


def _entry(line: bytes) -> Entry | None:
    try:
        values: Any = json.loads(line)
    except ValueError:
        return None
    if not isinstance(values, dict) or values.keys() != Entry.__dataclass_fields__.keys():
        return None
    return Entry(**values)
