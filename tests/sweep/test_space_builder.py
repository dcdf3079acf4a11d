from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import UserError
from tests.sweep.studies import make_spec


def space_of(knobs: dict[str, Any], **changes: Any) -> Any:
    return make_spec(space={name: {"scope": "engine", **knob} for name, knob in knobs.items()}, **changes)


@given(low=st.integers(1, 40), span=st.integers(0, 200), others=st.lists(st.integers(1, 12), min_size=1, max_size=3))
def test_multiples_are_those_of_the_value_beside_them(low: int, span: int, others: list[int]) -> None:
    others = list(dict.fromkeys(others))
    spec = space_of(
        {
            "block_size": {"low": low, "high": low + span, "multiple_of": "cp_kv_cache_interleave_size"},
            "cp_kv_cache_interleave_size": {"values": others},
        }
    )
    points = spec.search_space().valid_points(1, seed=0)
    expected = {(value, other) for other in others for value in range(low, low + span + 1) if value % other == 0}
    found = {(point["block_size"], point["cp_kv_cache_interleave_size"]) for point in points}
    assert found == expected
    block = spec.search_space().knobs[0]
    assert set(block.values) == {value for value, _ in expected}


def test_a_multiple_of_what_vllm_chooses_is_not_judged() -> None:
    spec = space_of({"block_size": {"values": [10, 16], "multiple_of": "cp_kv_cache_interleave_size"}})
    assert len(spec.search_space().valid_points(1, seed=0)) == 2
    given = space_of(
        {"block_size": {"values": [10, 16], "multiple_of": "cp_kv_cache_interleave_size"}},
        engine__args__cp_kv_cache_interleave_size=8,
    )
    assert given.search_space().knobs[0].values == (16,)


def test_where_a_condition_fails_the_knob_is_at_its_start_and_points_are_one() -> None:
    spec = space_of(
        {
            "decode_context_parallel_size": {"values": [1, 2, 4]},
            "cp_kv_cache_interleave_size": {"values": [1, 16], "when": "decode_context_parallel_size > 1"},
        }
    )
    space = spec.search_space()
    points = [tuple(point.values()) for point in space.valid_points(1, seed=0)]
    assert points == [(1, None), (2, 1), (2, 16), (4, 1), (4, 16)]
    assert space.knobs[1].values == (1, 16, None)
    assert len(space.groups()) == 5


def test_rules_read_the_engines_start_its_environment_the_plugin_and_the_load() -> None:
    rules = [
        "mla_workspace_rows * block_size * VLLM_X * max_num_seqs * workload.input_len * load.concurrency "
        "* compilation_config.level != 0",
    ]
    spec = make_spec(
        constraints={"rules": rules},
        engine__args__block_size=2,
        engine__args__compilation_config={"level": 5},
        engine__env={"VLLM_X": "3", "VLLM_NAME": "x"},
        engine__plugin={"prefill_area_limit": 64},
    )
    space = spec.search_space()
    names = ("block_size", "VLLM_X", "max_num_seqs", "workload.input_len", "load.concurrency")
    assert [space.start[name] for name in names] == [2, 3, 4, 2048, 1]
    assert space.start["compilation_config.level"] == 5
    assert space.start["prefill_area_limit"] == 64
    assert space.start["VLLM_NAME"] == "x"
    assert "mla_workspace_rows" not in space.start
    assert space.rules[-1].broken(space.values_at({"mla_workspace_rows": 0})) is not None
    assert space.rules[-1].broken(space.values_at({"mla_workspace_rows": 1})) is None


def test_requests_beyond_a_steps_tokens_are_always_ruled_out() -> None:
    spec = make_spec(space={"max_num_seqs": {"scope": "engine", "values": [4, 2048]}})
    assert spec.search_space().valid_points(1, seed=0) == [{"max_num_seqs": 4}]


def test_the_labs_fixed_order_goes_without_an_area_limit() -> None:
    spec = make_spec(
        engine={"kind": "kernel_lab", "args": {"layers": {"c4a": 1}}},
        space={
            "prefill_area_limit": {"scope": "live", "values": [None, 1024]},
            "chunk_order": {"scope": "live", "values": ["batch", "fixed"]},
        },
    )
    points = [tuple(point.values()) for point in spec.search_space().valid_points(1, seed=0)]
    assert points == [(None, "batch"), (None, "fixed"), (1024, "batch")]


def test_the_tiny_model_has_a_shape_of_its_own() -> None:
    changes: dict[str, Any] = {"engine__args__block_size": 16, "constraints": {"use": ["heads-divide-tp"]}}
    space = {"tensor_parallel_size": {"scope": "engine", "values": [1, 2, 4]}}
    spec = make_spec(model="tiny-mla", tiny_model={"heads": 2}, space=space, **changes)
    assert [point["tensor_parallel_size"] for point in spec.search_space().valid_points(1, seed=0)] == [1, 2]
    with pytest.raises(UserError, match=r"constraints\.model: is missing"):
        make_spec(space=space, **changes).search_space()


def test_memory_takes_sizes_that_depend_on_the_point() -> None:
    spec = make_spec(
        space={"tensor_parallel_size": {"scope": "engine", "values": [4, 8, 16]}},
        engine__args__block_size=64,
        constraints={
            "model": "deepseek-v3",
            "memory": {"total_gib": 140, "weights_gib": "640 / tensor_parallel_size", "other_gib": 4},
        },
    )
    assert [point["tensor_parallel_size"] for point in spec.search_space().valid_points(1, seed=0)] == [8, 16]
