"""What is damaged is named, and set aside on demand; the rest stays readable."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.errors import ChunksmithError
from orchestrator.records import RunFolder, manifest, read_arrow, read_table, table_folder, write_rows
from orchestrator.records.checking import Fault, check
from tests.records.rows import plain_row


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """Two files of two trials each."""
    monkeypatch.setattr(table_folder, "FULL_ROWS", 2)
    run = RunFolder.create(tmp_path / "run")
    for trial in range(4):
        write_rows(run.path, "trials", f"trial-{trial:05d}", [plain_row("trials", trial=trial)])
    return run


def faults(run: RunFolder, *, repair: bool = False) -> list[Fault]:
    return [fault for table in check(run, repair=repair) for fault in table.faults]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[60] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def edit(path: Path) -> None:
    """Somebody else's change, which can be read."""
    pq.write_table(pq.read_table(path).slice(1), path)


def test_a_run_as_it_was_written_has_no_fault(run: RunFolder) -> None:
    trials, *_ = found = check(run)
    assert [(one.table, one.files, one.rows, one.unlisted) for one in found] == [
        ("trials", 3, 4, 0),
        ("blocks", 1, 0, 0),
        ("requests", 1, 0, 0),
    ]
    assert trials.size == sum(path.stat().st_size for path in run.table("trials").glob("*.parquet"))
    assert faults(run) == []


def rename(path: Path) -> None:
    """A column's name, which is then no UTF-8."""
    content = path.read_bytes()
    place = content.index(b"schema_version")
    path.write_bytes(content[:place] + b"\xed" + content[place + 1 :])


@pytest.mark.parametrize(
    ("damage", "says"),
    [(flip, "checksum"), (cut, "cannot be read"), (edit, "checksum"), (rename, "cannot be read")],
)
def test_a_damaged_file_is_named_and_set_aside(run: RunFolder, damage: Callable[[Path], None], says: str) -> None:
    path = run.table("trials") / "merged-00000.parquet"
    damage(path)
    (fault,) = faults(run)
    assert (fault.file, fault.parts, fault.mended) == (path, "trial-00000 to trial-00001", None)
    assert says in fault.what
    (fault,) = faults(run, repair=True)
    assert fault.mended == "set aside as damaged/trials/merged-00000.parquet"
    assert (run.path / "damaged" / "trials" / "merged-00000.parquet").is_file()
    assert faults(run) == []
    assert list(read_table(run.path, "trials")["trial"].sort_values()) == [2, 3]
    # The trials are measured and recorded anew.
    write_rows(run.path, "trials", "trial-00000", [plain_row("trials", trial=0)])
    assert list(read_table(run.path, "trials")["trial"].sort_values()) == [0, 2, 3]


def test_a_file_that_is_gone_is_named(run: RunFolder) -> None:
    (run.table("trials") / "merged-00001.parquet").unlink()
    (fault,) = faults(run)
    assert (fault.what, fault.parts) == ("is missing", "trial-00002 to trial-00003")
    assert faults(run, repair=True)[0].mended == "struck off the manifest"
    assert faults(run) == []


def test_a_table_that_is_gone_is_made_anew_without_rows(run: RunFolder) -> None:
    shutil.rmtree(run.table("blocks"))
    (fault,) = faults(run)
    assert (fault.file, fault.what) == (run.table("blocks"), "is missing")
    assert faults(run, repair=True)[0].mended == "made anew"
    assert read_arrow(run.path, "blocks").num_rows == 0


def test_a_copy_of_a_file_is_named_as_one(run: RunFolder) -> None:
    folder = run.table("trials")
    shutil.copy(folder / "merged-00000.parquet", folder / "zcopy.parquet")
    (fault,) = faults(run)
    assert (fault.file.name, fault.what) == ("zcopy.parquet", "holds what merged-00000.parquet holds too")


def test_files_without_a_checksum_are_read(run: RunFolder) -> None:
    (run.table("trials") / manifest.NAME).unlink()
    trials = check(run)[0]
    assert (trials.unlisted, trials.faults) == (3, ())
    cut(run.table("trials") / "merged-00001.parquet")
    assert [fault.what for fault in faults(run)] == ["cannot be read"]


def test_a_kill_between_the_checksum_and_the_file_is_no_damage(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    class FaultyKill(Exception):
        pass

    def faulty_replace(self: Path, target: Path) -> Path:
        raise FaultyKill

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", faulty_replace)
        with pytest.raises(FaultyKill):
            write_rows(run.path, "trials", "trial-00003", [plain_row("trials", trial=3, attempt=1)])
    assert faults(run) == []


def test_a_reader_names_the_damaged_file(run: RunFolder) -> None:
    cut(run.table("trials") / "merged-00001.parquet")
    with pytest.raises(ChunksmithError, match=r"merged-00001\.parquet: is damaged .* records check .* --repair$"):
        read_arrow(run.path, "trials")


def test_set_aside_names_are_not_taken_twice(run: RunFolder) -> None:
    for _ in range(2):
        path = write_rows(run.path, "trials", "trial-00009", [plain_row("trials", trial=9)])
        flip(path)
        faults(run, repair=True)
    assert len(list((run.path / "damaged" / "trials").iterdir())) == 2
    assert isinstance(read_arrow(run.path, "trials"), pa.Table)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    places=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), min_size=1, max_size=8),
    share=st.none() | st.floats(0, 0.99),
)
def test_any_damage_is_named_and_nothing_else_is_lost(
    run: RunFolder, places: list[tuple[int, int]], share: float | None
) -> None:
    path = run.table("trials") / "merged-00001.parquet"
    whole = path.read_bytes()
    content = bytearray(whole)
    for place, change in places:
        content[place % len(content)] ^= change
    path.write_bytes(content if share is None else content[: int(share * len(content))])
    try:
        is_same = path.read_bytes() == whole
        assert [fault.file for fault in faults(run)] == ([] if is_same else [path])
        try:
            read_table(run.path, "trials")
        except ChunksmithError as error:
            assert str(path) in str(error)  # noqa: PT017 - it may be read all the same
        # Where nobody has a checksum, only what cannot be read is a fault.
        (run.table("trials") / manifest.NAME).rename(run.path / "aside")
        assert {fault.file for fault in faults(run)} <= {path}
        (run.path / "aside").rename(run.table("trials") / manifest.NAME)
        if not is_same:
            (mended,) = faults(run, repair=True)
            assert mended.mended is not None
            assert sorted(read_table(run.path, "trials")["trial"]) == [0, 1]
    finally:
        shutil.rmtree(run.path / "damaged", ignore_errors=True)
        path.write_bytes(whole)
        with manifest.locked(path.parent) as log:
            log.add(manifest.Entry.of(path.name, whole, []))
