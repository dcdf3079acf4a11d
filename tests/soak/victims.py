"""Who is killed: the processes of one run, found by their pids."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path

import psutil

from orchestrator.cluster import reaper
from orchestrator.cluster.reaper import Lease, lease_folder

DRIVER, WRITER, JOURNAL_WRITER = "driver", "file writer", "journal writer"
OF_DRIVER = (DRIVER, WRITER, JOURNAL_WRITER)
"""Their death ends the driver; the run is resumed. A writer is the driver in the middle of a file."""

WORKER, ACTOR, ENGINE, RAYLET, DATABASE = "Ray worker", "actor", "engine child", "raylet", "database"


def engine_ids(run: Path) -> list[str]:
    """Every engine that the run has had, the newest last."""
    logs = sorted((run / "logs").glob("engine-*.log"), key=lambda log: log.stat().st_mtime)
    return [log.stem for log in logs]


def actor_of(run: Path) -> psutil.Process | None:
    """The process with the run's present engine in it; None when there is none."""
    for engine_id in reversed(engine_ids(run)):
        try:
            lease = Lease.read(lease_folder() / f"{engine_id}.json")
            if reaper.is_alive(lease.owner_pid, lease.owner_start):
                return psutil.Process(lease.owner_pid)
        except (OSError, ValueError, TypeError, psutil.Error):
            continue
    return None


def engine_of(run: Path, name: str) -> psutil.Process | None:
    """The engine's own child process in the actor, by the beginning of its command."""
    actor = actor_of(run)
    try:
        children = actor.children(recursive=True) if actor is not None else []
    except psutil.Error:
        return None
    return next((child for child in children if command(child).startswith(name)), None)


def raylet_of(run: Path) -> psutil.Process | None:
    """The raylet of the node that the run's engine is on: Ray's worker processes are its children."""
    actor = actor_of(run)
    try:
        return None if actor is None else actor.parent()
    except psutil.Error:
        return None


def starting_worker(raylets: Iterable[psutil.Process], run: Path) -> psutil.Process | None:
    """A worker that has no engine of this run yet: one that starts, or waits for an actor."""
    actor = actor_of(run)
    for raylet in raylets:
        try:
            workers = [one for one in raylet.children() if _is_worker(command(one))]
        except psutil.Error:
            continue
        for worker in reversed(workers):
            if actor is None or worker.pid != actor.pid:
                return worker
    return None


def kill(victim: psutil.Process | None) -> bool:
    """SIGKILL; whether there was something to kill."""
    if victim is None or not victim.is_running():
        return False
    try:
        os.kill(victim.pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def command(process: psutil.Process) -> str:
    """A process's command line; empty when it is gone."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _is_worker(words: str) -> bool:
    """Whether a child of a raylet runs actors; its agents, whose death it does not survive, bear such names too."""
    return "default_worker.py" in words or (words.startswith("ray::") and "Agent" not in words)


def left_of(run: Path) -> list[str]:
    """Leases and live processes of the run's engines."""
    ids = engine_ids(run)
    leases = [engine_id for engine_id in ids if (lease_folder() / f"{engine_id}.json").exists()]
    living = [process for engine_id in ids for process in reaper.engine_processes(engine_id)]
    return [*leases, *(f"{process.pid} {command(process)}" for process in living)]
