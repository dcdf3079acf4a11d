"""The folder ``runs/<study>/``: where each file of a run lies, and who may write there."""

from __future__ import annotations

import contextlib
import difflib
import errno
import fcntl
import os
import shutil
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from orchestrator.errors import ChunksmithError, UserError
from orchestrator.records import table_folder
from orchestrator.records.atomic import remove_temporary_files, sync_folder, write_text_atomic
from orchestrator.records.schemas import SCHEMAS
from orchestrator.records.writer import write_empty_table

_HALF_MADE: Final = ".new"
"""Ends the name of a folder that is being filled, which begins with a dot."""

_LEFT_S: Final = 3600.0
"""Nobody fills a folder for so long: whoever began was killed."""


class RunFolder:
    """Paths of one run. All are absolute: the processes of a sweep have different working folders.

    ``create`` and ``open`` check the folder; the constructor only names it.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).resolve()

    @classmethod
    def create(cls, path: Path | str, *, spec: str | None = None) -> RunFolder:
        """Make the folder of a new run, with its log folder and its empty tables.

        It is filled under another name, and gets its own when it is whole: a process that is killed here leaves no run.
        What it leaves is removed by whoever creates the run an hour later. A folder that is there, empty, stays the
        folder that it is, which may be a mount: it is filled in its inside, and the files are moved up at last.

        Args:
            spec: Text of ``spec.yaml``; None where the caller writes that once the records are there.

        Raises:
            UserError: Something is there already.
            ChunksmithError: The file system refused. Nothing is left behind.
        """
        run = cls(path)
        if run.path.exists() and not run.path.is_dir():
            raise UserError(f"{path}: is a file, not a folder. Choose another name for the run.")
        if run.path.is_dir() and any(not RunFolder(entry).is_half_made for entry in run.path.iterdir()):
            what = "is an earlier run" if run.is_run() else "is not empty"
            raise UserError(f"{path}: {what}. Go on with it by --resume, or choose another folder by --run.")
        parent = run.path if run.path.is_dir() else run.path.parent
        half_made = cls(parent / f".{run.path.name}.{uuid.uuid4().hex[:8]}{_HALF_MADE}")
        try:
            _remove_left(parent)
            half_made.logs.mkdir(parents=True)
            for table in SCHEMAS:
                write_empty_table(half_made.path, table)
            if spec is not None:
                write_text_atomic(half_made.spec, spec)
            half_made._publish(run)
        except FileExistsError as error:
            raise UserError(f"{path}: another process has just created this run. Choose another name.") from error
        except OSError as error:
            raise ChunksmithError(f"{path}: cannot make the run folder: {error.strerror}.") from error
        except ChunksmithError as error:
            raise ChunksmithError(str(error).replace(str(half_made.path), str(run.path))) from error
        finally:
            shutil.rmtree(half_made.path, ignore_errors=True)
        return run

    def _publish(self, run: RunFolder) -> None:
        """Give a folder that is whole its name. Exactly one process can: of two that create one run, the second fails.

        Raises:
            FileExistsError: The run is there.
        """
        if self.path.parent == run.path:
            run.logs.mkdir()
            for made in (self.spec, *map(self.table, SCHEMAS)):
                if made.exists():
                    made.rename(run.path / made.name)
            return
        try:
            self.path.rename(run.path)
        except OSError as error:
            # rename(2): a folder takes the place of another one only if that is empty.
            if error.errno != errno.ENOTEMPTY:
                raise
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(run.path)) from error
        sync_folder(run.path.parent)

    @classmethod
    def open(cls, path: Path | str) -> RunFolder:
        """The folder of an existing run.

        Raises:
            UserError: It is not a run; the message names the nearest run beside it.
        """
        run = cls(path)
        if run.is_run():
            return run
        what = "is not a run folder" if run.path.exists() else "does not exist"
        near = run._nearest_run()
        raise UserError(f"{path}: {what}{f'; did you mean {str(Path(path).parent / near)!r}?' if near else '.'}")

    @property
    def spec(self) -> Path:
        """The resolved spec, YAML."""
        return self.path / "spec.yaml"

    @property
    def provenance(self) -> Path:
        """What the run was made with, JSON."""
        return self.path / "provenance.json"

    @property
    def journal(self) -> Path:
        """Optuna's journal of the study."""
        return self.path / "study.journal"

    @property
    def logs(self) -> Path:
        """Folder of the engines' logs."""
        return self.path / "logs"

    def table(self, name: str) -> Path:
        """Folder of one table's Parquet files.

        Raises:
            ValueError: ``name`` is not a table.
        """
        if name not in SCHEMAS:
            raise ValueError(f"unknown table {name!r}; known are {', '.join(SCHEMAS)}")
        return self.path / name

    def hidden(self, name: str) -> Path:
        """Folder in which a compaction makes a table's new files; what a kill leaves there is never needed."""
        return self.path / f".{name}.compact"

    def has_part(self, table: str, name: str) -> bool:
        """Whether rows were written under a name, by this process or an earlier one.

        Raises:
            ValueError: ``table`` is not a table.
            ChunksmithError: The file system refused.
        """
        return table_folder.has(self.table(table), name)

    @property
    def is_half_made(self) -> bool:
        """Whether this is what ``create`` fills, or has left, under another name than the run's."""
        return self.path.name.startswith(".") and self.path.name.endswith(_HALF_MADE)

    def is_run(self) -> bool:
        """Whether a run was created here."""
        return not self.is_half_made and (self.spec.is_file() or self.table("trials").is_dir())

    def is_in_use(self) -> bool:
        """Whether a process that holds the run is alive, as far as this machine can tell: one on another host counts
        as alive. Takes no lock, so it never stands in a sweep's way."""
        try:
            pid, _, host = (self.path / ".lock").read_text().strip().partition(" ")
        except OSError:
            return False
        if not pid:
            return False
        return host != socket.gethostname() or Path(f"/proc/{pid}").exists()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run for this process, so that two sweeps never write to it. The kernel lets go when a holder dies.

        What a killed writer left half done is removed on entry.

        Raises:
            ChunksmithError: Another process holds it; the message names that process.
        """
        # Opened without truncation: until the lock is ours the file holds the name of the process that has it.
        descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                pid, _, host = os.pread(descriptor, 1024, 0).decode().strip().partition(" ")
                holder = f"process {pid} on {host}" if pid else "another process, which has just started"
                raise ChunksmithError(f"{self.path}: in use by {holder}. Wait for it or stop it.") from error
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
            for folder in (self.path, *(self.table(name) for name in SCHEMAS)):
                remove_temporary_files(folder)
            for name in SCHEMAS:
                shutil.rmtree(self.hidden(name), ignore_errors=True)
            _remove_left(self.path)
            yield
            # The file stays, empty: if it were removed, a waiting process could lock a file that nobody else can see.
            os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)

    def _nearest_run(self) -> str | None:
        parent = self.path.parent
        if not parent.is_dir():
            return None
        runs = [entry.name for entry in parent.iterdir() if entry.is_dir() and RunFolder(entry).is_run()]
        near = difflib.get_close_matches(self.path.name, runs, n=1, cutoff=0.4)
        return near[0] if near else None


def _remove_left(parent: Path) -> None:
    """Remove what killed processes have left half made in a folder."""
    for left in parent.glob(f".*{_HALF_MADE}"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > _LEFT_S:
                shutil.rmtree(left, ignore_errors=True)
