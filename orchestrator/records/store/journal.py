"""Optuna's journal of a study, one JSON object a line: mended before anybody writes to it, and read in one go."""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from orchestrator.errors import ChunksmithError

_LONGEST_LINE = 1_000_000
"""A file of more bytes than this without a line end is no journal."""


def repair_journal(journal: Path) -> list[str]:
    """Undo what a killed or starved writer left; the caller holds the run's lock, so that no other process writes.

    A last line that is torn, after which Optuna could not read on, is copied to ``<journal>.torn-<n>`` and cut off: it
    was never acknowledged. A lock that nobody can hold any more is removed; Optuna would wait 30 s for it.

    Returns:
        What was done, a line for each.

    Raises:
        ChunksmithError: The file is no journal.
    """
    done = []
    for left in (journal.with_name(f"{journal.name}.lock"), *journal.parent.glob(f"{journal.name}.lock*.rename")):
        if left.is_symlink() or left.exists():
            left.unlink()
            done.append(f"{journal}: a dead process held its lock; taken over")
    if not journal.exists():
        return done
    with journal.open("rb+") as file:
        content = file.read()
        whole = _end_of_whole_lines(content)
        if whole == len(content):
            return done
        if whole == 0 and len(content) > _LONGEST_LINE:
            raise ChunksmithError(f"{journal}: is not an Optuna journal: it has no line end")
        backup = _keep(journal, content[whole:])
        file.truncate(whole)
        os.fsync(file.fileno())
    done.append(f"{journal}: its last line was torn; {len(content) - whole} bytes moved to {backup.name}")
    return done


def open_journal(journal: Path) -> JournalStorage:
    """The study's storage, with everything that the journal holds.

    Args:
        journal: Absolute path. With a relative one, Optuna 5.0 waits for ever on a lock whose holder was killed.

    Raises:
        ChunksmithError: The journal is damaged before its last line.
    """
    if not journal.is_absolute():
        raise ValueError(f"the journal's path must be absolute, got {journal}")
    with _quick_replay(), _no_collection():
        try:
            return JournalStorage(_Journal(str(journal)))
        except (ValueError, KeyError, TypeError, AttributeError, AssertionError) as error:
            # Whatever Optuna stumbles over: the line tells.
            raise ChunksmithError(_damage(journal) or f"{journal}: cannot be read: {error!r}") from error


class _Journal(JournalFileBackend):
    """Optuna's file of the journal, the first time parsed as a whole: a tenth of the calls into the parser."""

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:  # type: ignore[override]
        if log_number_from or len(self._log_number_offset) > 1:
            yield from super().read_logs(log_number_from)
            return
        content = Path(self._file_path).read_bytes()
        content = content[: content.rfind(b"\n") + 1]
        lines = content.split(b"\n")[:-1]
        logs = json.loads(b"[" + b",".join(lines) + b"]")
        if len(logs) != len(lines):
            raise ValueError("a line holds more than one operation")
        offset = 0
        for number, line in enumerate(lines, start=1):
            offset += len(line) + 1
            self._log_number_offset[number] = offset
        yield from logs


@contextmanager
def _quick_replay() -> Iterator[None]:
    """Spare Optuna's replay what it does for every operation, and what only later ones need.

    Each parameter of each trial names its distribution in full, and is held against those of all trials before; there
    are only as many as knobs, they are never changed, and trials may share them. And each operation copies its trial,
    which somebody may hold; nobody does yet.
    """
    # The names of Optuna 5; that its replay still goes by them, a test watches.
    replay: Any = importlib.import_module("optuna.storages.journal._storage")
    names = ("json_to_distribution", "check_distribution_compatibility", "copy")
    before = {name: getattr(replay, name) for name in names}
    read, check, copying = before.values()

    def check_others(old: BaseDistribution, new: BaseDistribution) -> None:
        if old is not new:
            check(old, new)

    replay.json_to_distribution, replay.check_distribution_compatibility = functools.lru_cache(read), check_others
    replay.copy = SimpleNamespace(copy=lambda one: one, deepcopy=copying.deepcopy)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(replay, name, value)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Nothing of what is read is garbage, and looking for it costs as much as reading."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _end_of_whole_lines(content: bytes) -> int:
    """Bytes up to the end of the last line that is an operation. What follows it was torn: by a kill before its line
    end, or by a power cut that left zeros."""
    end = content.rfind(b"\n") + 1
    while end:
        begin = content.rfind(b"\n", 0, end - 1) + 1
        if _is_operation(content[begin:end]):
            return end
        if begin == 0 and end == len(content):
            # Its only line: no journal, and nothing that a kill leaves.
            return end
        end = begin
    return end


def _is_operation(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _keep(journal: Path, torn: bytes) -> Path:
    """Write what is to be cut beside the journal, under the first name that is free."""
    number = 1
    while (backup := journal.with_name(f"{journal.name}.torn-{number}")).exists():
        number += 1
    with backup.open("xb") as file:
        file.write(torn)
        file.flush()
        os.fsync(file.fileno())
    return backup


def _damage(journal: Path) -> str | None:
    """One line on the first line that is no operation; None if every one is."""
    with journal.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not _is_operation(line):
                return (
                    f"{journal}: line {number} is damaged: {line[:40]!r}. Mend or remove that line, or restore the "
                    "file; what was measured is in the tables, whole"
                )
    return None
