"""Small writes are gathered into larger files; a part keeps its file."""

from __future__ import annotations

import threading
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from orchestrator.errors import ChunksmithError
from orchestrator.records import SCHEMAS, RunFolder, manifest, read_arrow, table_folder, write_rows
from orchestrator.records.table_folder import files_of
from tests.records.rows import plain_row


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "run")


def write(run: RunFolder, trial: int, **changes: int) -> str:
    row = plain_row("trials", trial=trial, **changes)
    return write_rows(run.path, "trials", f"trial-{trial:05d}", [row]).name


def recorded(run: RunFolder) -> dict[int, int]:
    """Attempt of each trial, by pandas alone."""
    found = pd.read_parquet(run.table("trials"))
    assert not found["trial"].duplicated().any()
    return dict(zip(found["trial"].tolist(), found["attempt"].tolist(), strict=True))


def forget() -> None:
    """What a new process knows: nothing."""
    table_folder._indices.clear()


def test_trials_share_files_that_never_vanish(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_folder, "FULL_ROWS", 5)
    seen: list[str] = []
    for trial in range(12):
        write(run, trial)
        names = [path.name for path in files_of(run.table("trials"))]
        assert set(seen) <= set(names)
        seen = names
    assert seen == ["merged-00000.parquet", "merged-00001.parquet", "merged-00002.parquet", "part-empty.parquet"]
    assert sorted(recorded(run)) == list(range(12))


@pytest.mark.parametrize("is_new_process", [False, True])
def test_a_repeat_goes_where_the_part_is(run: RunFolder, monkeypatch: pytest.MonkeyPatch, is_new_process: bool) -> None:
    monkeypatch.setattr(table_folder, "FULL_ROWS", 3)
    homes = [write(run, trial) for trial in range(8)]
    if is_new_process:
        forget()
    for trial in (7, 1, 3):
        assert write(run, trial, attempt=trial) == homes[trial]
    assert recorded(run) == {trial: trial if trial in (7, 1, 3) else 0 for trial in range(8)}
    assert write(run, 8) == homes[7]


def test_a_large_file_takes_no_further_part(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_folder, "FULL_BYTES", 1)
    assert [write(run, trial) for trial in range(2)] == ["merged-00000.parquet", "merged-00001.parquet"]
    forget()
    assert write(run, 2) == "merged-00002.parquet"


def test_a_sealed_file_takes_no_further_part_but_keeps_its_own(run: RunFolder) -> None:
    folder = run.table("trials")
    first = write_rows(run.path, "trials", "trial-00000", [plain_row("trials", trial=0)])
    table_folder.seal(folder)
    second = write_rows(run.path, "trials", "trial-00001", [plain_row("trials", trial=1)])
    assert second == folder / "merged-00001.parquet" != first
    assert write_rows(run.path, "trials", "trial-00000", [plain_row("trials", trial=0, attempt=1)]) == first
    assert write_rows(run.path, "trials", "trial-00002", [plain_row("trials", trial=2)]) == second
    assert set(read_arrow(run.path, "trials")["trial"].to_pylist()) == {0, 1, 2}


def test_a_run_with_a_file_for_each_trial_goes_on(run: RunFolder) -> None:
    """As earlier versions wrote them."""
    folder = run.table("trials")
    for trial in range(2):
        path = folder / write(run, trial)
        pq.write_table(pq.read_table(path).cast(SCHEMAS["trials"]), folder / f"trial-{trial:05d}.parquet")
        path.unlink()
    (folder / manifest.NAME).unlink()
    forget()
    assert run.has_part("trials", "trial-00001")
    assert write(run, 0, attempt=1) == "trial-00000.parquet"
    assert write(run, 2) == "merged-00000.parquet"
    assert recorded(run) == {0: 1, 1: 0, 2: 0}


def test_what_another_process_wrote_is_seen(run: RunFolder) -> None:
    write(run, 0)
    mine = dict(table_folder._indices)
    forget()
    write(run, 1)
    write(run, 2)
    table_folder._indices.update(mine)
    assert write(run, 1, attempt=5) == "merged-00000.parquet"
    assert recorded(run) == {0: 0, 1: 5, 2: 0}


def test_a_part_without_rows_is_a_part(run: RunFolder) -> None:
    write_rows(run.path, "trials", "trial-00003", [])
    assert run.has_part("trials", "trial-00003")
    assert not run.has_part("trials", "trial-00004")
    forget()
    assert run.has_part("trials", "trial-00003")


def test_a_damaged_file_is_left_alone(run: RunFolder) -> None:
    write(run, 0)
    path = run.table("trials") / "merged-00000.parquet"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    forget()
    assert write(run, 1) == "merged-00001.parquet"
    assert path.read_bytes() == content
    with pytest.raises(ChunksmithError, match=r"merged-00000\.parquet: is damaged\. To set it aside"):
        write(run, 0)
    assert path.read_bytes() == content


def test_threads_do_not_lose_each_others_rows(run: RunFolder) -> None:
    threads = [
        threading.Thread(target=lambda first=first: [write(run, first + n) for n in range(8)]) for first in (0, 8, 16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(recorded(run)) == list(range(24))


def test_the_manifest_has_the_checksum_of_every_file(run: RunFolder) -> None:
    for trial in range(3):
        write(run, trial)
    entries = manifest.read(run.table("trials"))
    assert set(entries) == {"merged-00000.parquet", "part-empty.parquet"}
    for file, lines in entries.items():
        assert manifest.checksum(run.table("trials") / file) == lines[-1].sha256
    assert entries["merged-00000.parquet"][-1].parts == "trial-00000 to trial-00002"


def test_a_line_that_a_kill_cut_off_is_skipped(run: RunFolder) -> None:
    write(run, 0)
    path = run.table("trials") / manifest.NAME
    with path.open("ab") as file:
        file.write(b'{"file": "merg')
    write(run, 1)
    entries = manifest.read(run.table("trials"))
    assert entries["merged-00000.parquet"][-1].parts == "trial-00000 to trial-00001"
    assert read_arrow(run.path, "trials").num_rows == 2


def test_the_lock_is_not_inherited_by_a_folder_that_took_the_place(run: RunFolder) -> None:
    folder = run.table("trials")
    with manifest.locked(folder):
        (folder / manifest.NAME).rename(folder / "_old")
        with manifest.locked(folder) as log:
            assert log.signature[1] == 0
