"""The storage gets what the run folder has, in an order in which no reader ever sees a row twice."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from orchestrator.errors import UserError
from orchestrator.records import SCHEMAS, RunFolder, SoakRecord, manifest
from orchestrator.records.checking import check
from orchestrator.records.compaction import compact
from orchestrator.records.remote import Claim, Mirror, Place, RemoteError, fetch, open_mirror
from tests.records.remote.runs import NUMBERS, contents, contents_there, record


def test_everything_gets_there_once(run: RunFolder, any_target: str) -> None:
    mirror = open_mirror(run, any_target)
    assert mirror.address == f"{any_target}/demo"
    assert mirror.missing()
    assert mirror.send() == len(contents(run))
    assert contents_there(mirror.address) == contents(run)
    assert mirror.missing() == []
    assert mirror.send() == 0
    record(run, 3)
    run.provenance.write_text('{"engines": []}\n')
    assert mirror.missing()
    assert mirror.send() == 4
    assert contents_there(mirror.address) == contents(run)


def test_plain_pandas_reads_it(run: RunFolder, bucket: str, endpoint: str) -> None:
    open_mirror(run, bucket).send()
    for options in (None, {"endpoint_url": endpoint}):
        for table, rows in (("trials", 3), ("blocks", 6), ("requests", 6)):
            found = pd.read_parquet(f"{bucket}/demo/{table}", storage_options=options)
            assert list(found.columns) == SCHEMAS[table].names
            assert len(found) == rows


def test_a_soak_goes_there_too(run: RunFolder, target: str) -> None:
    mirror = open_mirror(run, target)
    mirror.send()
    soak = SoakRecord(
        study="demo",
        trial=1,
        point={},
        passed=True,
        rounds=1,
        blocks=1,
        seconds=1.0,
        lost_engines=0,
        batches=[],
        serve_args=[],
        env={},
    )
    soak.write(run.path)
    assert mirror.send() == 1
    assert contents_there(mirror.address) == contents(run)


def test_a_new_process_sends_only_what_is_missing(run: RunFolder, target: str) -> None:
    open_mirror(run, target).send()
    mirror = open_mirror(run, target)
    assert mirror.send() == 2, "spec and provenance, which have no checksum there"
    record(run, 1, attempt=1)
    assert open_mirror(run, target).send() == 5
    assert contents_there(mirror.address) == contents(run)


def test_an_object_does_not_change_while_a_sweep_writes(
    run: RunFolder, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = open_mirror(run, target)
    written: list[str] = []
    write = Place.write

    def watched(place: Place, name: str, content: bytes) -> None:
        written.append(name)
        write(place, name, content)

    monkeypatch.setattr(Place, "write", watched)
    for trial in range(3, 9):
        record(run, trial)
        if trial % 2:
            mirror.send()
    mirror.send()
    objects = [name for name in written if name.endswith(".parquet")]
    assert len(objects) == len(set(objects)) == 3 * (4 + 1)
    assert contents_there(mirror.address) == contents(run)
    # A part that is written again takes its own place.
    record(run, 5, attempt=1)
    mirror.send()
    assert contents_there(mirror.address).keys() == contents(run).keys() == {*objects, "spec.yaml", "provenance.json"}
    assert contents_there(mirror.address) == contents(run)


def test_a_compacted_run_is_made_so_there_and_never_shows_a_row_twice(
    run: RunFolder, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.records.table_folder.FULL_ROWS", 4)
    record(run, 3, 4)
    mirror = open_mirror(run, target)
    mirror.send()
    before = contents_there(mirror.address).keys()
    compact(run)
    seen: list[int] = []
    write = Place.write

    def watched(place: Place, name: str, content: bytes) -> None:
        write(place, name, content)
        seen.append(_most_copies(mirror.address))

    monkeypatch.setattr(Place, "write", watched)
    mirror.send()
    assert contents_there(mirror.address) == contents(run)
    assert contents_there(mirror.address).keys() != before
    assert max(seen) == 1


def _most_copies(address: str) -> int:
    """How often a reader of the storage sees the row that it sees most often."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    counts = [0]
    for table, keys in (("trials", ["trial"]), ("blocks", ["trial", "block"])):
        files = [data for name, data in contents_there(address).items() if name.startswith(f"{table}/")]
        rows = pd.concat([pq.read_table(pa.BufferReader(data), columns=keys).to_pandas() for data in files])
        counts.append(int(rows.value_counts().max()) if len(rows) else 0)
    return max(counts)


