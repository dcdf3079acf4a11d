"""Files that are either whole or not there: a kill or a full disk never leaves half of one.

A file is written under a temporary name whose leading dot hides it from Parquet readers, flushed to the disk, and then
renamed, which POSIX does in one step (rename(2)).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from orchestrator.errors import ChunksmithError

_TEMPORARY_SUFFIX = ".tmp"


def write_text_atomic(path: Path, text: str) -> None:
    """Write a UTF-8 text file in one step; an existing file is replaced.

    Raises:
        ChunksmithError: The file system refused. What was there before is untouched.
    """
    replace_file(path, text.encode())


def replace_file(path: Path, content: bytes | pa.Buffer, *, before: Callable[[], None] = lambda: None) -> None:
    """Write a file in one step; an existing file is replaced.

    Args:
        before: Called when the content is on the disk and the file has not yet its name.

    Raises:
        ChunksmithError: The file system refused. What was there before is untouched.
    """
    # Process and thread in the name: two writers never share a temporary file.
    temporary = path.parent / f".{path.name}.{os.getpid()}.{threading.get_ident()}{_TEMPORARY_SUFFIX}"
    try:
        try:
            _write_and_sync(temporary, content)
            before()
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
    except OSError as error:
        raise ChunksmithError(f"{path}: cannot write: {error.strerror}. Earlier records are untouched.") from error


def remove_temporary_files(folder: Path) -> None:
    """Remove what a killed writer left in ``folder``. Only safe while nothing else writes there."""
    for path in folder.glob(f".*{_TEMPORARY_SUFFIX}"):
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut: the folder's own entry has to reach the disk too (fsync(2))."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_and_sync(path: Path, content: bytes | pa.Buffer) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
