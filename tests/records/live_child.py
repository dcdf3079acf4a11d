"""The two sides of a run that is read while it is written, a process each, for ``test_live_reads.py``.

``live_child.py write FOLDER RATE`` records trials until it is killed, so many writes a second, some of them again;
``live_child.py read FOLDER READS`` reads the tables as a notebook does, and prints what it saw as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pandas as pd

from orchestrator.records import write_rows, write_text_atomic
from tests.records.rows import plain_row

BLOCKS = 4
KEYS = {"trials": ["trial"], "blocks": ["trial", "block"]}


def write(folder: Path, rate: float) -> None:
    """Each trial's blocks come before its row, as in a sweep; then it is acknowledged in a file."""
    begin, writes = time.monotonic(), 0
    for number in range(10**6):
        for trial in {number, number - number % 10}:
            blocks = [plain_row("blocks", trial=trial, block=block) for block in range(BLOCKS)]
            write_rows(folder, "blocks", f"trial-{trial:05d}", blocks)
            write_rows(folder, "trials", f"trial-{trial:05d}", [plain_row("trials", trial=trial, attempt=number)])
            writes += 2
            time.sleep(max(0.0, begin + writes / rate - time.monotonic()))
        write_text_atomic(folder / "acknowledged", str(number))


def read(folder: Path, reads: int) -> None:
    """By pandas alone, which knows nothing of the run: every acknowledged row is there, and none twice."""
    seen = 0
    for turn in range(reads):
        table = ("trials", "blocks")[turn % 2]
        known = int((folder / "acknowledged").read_text())
        found = pd.read_parquet(folder / table, columns=KEYS[table])
        if found.duplicated().any():
            raise SystemExit(f"read {turn}: rows of {table} twice: {found[found.duplicated()].head()}")
        if missing := set(range(known + 1)) - set(found["trial"]):
            raise SystemExit(f"read {turn}: of {table} is missing {sorted(missing)[:5]}")
        if table == "blocks" and (found["trial"].value_counts() != BLOCKS).any():
            raise SystemExit(f"read {turn}: blocks of a trial without the others")
        seen = max(seen, len(found))
    print(json.dumps({"reads": reads, "most rows": seen}))


if __name__ == "__main__":
    side, where, number = sys.argv[1:]
    if side == "write":
        write(Path(where), float(number))
    else:
        read(Path(where), int(number))
