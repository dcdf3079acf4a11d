"""What the kernel lab counts, checked and recorded."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from orchestrator.engines.kernel_lab.counters import LabBlockResult, LabCounters, LabInForce
from orchestrator.engines.kernel_lab.roof import Roof
from orchestrator.measurement import MeasuredBlock, Role
from orchestrator.records import SCHEMAS
from orchestrator.search import Knob, Space
from orchestrator.sweep.knob_check import no_effect, not_in_force
from orchestrator.sweep.rows import PlacedBlock, block_row
from orchestrator.vllm_plugin import PluginSettings
from tests.sweep.test_knob_check import COUNTED, INFO, START

FORCE = LabInForce(**dataclasses.asdict(START))
ROOF = Roof(**{item.name: 8.0 for item in dataclasses.fields(Roof)})
COUNTERS = LabCounters(prefill_s=0.5, gather_s=0.25, attend_s=0.2, chunks=7, gather_bytes=10**9, flops=10**9, roof=ROOF)


def result(order: str = "batch", area_plans: int = 3, **force: Any) -> LabBlockResult:
    return LabBlockResult(
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        duration_s=1.0,
        requests=[],
        in_force=dataclasses.replace(FORCE, chunk_order=order, **force),
        counters=dataclasses.replace(COUNTED, area_plans=area_plans),
        lab=COUNTERS,
    )


def check(point: dict[str, Any], block: LabBlockResult) -> str | None:
    space = Space(tuple(Knob(name, "live", (value,)) for name, value in point.items()))
    info = dataclasses.replace(INFO, kind="kernel_lab", in_force=FORCE)
    return not_in_force(space, point, PluginSettings(), info, block)


def test_the_order_must_be_in_force() -> None:
    assert check({"chunk_order": "width"}, result("width")) is None
    assert check({"chunk_order": "width"}, result()) == "chunk_order: asked width, which gives width; in force is batch"
    assert check({"chunk_order": None}, result()) is None
    assert check({"chunk_order": None}, result("width")) is not None


def test_fixed_groups_are_planned_by_no_area() -> None:
    fixed = result("fixed", area_plans=0, prefill_area_limit=900, prefill_chunk_size=2)
    assert check({"chunk_order": "fixed", "prefill_chunk_size": 2}, fixed) is None, "it is the size of a group"
    assert check({"chunk_order": "fixed", "prefill_area_limit": None}, result("fixed", area_plans=0)) is None
    found = check({"chunk_order": "fixed", "prefill_area_limit": 900}, fixed)
    assert found == "prefill_area_limit: 900 limits no chunk: chunk_order is fixed"
    # In every other order the planner must have been called.
    for knob in ("prefill_area_limit", "prefill_chunk_size"):
        assert check({"chunk_order": "batch", knob: None}, result(area_plans=0)) is not None


@pytest.mark.parametrize(("ours", "theirs", "has_effect"), [("width", "batch", True), ("width", "width", False)])
def test_another_order_is_an_effect(ours: str, theirs: str, has_effect: bool) -> None:
    def placed(role: Role, order: str) -> PlacedBlock:
        block = MeasuredBlock(role=role, pair=0, dropped=False, seed=1, retune_s=0.0, result=result(order), metrics={})
        return PlacedBlock(block=block, info=INFO, point={"chunk_order": order})

    space = Space((Knob("chunk_order", "live", (ours, theirs)),))
    assert (no_effect(space, placed("candidate", ours), placed("baseline", theirs)) is None) is has_effect


def test_the_labs_numbers_are_columns() -> None:
    block = MeasuredBlock(
        role="baseline", pair=0, dropped=False, seed=1, retune_s=0.0, result=result("width"), metrics={}
    )
    row = block_row({}, "search", 0, block, engine_id="engine", point={})
    columns = {f"lab_{name}" for name in COUNTERS.columns()}
    assert columns == {name for name in SCHEMAS["blocks"].names if name.startswith("lab_")}
    assert row.keys() <= set(SCHEMAS["blocks"].names)
    assert (row["chunk_order"], row["lab_chunks"], row["lab_gather_gb_per_s"]) == ("width", 7, 4.0)
    assert json.loads(str(row["point"])) == {}
