"""``chunksmith sweep --storage``: where the study is kept, without its password anywhere. No test starts an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.cli import main
from orchestrator.cli.sweep import _open
from orchestrator.errors import UserError
from orchestrator.records import RunFolder
from orchestrator.records.store import Address, Place
from tests.sweep.studies import content

DATABASE = "postgresql://ann@db/studies"
WITH_PASSWORD = "postgresql://ann:s3cret@db/studies"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(**changes: Any) -> Path:
    Path("spec.yaml").write_text(yaml.safe_dump(content(**changes), sort_keys=False))
    return Path("spec.yaml")


@pytest.mark.parametrize("from_spec", [True, False])
def test_the_recorded_spec_has_no_password_and_the_sweep_has(from_spec: bool) -> None:
    spec = written(storage=WITH_PASSWORD) if from_spec else written()
    folder, resolved, _ = _open(spec, None, False, None, None if from_spec else WITH_PASSWORD)
    assert "s3cret" not in folder.spec.read_text()
    assert yaml.safe_load(folder.spec.read_text())["storage"] == DATABASE
    assert resolved.address().database_url() == "postgresql+psycopg://ann:s3cret@db/studies"
    # Resumed with the spec it is known again; without, the environment has to have it.
    again = _open(spec, folder.path, True, None, None if from_spec else WITH_PASSWORD)[1]
    assert again.address().database_url() == resolved.address().database_url()
    assert _open(None, folder.path, True, None, None)[1].storage == DATABASE


def test_a_database_that_was_moved_stays_where_it_was_found_last() -> None:
    folder, _, _ = _open(written(storage=DATABASE), None, False, None, None)
    moved = DATABASE.replace("@db", "@other")
    Place.settle(folder, Address.parse(DATABASE))
    assert _open(None, folder.path, True, None, moved)[1].storage == moved
    place = Place.settle(folder, Address.parse(moved))
    assert _open(None, folder.path, True, None, None)[1].storage == moved
    assert place.run == Place.read(RunFolder(folder.path)).run


@pytest.mark.parametrize("in_spec", [True, False])
def test_sqlite_is_refused_in_one_line_and_leaves_nothing(in_spec: bool, capsys: pytest.CaptureFixture[str]) -> None:
    bad = "sqlite:///study.db"
    spec = written(storage=bad) if in_spec else written()
    assert main(["sweep", str(spec), *([] if in_spec else ["--storage", bad])]) == 2
    where = "spec.yaml: storage" if in_spec else "--storage"
    assert capsys.readouterr().err.startswith(f"chunksmith: error: {where}: sqlite locks up when several processes")
    assert not Path("runs").exists()


def test_a_spec_that_names_another_storage_is_another_spec() -> None:
    folder, _, _ = _open(written(storage=DATABASE), None, False, None, None)
    with pytest.raises(UserError, match="storage: 'journal' differs from 'postgresql"):
        _open(written(), folder.path, True, None, None)
