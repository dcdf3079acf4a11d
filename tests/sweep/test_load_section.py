from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.search import Point
from orchestrator.sweep import SweepSpec
from orchestrator.sweep.load_section import numbers_of
from orchestrator.workloads import ClosedLoop, FixedLength, LongContext, PoissonArrivals, RandomTokens, UniformLength
from tests.sweep.studies import make_spec

NAMED: dict[str, Any] = {
    "workload": {"prompts": 2, "input_len": {"kind": "uniform", "low": 2000, "high": 3000}},
    "workloads": {"long": {"kind": "long_context", "prompts": 1, "input_len": 6000}},
    "load": {"kind": "poisson", "rate": 2.0},
    "loads": {"busy": {"concurrency": 8}},
}


@pytest.fixture
def spec() -> SweepSpec:
    return make_spec(**NAMED)


def test_without_load_knobs_it_is_the_specs_own(spec: SweepSpec) -> None:
    assert spec.block_workload() is spec.workload
    assert spec.block_workload({"mla_workspace_rows": 1, "workload": None, "workload.prompts": None}) is spec.workload
    assert spec.block_load() is spec.block_load({"max_num_seqs": 2}) is spec.load


def test_a_name_chooses_and_a_field_changes_one_value(spec: SweepSpec) -> None:
    assert isinstance(spec.workload, RandomTokens)
    changed = spec.block_workload({"workload.prompts": 7, "workload.input_len.high": 2500})
    assert changed == spec.workload.model_copy(update={"prompts": 7, "input_len": UniformLength(low=2000, high=2500)})
    fixed = spec.block_workload({"workload.input_len": 4096})
    assert isinstance(fixed, RandomTokens)
    assert fixed.input_len == FixedLength(tokens=4096)
    long = spec.block_workload({"workload": "long", "workload.prompts": 3})
    assert isinstance(long, LongContext)
    assert long == spec.workloads["long"].model_copy(update={"prompts": 3})
    assert spec.block_load({"load.rate": 4.5}) == PoissonArrivals(rate=4.5)
    assert spec.block_load({"load": "busy"}) == ClosedLoop(concurrency=8)
    assert spec.block_load({"load": "busy", "load.concurrency": 2}) == ClosedLoop(concurrency=2)


def test_a_value_that_the_field_does_not_take_is_refused(spec: SweepSpec) -> None:
    with pytest.raises(ValidationError):
        spec.block_load({"load.rate": -1.0})
    with pytest.raises(ValidationError):
        spec.block_workload({"workload.prompts": "many"})
    with pytest.raises(ValidationError):
        spec.block_workload({"workload.prompts.count": 3})
    with pytest.raises(KeyError):
        spec.block_load({"load": "quiet"})


def test_the_baseline_of_a_point_has_the_points_load() -> None:
    spec = make_spec(
        **NAMED,
        space__workload={"scope": "load", "values": ["long", None]},
        **{"space__load.rate": {"scope": "load", "values": [1, 2]}},
        baseline={"mla_workspace_rows": 128},
    )
    assert spec.baseline_point() == {"mla_workspace_rows": 128, "max_num_batched_tokens": None}
    point: Point = {"mla_workspace_rows": 256, "max_num_batched_tokens": 256, "workload": "long", "load.rate": 2}
    assert spec.baseline_at(point) == {**spec.baseline_point(), "workload": "long", "load.rate": 2}
    names = spec.search_space().names("load")
    assert names == ["workload", "load.rate"]


def test_fields_have_the_names_that_rules_use(spec: SweepSpec) -> None:
    found = dict(numbers_of("workload", spec.workload))
    assert (found["workload.prompts"], found["workload.input_len.low"]) == (2, 2000)
    assert "workload.input_len" not in found
    assert dict(numbers_of("workload", spec.block_workload({"workload.input_len": 9})))["workload.input_len"] == 9
    assert dict(numbers_of("load", spec.load))["load.rate"] == 2.0
