"""``chunksmith sweep`` in a process that tells what it is doing, and that can be made to die in the middle of a file.

The process is forked from one that has loaded everything (``multiprocessing``'s fork server), so that a thousand of
them cost no imports. From there on it is the command as a user runs it, but for the engine in the actor.
"""

from __future__ import annotations

import functools
import importlib
import os
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

PHASES = {
    "start": ("orchestrator.cluster.actor", "RayEngine.start"),
    "block": ("orchestrator.cluster.actor", "RayEngine.run"),
    "ask": ("orchestrator.sweep.trial_book", "TrialBook.next"),
    "tell": ("orchestrator.sweep.trial_book", "TrialBook.tell"),
    "record": ("orchestrator.sweep.ledger", "Ledger.write_trials"),
    "confirm": ("orchestrator.sweep.ledger", "Ledger.write_confirmation"),
    "open": ("orchestrator.sweep.study", "open_study"),
}
"""What is said, and the call that begins it."""

PRELOADED = ["orchestrator.cli", "orchestrator.sweep", "orchestrator.cluster.actor", "optuna", "ray", __name__]


TEAR_FILE, TEAR_JOURNAL = signal.SIGUSR1, signal.SIGUSR2
"""Signals that make the process die in the middle of the next file, or of the next entry of the journal."""


def drive(words: list[str], env: dict[str, str], log: Path, phases: Connection, stated_times: bool) -> None:
    """Run ``chunksmith`` with some words.

    Args:
        env: The environment.
        log: Gets all that it prints.
        phases: Gets the name of each phase as it begins.
        stated_times: Whether the engine is the one of ``stated_times``.
    """
    os.environ.clear()
    os.environ.update(env)
    os.chdir(Path(__file__).resolve().parents[2])
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    for phase, (module, name) in PHASES.items():
        _announce(module, name, phase, phases)
    _tear_when_told()
    if stated_times:
        from orchestrator.cluster import actor
        from tests.soak.stated_times import StatedTimesActor

        actor.RayEngine.actor_class = StatedTimesActor
    from orchestrator.cli import main

    sys.argv = ["chunksmith", *words]
    sys.exit(main())


def _announce(module: str, name: str, phase: str, phases: Connection) -> None:
    """Say the phase whenever a function is called."""
    holder: Any = importlib.import_module(module)
    *outer, last = name.split(".")
    for part in outer:
        holder = getattr(holder, part)
    real = getattr(holder, last)

    @functools.wraps(real)
    def announced(*args: Any, **kwargs: Any) -> Any:
        phases.send_bytes(phase.encode())
        return real(*args, **kwargs)

    setattr(holder, last, announced)
    if last == "open_study":
        # The loop has the function itself.
        importlib.import_module("orchestrator.sweep.loop").__dict__[last] = announced


def _tear_when_told() -> None:
    """Fault injection: die between the two halves of a file's content."""
    from optuna.storages.journal import JournalFileBackend

    from orchestrator.records import atomic

    due: set[int] = set()
    for number in (TEAR_FILE, TEAR_JOURNAL):
        signal.signal(number, lambda number, frame: due.add(number))
    write, append = atomic._write_and_sync, JournalFileBackend.append_logs

    def torn_write(path: Path, content: Any) -> None:
        if TEAR_FILE in due:
            data = bytes(memoryview(content))
            path.write_bytes(data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        write(path, content)

    def torn_append(self: Any, logs: list[dict[str, Any]]) -> None:
        if TEAR_JOURNAL in due:
            self._lock.acquire()
            with Path(self._file_path).open("ab") as journal:
                journal.write(b'{"op_code":4,"worker_id":"')
            os.kill(os.getpid(), signal.SIGKILL)
        append(self, logs)

    atomic._write_and_sync = torn_write
    JournalFileBackend.append_logs = torn_append  # type: ignore[method-assign]
