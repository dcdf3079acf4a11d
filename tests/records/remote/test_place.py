"""Whole objects in storages of each kind, and what goes wrong with them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from orchestrator.errors import UserError
from orchestrator.records.remote import Place, RemoteError


def test_objects_come_back_as_they_were_put(any_target: str, tmp_path: Path) -> None:
    place = Place(any_target)
    assert place.names() == set()
    assert place.read("a/b") is None
    place.write("a/b", b"one")
    place.write("a/b", b"two")
    place.write("c", b"")
    assert place.names() == {"a/b", "c"}
    assert (place.read("a/b"), place.read("c")) == (b"two", b"")
    assert place.fetch({"a/b", "c", "gone"}, tmp_path / "copy") == {"gone"}
    assert (tmp_path / "copy" / "a" / "b").read_bytes() == b"two"
    place.remove({"a/b", "gone"})
    assert place.names() == {"c"}


def test_objects_of_a_folder_beside_are_not_taken_for_its_own(target: str) -> None:
    Place(f"{target}/demo-2").write("x", b"")
    assert Place(f"{target}/demo").names() == set()


def test_what_another_process_wrote_shows(any_target: str) -> None:
    one, other = Place(any_target), Place(any_target)
    one.write("a", b"1")
    assert other.names() == {"a"}
    one.write("b", b"1")
    assert other.names() == {"a", "b"}


def test_a_bucket_that_is_not_there(bucket: str) -> None:
    place = Place(f"{bucket}-gone/runs")
    with pytest.raises(RemoteError, match=f"^{bucket}-gone/runs: .*bucket") as error:
        place.write("a", b"1")
    assert error.value.is_refusal


@pytest.mark.parametrize(
    ("address", "module", "advice"),
    [
        ("s3://bucket/x", "s3fs", r"pip install 'chunksmith\[s3\]'"),
        ("gs://bucket/x", "gcsfs", "pip install gcsfs"),
        ("file:///x", "fsspec", "pip install fsspec"),
    ],
)
def test_a_driver_that_is_missing(address: str, module: str, advice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # fsspec keeps the drivers that it has found.
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, address.partition(":")[0], raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=f"^{address}: its driver is missing: {advice}$"):
        Place(address)


def test_half_a_file_never_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(f"file://{tmp_path}/there")
    place.write("a", b"whole")

    def faulty_replace(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", faulty_replace)
    with pytest.raises(RemoteError, match="No space left"):
        place.write("a", b"other")
    assert place.read("a") == b"whole"
    assert place.names() == {"a"}
