"""Records trials for ever and mirrors them: a process for a test to kill. Run as
``mirror_child.py RUN TARGET FIRST [PAUSE_S]``.

It prints each trial's number once that is in the run folder, and pauses.
"""

from __future__ import annotations

import itertools
import sys
import time
from functools import partial
from pathlib import Path

from orchestrator.records import RunFolder
from orchestrator.records.remote import Following, open_mirror
from tests.records.remote.runs import record


def main(path: Path, target: str, first: int, pause_s: float) -> None:
    run = RunFolder(path)
    show = partial(print, flush=True)
    with run.lock(), Following(run, open_mirror(run, target), show, show, every_s=0.1):
        for number in itertools.count(first):
            # The trials of the process before are written again, as by a resumed sweep.
            record(run, number, attempt=first)
            print(number, flush=True)
            time.sleep(pause_s)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4] if len(sys.argv) > 4 else 0))
