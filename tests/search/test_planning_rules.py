from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import UserError
from orchestrator.planning.constraints import CONSTRAINTS, violations
from orchestrator.planning.memory import GIB, Gpu, fits
from orchestrator.planning.models import MODELS
from orchestrator.planning.shape import EngineShape
from orchestrator.search import Expression, RuleError, parse
from orchestrator.search.planning_rules import ENGINE_NAMES, NAMED_SETS, constraints_rule, memory_rule, require_known

V3 = MODELS["deepseek-v3"]

points = st.fixed_dictionaries(
    {
        "tensor_parallel_size": st.sampled_from([4, 6, 8]),
        "decode_context_parallel_size": st.sampled_from([None, 1, 2, 8]),
        "cp_kv_cache_interleave_size": st.sampled_from([None, 1, 16, 48]),
        "block_size": st.sampled_from([16, 64, 128]),
        "attention_backend": st.sampled_from([None, "CUTLASS_MLA", "FLASHINFER_MLA", "CPU_MLA", "FLASH_ATTN_MLA"]),
        "kv_cache_dtype": st.sampled_from(["auto", "fp8"]),
        "max_num_seqs": st.sampled_from([16, 4096]),
        "max_num_batched_tokens": st.sampled_from([1024, 8192]),
        "gpu_memory_utilization": st.sampled_from([0.5, 0.92, 0.998, 1.5]),
        "mla_workspace_rows": st.sampled_from([None, 1024]),
    }
)


def shape_of(point: dict[str, Any]) -> EngineShape:
    return EngineShape(model=V3, **{ENGINE_NAMES[name]: value for name, value in point.items() if value is not None})


def test_every_constraint_belongs_to_a_set() -> None:
    assert set(itertools.chain(*NAMED_SETS.values())) == {rule.name for rule in CONSTRAINTS}


def test_every_field_of_the_shape_has_a_name_or_is_not_an_argument() -> None:
    fields = set(EngineShape.__dataclass_fields__)
    own = {"model", "vllm", "rule", "num_ubatches", "num_lanes", "direct_dcp", "max_image_tokens"}
    assert set(ENGINE_NAMES.values()) == fields - own


@given(point=points)
def test_the_sets_break_where_planning_breaks(point: dict[str, Any]) -> None:
    rule = constraints_rule([*NAMED_SETS], V3, point, where="spec")
    expected = {broken.name for broken in violations(shape_of(point))}
    reason = rule.broken(point)
    assert (reason is None) == (not expected)
    assert reason is None or reason.partition(":")[0] in expected
    assert {member.name for member in rule.members if member.broken(point) is not None} == expected
    # Once more, from what is remembered.
    assert rule.broken(point) == reason


@given(point=points)
def test_memory_breaks_where_planning_says_that_it_does_not_fit(point: dict[str, Any]) -> None:
    sizes: dict[str, float | Expression] = {
        "total_bytes": 80.0,
        "weights_bytes": parse("300 / tensor_parallel_size"),
        "other_bytes": 2.0,
    }
    gpu = Gpu(total_bytes=80 * GIB, weights_bytes=int(300 / point["tensor_parallel_size"] * GIB), other_bytes=2 * GIB)
    rule = memory_rule(V3, sizes, point)
    verdict = fits(shape_of(point), gpu)
    assert rule.broken(point) == (None if verdict.serves else verdict.reasons[0])
    judged = memory_rule(V3, sizes, point, judged=[constraint.name for constraint in CONSTRAINTS])
    expected = None if violations(shape_of(point)) or verdict.serves else verdict.reasons[0]
    assert judged.broken(point) == expected


def test_an_engine_that_starts_and_cannot_serve_its_worst_batch_is_ruled_out() -> None:
    point = {"tensor_parallel_size": 4, "gpu_memory_utilization": 0.998, "max_num_seqs": 16, "block_size": 64}
    gpu = Gpu(total_bytes=80 * GIB, weights_bytes=60 * GIB)
    verdict = fits(shape_of(point), gpu)
    assert verdict.starts
    assert not verdict.serves
    rule = memory_rule(V3, {"total_bytes": 80.0, "weights_bytes": 60.0}, point)
    assert rule.broken(point) == verdict.reasons[0]


def test_what_does_not_vary_is_not_read() -> None:
    known = {"tensor_parallel_size": 8, "block_size": 64, "max_num_seqs": 8, "max_num_batched_tokens": 64}
    rule = constraints_rule(["vllm-dcp"], V3, ["decode_context_parallel_size", "unrelated"], where="spec")
    assert rule.reads == {"decode_context_parallel_size"}
    assert rule.broken({**known, "decode_context_parallel_size": 3, "unrelated": 1}) is not None
    assert rule.broken({**known, "decode_context_parallel_size": 4, "unrelated": 1}) is None


def test_an_unknown_set_is_a_mistake_with_the_nearest_name() -> None:
    with pytest.raises(UserError, match=r"spec: unknown set of constraints 'vllm-dpc'; did you mean 'vllm-dcp'\?"):
        constraints_rule(["vllm-dpc"], V3, [], where="spec")
    assert [member.name for member in constraints_rule(["heads-divide-tp"], V3, [], where="s").members] == [
        "heads-divide-tp"
    ]


def test_a_size_that_is_no_number_of_gib_is_an_error() -> None:
    for text, message in (("tensor_parallel_size < 4", "gives True"), ("0 - tensor_parallel_size", "gives -2")):
        rule = memory_rule(V3, {"total_bytes": 80.0, "weights_bytes": parse(text)}, ["tensor_parallel_size"])
        with pytest.raises(RuleError, match=f"constraints.memory.weights_gib: .* {message}"):
            rule.broken({"tensor_parallel_size": 2, "block_size": 64})


def test_arguments_that_vllm_would_choose_have_to_be_given() -> None:
    require_known({"block_size", "max_num_seqs", "max_num_batched_tokens", "x"}, where="w")
    with pytest.raises(UserError, match=r"w: needs block_size under engine\.args"):
        require_known({"max_num_seqs", "max_num_batched_tokens"}, where="w")
