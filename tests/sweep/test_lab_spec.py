"""Specs whose engine is the kernel lab."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.search import serve_command
from orchestrator.sweep import load_spec
from tests.sweep.studies import content
from tests.sweep.test_spec_file import error_of, written

V4 = {"c4a": 1}
ARGS = {"layers": {"dense": 1}, "max_model_len": 8192, "max_num_batched_tokens": 1024, "max_num_seqs": 4}


def lab(**changes: Any) -> dict[str, Any]:
    """A spec of the lab; ``a__b=1`` changes key ``b`` under ``a``."""
    spec = content(**{"engine": {"kind": "kernel_lab", "args": dict(ARGS)}, **changes})
    if spec["model"] == "org/model":
        del spec["model"]
    return spec


def test_a_lab_needs_no_model_and_has_no_command(tmp_path: Path) -> None:
    spec = load_spec(written(tmp_path, lab()))
    assert spec.model == "kernel-lab"
    assert load_spec(written(tmp_path, spec.to_yaml())) == spec
    base = spec.engine_config()
    assert base.args["chunk_order"] == "batch", "every default of the lab is known before it starts"
    assert serve_command(base, {"mla_workspace_rows": 256, "max_num_batched_tokens": 512}) == ([], {})


def test_an_order_is_a_live_knob_with_the_values_that_the_lab_has(tmp_path: Path) -> None:
    space = {"chunk_order": {"scope": "live", "values": [None, "width", "fixed"]}}
    spec = load_spec(written(tmp_path, lab(engine__args__layers=V4, space=space, baseline={"chunk_order": "optimal"})))
    assert spec.search_space().names("live") == ["chunk_order"]
    assert spec.baseline_point() == {"chunk_order": "optimal"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"engine__kind": "kernel-lab", "model": "org/other"},
            "engine.kind: should be 'vllm', 'vllm_serve' or 'kernel_lab', got 'kernel-lab'",
        ),
        ({"model": "tiny-mla"}, "model: the kernel lab has no model: leave it out; got 'tiny-mla'"),
        ({"tiny_model": {"layers": 2}}, "tiny_model: the kernel lab has no model: leave it out; got {'layers': 2}"),
        (
            {"engine__args__layer": {}},
            "engine.args: unknown argument of the kernel lab 'layer'; did you mean 'layers'?",
        ),
        ({"engine__args__layers": {}}, "engine.args: layers: "),
        ({"engine__args__layers": {"c3a": 1}}, "engine.args: unknown kind of layer 'c3a'; did you mean"),
        ({"engine__args__heads": 0}, "engine.args: heads: "),
        ({"engine__plugin": {"planner": "chunksmith"}}, "engine.plugin.planner: has no effect on the kernel lab"),
        (
            {"engine__plugin": {"cpu_chunked_prefill": True}},
            "engine.plugin.cpu_chunked_prefill: has no effect on the kernel lab",
        ),
        ({"space__head": {"scope": "engine", "values": [2]}}, "space: unknown knob 'head'; did you mean 'heads'?"),
        (
            {"space__heads": {"scope": "live", "values": [2]}},
            "space.heads.scope: must be engine; live is possible for chunk_order, long_prefill",
        ),
        ({"space__heads": {"scope": "engine", "values": [2, -1]}}, "space.heads: heads: "),
        (
            {"engine__args__layers": V4, "space": {"chunk_order": {"scope": "live", "values": ["batch", "widths"]}}},
            "space.chunk_order: unknown chunk order 'widths'; did you mean 'width'? Allowed: batch, fixed, optimal",
        ),
        (
            {
                "engine__args__layers": V4,
                "space": {"chunk_order": {"scope": "live", "values": ["width"]}},
                "baseline": {"chunk_order": 3},
            },
            "baseline.chunk_order: unknown chunk order '3'",
        ),
        (
            {"engine__args__layers": V4},
            "space.mla_workspace_rows: needs dense or sparse layers; engine.args.layers has c",
        ),
        (
            {"space__chunk_order": {"scope": "live", "values": ["width"]}},
            "space.chunk_order: needs DeepSeek-V4 layers; engine.args.layers has dense",
        ),
        (
            {"space__max_num_seqs": {"scope": "live", "values": [4, 5]}},
            "space.max_num_seqs: 5 is above 4, the value under engine",
        ),
        (
            {
                "engine__args__layers": V4,
                "space": {"prefill_chunk_size": {"scope": "live", "values": [4, 5]}},
            },
            "space.prefill_chunk_size: 5 is above 4, the value under engine",
        ),
        # The lab's own defaults count as well.
        (
            {"engine": {"kind": "kernel_lab", "args": {"layers": {"dense": 1}}}, "workload__input_len": 16_384},
            "workload: 16385 tokens of input and output exceed max_model_len 16384",
        ),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    found = error_of(written(tmp_path, lab(**changes)))
    assert found.startswith(message), found


def test_vllm_has_no_order(tmp_path: Path) -> None:
    found = error_of(written(tmp_path, content(space__chunk_order={"scope": "live", "values": ["width"]})))
    assert found.startswith("space: unknown knob 'chunk_order'")
    assert error_of(written(tmp_path, content(model="kernel-lab"))).startswith("model: 'kernel-lab' does not exist")
