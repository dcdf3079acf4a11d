"""A run in a storage is read as one in a folder, also while it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import ChunksmithError, UserError
from orchestrator.records import RunFolder, read_table
from orchestrator.records.checking import check
from orchestrator.records.remote import Place, fetch, open_mirror, snapshot
from tests.records.remote.runs import NUMBERS, contents, record


def test_a_copy_is_the_run(run: RunFolder, any_target: str, tmp_path: Path) -> None:
    open_mirror(run, any_target).send()
    copy = fetch(f"{any_target}/demo/", tmp_path / "copy")
    assert contents(copy) == contents(run)
    assert all(not table.faults and not table.unlisted for table in check(copy))
    with pytest.raises(UserError, match="copy: is not empty"):
        fetch(f"{any_target}/demo", tmp_path / "copy")


def test_a_run_that_somebody_copied_there_is_read_too(run: RunFolder, target: str, tmp_path: Path) -> None:
    record(run, 1, attempt=1)
    place = Place(f"{target}/demo")
    for path in run.path.rglob("*"):
        if path.is_file():
            place.write(str(path.relative_to(run.path)), path.read_bytes())
    copy = fetch(f"{target}/demo", tmp_path / "copy")
    assert contents(copy) == contents(run)


def test_a_name_that_leads_out_of_the_folder_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(f"memory://bucket-{next(NUMBERS)}/demo")
    place.write("spec.yaml", b"study: demo\n")
    names = {"spec.yaml", "trials/../../outside.parquet", "soak/../../outside.json"}
    monkeypatch.setattr(Place, "names", lambda *_: names)
    fetch(place.address, tmp_path / "a" / "copy")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["spec.yaml"]


def test_what_is_replaced_while_it_is_read_is_read_again(
    run: RunFolder, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = open_mirror(run, target)
    mirror.send()
    numbers = iter(range(3, 99))
    tables: list[str] = []
    fetch_objects = Place.fetch

    def late(place: Place, names: set[str], folder: Path) -> set[str]:
        is_first = (table := min(names).partition("/")[0]) not in tables
        tables.append(table)
        # The sweep goes on, and its mirror with it: between the tables, and between the objects and their manifest.
        for _ in range(is_first and len(tables) > 1):
            record(run, next(numbers))
            mirror.send()
        gone = fetch_objects(place, names, folder)
        for _ in range(2 * is_first):
            record(run, next(numbers))
            mirror.send()
        return gone

    monkeypatch.setattr(Place, "fetch", late)
    copy = fetch(mirror.address, tmp_path / "copy")
    assert [fault for table in check(copy) for fault in table.faults] == []
    trials = set(read_table(copy.path, "trials")["trial"])
    assert trials >= {0, 1, 2}
    for table in ("blocks", "requests"):
        assert trials <= set(read_table(copy.path, table)["trial"])


def test_an_object_that_is_gone_is_missed_but_not_one_that_is_on_its_way(
    run: RunFolder, target: str, tmp_path: Path
) -> None:
    mirror = open_mirror(run, target)
    mirror.send()
    record(run, 3)
    mirror.send()
    place = Place(mirror.address)
    place.remove({"trials/merged-00001.parquet"})
    assert [fault for table in check(fetch(mirror.address, tmp_path / "1")) for fault in table.faults] == []
    place.remove({"blocks/merged-00000.parquet"})
    (fault,) = [fault for table in check(fetch(mirror.address, tmp_path / "2")) for fault in table.faults]
    assert (fault.file.name, fault.what, fault.parts) == (
        "merged-00000.parquet",
        "is missing",
        "trial-00000 to trial-00002",
    )


def test_a_snapshot_goes_at_the_end_and_its_troubles_name_the_address(run: RunFolder, target: str) -> None:
    open_mirror(run, target).send()
    Place(f"{target}/demo").write("trials/merged-00000.parquet", b"no")
    seen: list[RunFolder] = []

    def read() -> None:
        with snapshot(f"{target}/demo") as copy:
            seen.append(copy)
            assert len(read_table(copy.path, "blocks")) == 6
            read_table(copy.path, "trials")

    with pytest.raises(ChunksmithError, match=f"^{target}/demo/trials/merged-00000.parquet: is damaged"):
        read()
    (copy,) = seen
    assert copy.path.name == "demo"
    assert not copy.path.parent.exists()


def test_no_run_there(target: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"^{target}: holds no run"):
        fetch(target, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_no_bucket_there(bucket: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"^{bucket}-gone/runs/demo: "):
        fetch(f"{bucket}-gone/runs/demo", tmp_path / "copy")
