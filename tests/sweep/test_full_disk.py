"""A disk that runs full stops the sweep in one line and loses nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.errors import ChunksmithError
from orchestrator.records import RunFolder
from tests.sweep.studies import make_spec, new_run, read, require_no_duplicates, require_whole, run_sweep

SIZE_KIB = 2048


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB: three times what the study takes."""
    if not sys.platform.startswith("linux"):
        pytest.skip("tmpfs is Linux's")
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE_KIB}k", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"mounting a tmpfs needs root: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path, leave: int) -> Path:
    """Fill the disk but for some bytes; return the file that does it."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(b"\0" * 4096):
                pass
        except OSError:
            pass
        file.truncate(max(0, file.tell() - leave))
    return ballast


@pytest.mark.parametrize("pages", [1, 5, 20, 40])
def test_a_full_disk_stops_the_sweep_in_one_line_and_loses_nothing(small_disk: Path, pages: int) -> None:
    spec = make_spec(trials=12)
    run = new_run(small_disk / "run", spec)
    ballast = fill(small_disk, pages * 4096)
    with pytest.raises((ChunksmithError, OSError), match="No space left on device") as caught:
        run_sweep(spec, run)
    assert "\n" not in str(caught.value)
    require_no_duplicates(run)
    before = {row["trial"]: row["finished_at"] for row in read(run, "trials")}
    assert bool(before) or pages < 40

    ballast.unlink()
    run_sweep(spec, RunFolder.open(run.path))
    require_whole(run, spec)
    assert before.items() <= {row["trial"]: row["finished_at"] for row in read(run, "trials")}.items()
