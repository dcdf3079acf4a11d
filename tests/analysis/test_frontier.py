"""Throughput against interactivity."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.analysis.frontier import frontier
from orchestrator.errors import ChunksmithError
from orchestrator.records import write_rows
from tests.analysis.runs import Run
from tests.records.rows import plain_row


def run_with(path: Path, operating: list[tuple[float, float]]) -> Run:
    """A run whose points have these (median TPOT in ms, output tokens per second)."""
    run = Run(path)
    rows = [
        plain_row(
            "blocks",
            phase="search",
            block=index,
            point=json.dumps({"k": index}),
            median_tpot_ms=tpot,
            output_throughput=output,
            output_throughput_per_gpu=output / 2,
            dropped=False,
        )
        for index, (tpot, output) in enumerate(operating)
    ]
    write_rows(run.path, "blocks", "all", rows)
    return run


@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from([5.0, 10.0, 20.0, 40.0]), st.sampled_from([1.0, 2.0, 3.0])), min_size=1))
def test_the_frontier_is_what_no_other_beats(
    tmp_path_factory: pytest.TempPathFactory, operating: list[tuple[float, float]]
) -> None:
    run = run_with(tmp_path_factory.mktemp("run") / "run", operating)
    for one in frontier(run.path):
        tpot, output = operating[one.point["k"]]
        beaten = any(t <= tpot and o >= output and (t, o) != (tpot, output) for t, o in operating)
        # Of equal points one is enough.
        assert not (one.on_frontier and beaten)
        assert one.on_frontier or beaten or operating.count((tpot, output)) > 1
        assert one.tokens_per_s_per_user == pytest.approx(1000 / tpot)
        assert one.tokens_per_s_per_gpu == pytest.approx(output / 2)


def test_a_price_per_hour_becomes_one_per_million_tokens(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", [(10.0, 2000.0)])
    (one,) = frontier(run.path, price_per_gpu_hour=3.6)
    # 1,000 tokens per second and GPU are 3.6 million an hour.
    assert one.price_per_mtok == pytest.approx(1.0)


def test_without_output_tokens_there_is_no_frontier(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.confirm(0, 0.5)
    with pytest.raises(ChunksmithError, match="measure with output_len above 1"):
        frontier(run.path)
