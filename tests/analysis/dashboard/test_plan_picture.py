"""The picture of a trial's plan: what the records say of the block, planned anew."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest

from orchestrator.analysis.dashboard.plan_picture import has_plan, plan_picture
from orchestrator.analysis.run_spec import RunSpec
from orchestrator.errors import ChunksmithError
from orchestrator.records import RunFolder, parse_object, read_table
from tests.analysis.dashboard.planned import engine, record
from tests.analysis.runs import Run

SHIPPED = Path(__file__).parents[3] / "results" / "data" / "cpu-demo"


def texts(svg: str) -> list[str]:
    return [one.text or "" for one in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def drawn(run: Run, trial: int) -> list[str]:
    provenance = json.loads(run.folder.provenance.read_text())
    return texts(plan_picture(run.folder, provenance, trial))


def listed(path: Path, trial: int) -> bool:
    """Whether the dashboard offers a picture of the trial."""
    run = RunFolder.open(path)
    rows = read_table(run.path, "trials").astype(object)
    row = rows.where(rows.notna(), None).set_index("trial", drop=False).loc[trial].to_dict()
    return has_plan(RunSpec.read(run.spec), parse_object(run.provenance.read_text(), where="provenance"), row)


def test_the_shipped_run_shows_what_its_engine_counted() -> None:
    run = RunFolder.open(SHIPPED)
    provenance = parse_object(run.provenance.read_text(), where="provenance")
    assert listed(SHIPPED, 4)
    lines = texts(plan_picture(run, provenance, 4))
    assert lines[0].startswith("Trial 4, planned anew by arithmetic: step 8 of its block")
    # 512 rows, steps of 1,024 tokens, a prompt of 8,192: step k has k 1,024 tokens of context.
    assert "At the point (workspace of 512 rows): 14 chunks, 7,168 rows, at most 512 a chunk" in lines
    assert "At the baseline (workspace of 65,536 rows): 1 chunk, 7,168 rows, at most 7,168 a chunk" in lines
    blocks = pd.read_parquet(SHIPPED / "blocks")
    mine = blocks[(blocks["trial"] == 4) & (blocks["phase"] == "search") & ~blocks["dropped"]]
    counted = mine.groupby("role")["context_chunks"].first()
    assert counted["candidate"] == sum(math.ceil(step * 1024 / 512) for step in range(1, 8))
    assert counted["baseline"] == 7


def test_chunks_by_area_are_drawn_for_the_layer_that_has_most(tmp_path: Path) -> None:
    lab = {"layers": {"swaonly": 1, "c4a": 2, "c128a": 1}, "window": 128, "launch_rows": 16384}
    run = Run(tmp_path / "run", space={"chunk_order": {"scope": "live", "values": ["batch", "fixed"]}})
    record(
        run,
        1,
        [300, 400, 200, 100],
        engine(resolved={"lab_config": lab}),
        candidate={"point": json.dumps({"prefill_area_limit": 1000, "chunk_order": "width"})},
        baseline={"point": json.dumps({"prefill_area_limit": None, "chunk_order": None})},
    )
    assert listed(run.path, 1)
    lines = drawn(run, 1)
    assert [line for line in lines if line.startswith("At ")] == [
        # Widths 125, 250, 375 and 500 of 100 to 400 tokens: two chunks of at most 1,000 rows.
        "At the point, c4a: 2 chunks, 1,500 rows, limit 1,000 a chunk",
        "At the baseline, c4a: 1 chunk, 2,000 rows, limit 12,800 a chunk",
    ]


def test_each_role_is_planned_with_what_its_own_engine_has(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    two_ranks = engine("engine-2", dcp=2, interleave=64)
    record(
        run,
        1,
        [2048],
        engine(),
        two_ranks,
        candidate={"workspace_rows": 256},
        baseline={"engine_id": "engine-2", "workspace_rows": 1024},
    )
    assert [line for line in drawn(run, 1) if line.startswith("At ")] == [
        "At the point (workspace of 256 rows): 4 chunks, 1,024 rows, at most 256 a chunk",
        # A rank gathers half of the 1,024 tokens.
        "At the baseline (workspace of 1,024 rows): 1 chunk, 512 rows, at most 512 a chunk",
    ]


def test_what_has_no_plan_has_no_picture(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    rows: dict[str, Any] = {"candidate": {"workspace_rows": 256}, "baseline": {"workspace_rows": 1024}}
    record(run, 1, [2048], **rows)
    assert listed(run.path, 1)
    for changes in ({"pairs": 0}, {"reused_from": "runs/a 3"}, {"engine_id": "engine-9"}, {"workspace_rows": None}):
        usual: dict[str, Any] = {"pairs": 1, "engine_id": "engine-1", "workspace_rows": 256}
        run.trial(1, **usual | changes)
        assert not listed(run.path, 1), changes
    other = Run(tmp_path / "other", space={"block_size": {"scope": "engine", "values": [16, 64]}})
    spec = other.folder.spec.read_text().replace("mla_workspace_rows:\n    scope", "max_num_seqs:\n    scope")
    other.folder.spec.write_text(spec)
    record(other, 1, [2048], **rows)
    assert not listed(other.path, 1)


def test_records_that_do_not_belong_together_are_one_line(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    rows: dict[str, Any] = {
        "candidate": {"workspace_rows": 256, "engine_id": "engine-7"},
        "baseline": {"workspace_rows": 1024},
    }
    record(run, 1, [2048], **rows)
    with pytest.raises(ChunksmithError, match="says nothing of engine-7, which ran trial 1"):
        drawn(run, 1)
