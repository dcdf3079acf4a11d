from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from orchestrator.errors import ChunksmithError
from orchestrator.records import RunFolder, SoakRecord, soak_path

PASSED = SoakRecord(
    study="demo",
    trial=7,
    point={"mla_workspace_rows": 256},
    passed=True,
    rounds=1,
    blocks=5,
    seconds=2.5,
    lost_engines=0,
    batches=["normal load", "full cache"],
    serve_args=["org/model", "--max-num-seqs", "4"],
    env={"NOTE": "a b"},
)
FAILED = dataclasses.replace(
    PASSED,
    passed=False,
    batch="full cache",
    why="so",
    lengths=[[16, 4], [8, 4]],
    load={"kind": "all_at_once"},
    seed=2**62 + 1,
    vocab_size=1000,
    failure="cuda-oom",
    detail="out of memory",
    engine_log="x.log",
)


@pytest.mark.parametrize("record", [PASSED, FAILED])
def test_what_is_written_is_read(tmp_path: Path, record: SoakRecord) -> None:
    run = RunFolder.create(tmp_path / "run")
    path = record.write(run.path)
    assert path == soak_path(run.path, 7) == run.path / "soak" / "trial-00007.json"
    found = SoakRecord.read(run.path, 7)
    assert found is not None
    assert json.loads(json.dumps(dataclasses.asdict(found))) == json.loads(json.dumps(dataclasses.asdict(record)))
    assert found.seed == record.seed
    assert SoakRecord.read(run.path, 8) is None


def test_a_later_record_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run")
    FAILED.write(run.path)
    PASSED.write(run.path)
    found = SoakRecord.read(run.path, 7)
    assert found is not None
    assert found.passed
    assert [path.name for path in (run.path / "soak").iterdir()] == ["trial-00007.json"]


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "soak").write_text("in the way")
    with pytest.raises(ChunksmithError, match="soak: cannot make the folder: File exists"):
        PASSED.write(tmp_path)
