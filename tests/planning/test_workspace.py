from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.planning import (
    RULES,
    align_workspace,
    dense_workspace_rows,
    rule_for_vllm,
    sparse_workspace_rows,
    workspace_alignment,
)
from tests.planning.vectors import dcp_sizes, vectors


@pytest.mark.parametrize("row", vectors("align"), ids=str)
def test_alignment_equals_the_recorded_rows(row: dict[str, Any]) -> None:
    sizes = dcp_sizes(row)
    assert align_workspace(row["ws"], **sizes) == row["ge_028"]
    floor = 3 * workspace_alignment(**sizes)
    assert align_workspace(max(row["ws"], floor), **sizes) == row["main_regression_mns3"]


@pytest.mark.parametrize("row", vectors("dense"), ids=str)
@pytest.mark.parametrize(("rule", "key"), [("0.11", "le_0271"), ("pr-50484", "main_50484"), ("0.28", "ge_028")])
def test_dense_rows_equal_the_recorded_rows(row: dict[str, Any], rule: str, key: str) -> None:
    lengths = {"max_model_len": row["max_model_len"], "max_num_seqs": row["max_num_seqs"]}
    assert dense_workspace_rows(**lengths, **dcp_sizes(row), rule=rule) == row[key]


@pytest.mark.parametrize("row", vectors("sparse"), ids=str)
@pytest.mark.parametrize(("rule", "key"), [("0.11", "v026_0271"), ("0.28", "ge_028")])
def test_sparse_rows_equal_the_recorded_rows(row: dict[str, Any], rule: str, key: str) -> None:
    lengths = {"max_model_len": row["max_model_len"], "max_num_seqs": row["max_num_seqs"], "index_topk": row["topk"]}
    assert sparse_workspace_rows(**lengths, **dcp_sizes(row), rule=rule) == row[key]


# The two cases by which this rule is known: a large block, and the interleave that the regression multiplied.
@pytest.mark.parametrize(
    ("length", "block", "interleave", "rule", "rows"),
    [
        (1_048_576, 768, 1, "0.11", 786_432),
        (1_048_576, 768, 1, "0.28", 66_048),
        (163_840, 64, 64, "pr-50484", 524_288),
        (163_840, 64, 64, "0.28", 65_536),
    ],
)
def test_the_known_regressions(length: int, block: int, interleave: int, rule: str, rows: int) -> None:
    sizes = {"max_model_len": length, "max_num_seqs": 1024, "block_size": block, "dcp": 8, "interleave": interleave}
    assert dense_workspace_rows(**sizes, rule=rule) == rows


def test_the_oldest_rule_caps_at_twice_the_rows() -> None:
    sizes = {"max_model_len": 163_840, "max_num_seqs": 256, "block_size": 64}
    assert dense_workspace_rows(**sizes, rule="0.8") == 131_072
    assert dense_workspace_rows(**sizes, rule="0.11") == 65_536
    assert dense_workspace_rows(**sizes, rule="0.8", cap=65_536) == 65_536


SIZES = {
    "max_model_len": st.integers(1, 2_000_000),
    "max_num_seqs": st.integers(1, 4096),
    "block_size": st.integers(1, 2048),
    "dcp": st.integers(1, 16),
    "cap": st.integers(1, 300_000),
}


@given(**SIZES)
def test_the_newest_rule_is_the_least_aligned_size_and_grows_with_the_cap(
    max_model_len: int, max_num_seqs: int, block_size: int, dcp: int, cap: int
) -> None:
    sizes: dict[str, Any] = {
        "max_model_len": max_model_len,
        "max_num_seqs": max_num_seqs,
        "block_size": block_size,
        "dcp": dcp,
    }
    rows = dense_workspace_rows(**sizes, cap=cap)
    step = workspace_alignment(block_size=block_size, dcp=dcp)
    assert rows % step == 0
    assert rows % dcp == 0
    assert rows - step < cap
    assert rows <= dense_workspace_rows(**sizes, cap=cap + 1)
    for older in ("0.8", "0.11", "pr-50484"):
        assert (
            align_workspace(dense_workspace_rows(**sizes, cap=cap, rule=older), block_size=block_size, dcp=dcp) >= rows
        )