class FaultyPlace(Place):
    """Fault: a write fails, of which the storage may have taken all or nothing."""

    fails: list[bool | None] = []  # noqa: RUF012 - shared on purpose: a mirror opened anew meets the next of them

    def write(self, name: str, content: bytes) -> None:
        fault = self.fails.pop(0) if self.fails else None
        if fault is not False:
            super().write(name, content)
        if fault is not None:
            raise RemoteError("cut off", is_refusal=False)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 4),  # the trial that is recorded, perhaps again
            st.lists(st.none() | st.booleans(), max_size=6),  # of each write: well, or an error with or without effect
            st.booleans(),  # the process goes and another comes
        ),
        min_size=1,
        max_size=6,
    )
)
# A write that failed with effect, and the next without: the object is neither what it was nor what comes.
@example([(0, [], False), (0, [None, True], False), (0, [None, False], False)])
def test_after_any_failures_a_check_finds_nothing_and_in_the_end_all_is_there(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, list[bool | None], bool]]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    run = RunFolder.create(folder / "demo")
    run.spec.write_text("study: demo\n")
    place = FaultyPlace(f"memory://bucket-{next(NUMBERS)}/demo")
    mirror = Mirror(run, place)
    for number, (trial, FaultyPlace.fails, is_new) in enumerate(steps):
        record(run, trial, attempt=number)
        mirror = Mirror(run, place) if is_new else mirror
        try:
            mirror.send()
        except RemoteError:
            assert mirror.missing()
        if place.names():
            _require_consistent(place, folder / f"copy-{number}")
    FaultyPlace.fails = []
    mirror.send()
    assert mirror.missing() == []
    assert contents_there(place.address) == contents(run)


def _require_consistent(place: Place, into: Path) -> None:
    """What lies there has no fault, as far as it is there, and every trial has its blocks."""
    copy = fetch(place.address, into)
    faults = [fault for table in check(copy) for fault in table.faults if fault.what != "is missing"]
    assert faults == []
    if copy.table("trials").is_dir():
        trials = pd.read_parquet(copy.table("trials"), columns=["trial"])["trial"]
        for table in ("blocks", "requests"):
            assert set(trials) <= set(pd.read_parquet(copy.table(table), columns=["trial"])["trial"])


def test_a_damaged_file_is_not_sent_over_a_whole_one(run: RunFolder, target: str) -> None:
    mirror = open_mirror(run, target)
    mirror.send()
    whole = contents_there(mirror.address)
    path = run.table("blocks") / "merged-00000.parquet"
    path.write_bytes(path.read_bytes()[:-7])
    assert mirror.send() == 0
    assert mirror.damaged == ["blocks/merged-00000.parquet"]
    assert mirror.missing() == ["blocks/merged-00000.parquet"]
    assert contents_there(mirror.address) == whole
    path.write_bytes(whole["blocks/merged-00000.parquet"])
    mirror.send()
    assert (mirror.damaged, mirror.missing()) == ([], [])


def test_a_missing_table_does_not_empty_the_storage(run: RunFolder, target: str) -> None:
    mirror = open_mirror(run, target)
    mirror.send()
    run.table("blocks").rename(run.path / "elsewhere")
    before = contents_there(mirror.address)
    mirror.send()
    assert contents_there(mirror.address) == before


def test_what_was_changed_or_taken_away_there_is_sent_again(run: RunFolder, target: str) -> None:
    mirror = open_mirror(run, target)
    mirror.send()
    place = Place(mirror.address)
    place.remove(["blocks/merged-00000.parquet", "blocks/not-there.parquet"])
    place.write("trials/merged-00000.parquet", b"no")
    mirror = open_mirror(run, target)
    mirror.send(verify=True)
    assert contents_there(mirror.address) == contents(run)


def test_a_folder_belongs_to_the_first_run_that_comes(run: RunFolder, target: str, tmp_path: Path) -> None:
    open_mirror(run, target)
    other = RunFolder.create(tmp_path / "elsewhere" / "demo")
    # What has only been claimed may be taken: the sweep that did so ended before it began.
    open_mirror(other, target).send()
    with pytest.raises(UserError, match="/demo: holds the records of another run; choose another address"):
        open_mirror(run, target)
    place = Place(f"{target}/mine")
    place.write("notes.txt", b"mine")
    with pytest.raises(UserError, match="/mine: holds other files; choose another"):
        open_mirror(RunFolder.create(tmp_path / "mine"), target)


def test_a_run_that_was_renamed_keeps_its_mirror(run: RunFolder, target: str) -> None:
    open_mirror(run, target).send()
    renamed = RunFolder(run.path.rename(run.path.with_name("renamed")))
    assert open_mirror(renamed, target).address == f"{target}/demo"
    assert Claim.read(renamed).target == target


def test_a_manifest_that_grows_is_followed(run: RunFolder) -> None:
    folder = run.table("trials")
    follower = manifest.Follower(folder)
    assert follower.read() == manifest.read(folder)
    record(run, 7)
    assert follower.read() == manifest.read(folder)
    with (folder / manifest.NAME).open("a") as file:
        file.write('{"file": "half')
    before = manifest.read(folder)
    assert follower.read() == before
    record(run, 8)
    assert follower.read() == manifest.read(folder) != before
    assert json.loads((folder / manifest.NAME).read_text().splitlines()[0])["file"] == "part-empty.parquet"
