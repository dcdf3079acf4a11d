from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks._chunksmith_side import KNOB, ChunksmithRun, block_gaps, grid_spec, split_time
from benchmarks._vllm_side import VllmRun
from benchmarks.vs_vllm_bench_sweep import CAPS, require_in_force, spread
from orchestrator.errors import ChunksmithError
from orchestrator.sweep import SweepSpec

LAUNCHED = datetime(2026, 1, 1, tzinfo=UTC)
SECONDS = st.floats(min_value=0.001, max_value=100.0)


def _blocks(start: float, pieces: list[tuple[float, float]]) -> tuple[pd.DataFrame, float]:
    """Blocks in pairs, each with a length and a gap after it; and when the last gap ends."""
    rows, at = [], start
    for number, (length, gap) in enumerate(pieces):
        began = LAUNCHED + timedelta(seconds=at)
        rows.append({"trial": number // 2, "started_at": pd.Timestamp(began), "duration_s": length})
        at += length + gap
    return pd.DataFrame(rows), at


@given(start=SECONDS, pieces=st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=8), end=SECONDS)
def test_the_four_parts_are_what_they_say_and_add_up(
    start: float, pieces: list[tuple[float, float]], end: float
) -> None:
    blocks, told = _blocks(start, pieces)
    shuffled = blocks.sample(frac=1.0, random_state=0)
    split = split_time(LAUNCHED, told + end, shuffled, LAUNCHED + timedelta(seconds=told))
    # Timestamps hold microseconds.
    assert split.start_s == pytest.approx(start, abs=1e-5)
    assert split.measuring_s == pytest.approx(sum(length for length, _ in pieces), abs=1e-5)
    assert split.rest_s == pytest.approx(sum(gap for _, gap in pieces), abs=1e-4)
    assert split.end_s == pytest.approx(end, abs=1e-5)
    assert split.wall_s == pytest.approx(told + end, abs=1e-5)
    assert split.rest_share == pytest.approx(split.rest_s / split.measuring_s)


def test_gaps_inside_a_trial_are_told_from_those_between_trials() -> None:
    blocks, _ = _blocks(5.0, [(1.0, 0.010), (1.0, 0.030), (1.0, 0.012), (1.0, 0.050), (1.0, 0.014), (1.0, 9.0)])
    assert block_gaps(blocks) == pytest.approx({"in_trial": 12.0, "between_trials": 40.0}, abs=0.01)


@given(count=st.integers(min_value=2, max_value=len(CAPS)))
def test_a_grid_has_distinct_caps_and_both_ends(count: int) -> None:
    caps = spread(count)
    assert len(set(caps)) == count
    assert caps[0] == CAPS[0]
    assert caps[-1] == CAPS[-1]
    spec = SweepSpec.model_validate(grid_spec(caps, 6144))
    assert spec.space[KNOB].all_values() == caps
    assert spec.trials == count


@pytest.mark.parametrize("count", [1, len(CAPS) + 1])
def test_a_grid_of_another_size_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="points must be 2 to 16"):
        spread(count)


def _sides(**vllm: dict[int, int]) -> tuple[ChunksmithRun, VllmRun]:
    split = split_time(LAUNCHED, 10.0, *_only_block())
    ours = ChunksmithRun(
        split=split, engine_start_s=1.0, warm_up_s=1.0, block_s=1.0, gaps_ms={}, chunks={128: 120}, rows={128: 128}
    )
    figures = {"rows": {128: 128}, "chunks": {128: 120}, "input_tokens": {128: 6144}, **vllm}
    return ours, VllmRun(wall_s=80.0, run_s=1.0, **figures)


def _only_block() -> tuple[pd.DataFrame, datetime]:
    blocks, told = _blocks(5.0, [(1.0, 0.1)])
    return blocks, LAUNCHED + timedelta(seconds=told)


def test_equal_work_is_accepted() -> None:
    require_in_force(*_sides(), {128: 128}, 6144)


@pytest.mark.parametrize(
    ("vllm", "message"),
    [
        ({"rows": {128: 65536}}, "cap 128: vllm had 65536 workspace rows in force, not 128"),
        ({"chunks": {128: 5}}, "cap 128: chunksmith planned 120 context chunks, vllm 5"),
        ({"input_tokens": {128: 6000}}, "cap 128: vllm was sent 6000 tokens, not 6144"),
    ],
)
def test_unequal_work_is_refused(vllm: dict[str, dict[int, int]], message: str) -> None:
    with pytest.raises(ChunksmithError, match=message):
        require_in_force(*_sides(**vllm), {128: 128}, 6144)