@given(**SIZES, index_topk=st.integers(1, 4096), rule=st.sampled_from(RULES))
def test_sparse_rows_never_exceed_dense_rows_once_aligned(
    max_model_len: int, max_num_seqs: int, block_size: int, dcp: int, cap: int, index_topk: int, rule: str
) -> None:
    sizes: dict[str, Any] = {
        "max_model_len": max_model_len,
        "max_num_seqs": max_num_seqs,
        "block_size": block_size,
        "dcp": dcp,
        "cap": cap,
    }
    sparse = sparse_workspace_rows(**sizes, index_topk=index_topk, rule=rule)
    dense = dense_workspace_rows(**sizes, rule=rule)
    assert align_workspace(sparse, block_size=block_size, dcp=dcp) <= align_workspace(
        dense, block_size=block_size, dcp=dcp
    )


@given(
    st.integers(1, 1_000_000),
    st.integers(1, 64).flatmap(lambda run: st.tuples(st.just(run), st.integers(1, 64).map(lambda n: n * run))),
    st.integers(2, 16),
)
def test_alignment_is_the_least_common_multiple(rows: int, run_and_block: tuple[int, int], dcp: int) -> None:
    run, block = run_and_block
    aligned = align_workspace(rows, block_size=block, dcp=dcp, interleave=run)
    step = math.lcm(block, dcp * run)
    assert aligned % step == 0
    assert 0 <= aligned - rows < step or aligned == step


@pytest.mark.parametrize(
    ("version", "rule"),
    [
        ("0.8.0", "0.8"),
        ("0.8.5.post1", "0.8"),
        ("0.10.2", "0.8"),
        ("0.11.0", "0.11"),
        ("v0.15.1", "0.11"),
        ("0.27.1", "0.11"),
        ("0.28.0rc1", "0.28"),
        ("0.31.0", "0.28"),
        ("0.32.0+cpu", "0.28"),
        ("1.0", "0.28"),
    ],
)
def test_every_version_has_its_rule(version: str, rule: str) -> None:
    assert rule_for_vllm(version) == rule


@pytest.mark.parametrize("version", ["0.7.3", "main", "", "0", "0.x"])
def test_an_unknown_version_is_refused(version: str) -> None:
    with pytest.raises(ValueError, match="version"):
        rule_for_vllm(version)


GOOD: dict[str, Any] = {"max_model_len": 4096, "max_num_seqs": 8, "block_size": 64, "dcp": 2, "interleave": 8}


@pytest.mark.parametrize("value", [0, -1, 2.5, True, "64", None])
@pytest.mark.parametrize("name", ["max_model_len", "max_num_seqs", "block_size", "dcp", "interleave", "cap"])
def test_a_bad_size_is_named(name: str, value: Any) -> None:
    if (name, value) == ("cap", None):
        return
    for size in (dense_workspace_rows, lambda **k: sparse_workspace_rows(index_topk=8, **k)):
        with pytest.raises(ValueError, match=f"{name} must be"):
            size(**{**GOOD, name: value})


def test_other_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="interleave must divide block_size"):
        align_workspace(100, block_size=64, dcp=2, interleave=48)
    with pytest.raises(ValueError, match="rows must be at least 1, got 0"):
        align_workspace(0, block_size=64)
    with pytest.raises(ValueError, match="index_topk must be at least 1, got 0"):
        sparse_workspace_rows(**GOOD, index_topk=0)
    with pytest.raises(ValueError, match=r"rule must be one of '0.8', .*, got '0.9'"):
        dense_workspace_rows(**GOOD, rule="0.9")


def test_the_interleave_is_free_without_context_parallelism() -> None:
    # vLLM does not look at it there, and a sweep may leave it at any value.
    assert align_workspace(100, block_size=64, interleave=48) == 128
