"""The reaper's own process: one for each user of a machine, which guards every engine that has a lease there.

SIGKILL of an owner (a Ray worker), of a driver or of Ray itself does not stop it. It leaves when there has been no
engine for a while. Run as ``python -m orchestrator.cluster.reaper_process``; imports only the standard library and
psutil, because an engine that starts waits for it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import time
from collections.abc import Container, Iterator
from pathlib import Path
from threading import Thread
from typing import Final

from orchestrator.cluster import reaper
from orchestrator.cluster.duty import Duty
from orchestrator.cluster.reaper import SCAN_INTERVAL_S, Lease
from orchestrator.cluster.scans import Scans
from orchestrator.cluster.ward import Ward

LINGERS_S: Final = 5.0
"""How long a reaper stays without an engine: to start another one takes longer than to keep it."""


def guard_all(duty: Duty, folder: Path) -> None:
    """Guard the engines whose leases are in a folder, until there are none."""
    scans, wards = Scans(), dict[Path, Thread]()
    needed_s = time.monotonic()
    while True:
        # One that ended by an error begins again.
        wards = {path: ward for path, ward in wards.items() if ward.is_alive()}
        for path, lease in _leases(folder, wards):
            wards[path] = Thread(target=Ward(lease, path, scans).run, name=path.stem, daemon=True)
            wards[path].start()
        if wards:
            needed_s = time.monotonic()
        elif time.monotonic() - needed_s > LINGERS_S and duty.leave(lambda: any(_leases(folder))):
            return
        time.sleep(SCAN_INTERVAL_S)


def main() -> None:
    """Entry point: leave the caller's process tree and session first, then guard. To the caller the command ends once a
    reaper is on duty."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="what the caller has as ``reaper.ROOT``")
    reaper.ROOT = parser.parse_args().root
    folder = reaper.lease_folder()
    on_duty = _leave()
    duty = Duty(folder)
    is_needed = duty.take()
    with contextlib.suppress(PermissionError):
        # It serves all, and not only the one who started it, whose priority may be low.
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    os.write(on_duty, b"1")
    os.close(on_duty)
    if is_needed:
        guard_all(duty, folder)


def _leases(folder: Path, known: Container[Path] = ()) -> Iterator[tuple[Path, Lease]]:
    """The leases that are not known, as far as they can be read."""
    for path in folder.glob("*.json"):
        if path not in known:
            # Else it was just removed.
            with contextlib.suppress(OSError, ValueError, TypeError):
                yield path, Lease.read(path)


def _leave() -> int:
    """Leave the caller's process tree and session; return where to write a byte, upon which the command returns to it.

    Ray kills the direct children of a worker that exits. A grandchild in a session of its own is not one.
    """
    reads, writes = os.pipe()
    if os.fork():
        os.close(writes)
        os._exit(0 if os.read(reads, 1) else 1)
    os.close(reads)
    os.setsid()
    os.chdir("/")
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    devnull = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(devnull, descriptor)
    os.close(devnull)
    return writes


if __name__ == "__main__":
    main()
