"""How the overhead benchmark splits time, and what it reads from a run's records."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import overhead
from benchmarks._engine_life import engine_lives
from benchmarks._lanes import Span, split
from orchestrator.errors import ChunksmithError
from orchestrator.records import RunFolder, write_rows
from tests.records.rows import plain_row

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def test_the_time_of_two_slots() -> None:
    # Slot one: 1 to 2, 2.5 to 3.5; slot two: 2 to 3, 3 to 4. Called at 0, back at 5.
    spans = [Span("a", 1.0, 2.0), Span("b", 2.0, 3.0), Span("a", 2.5, 3.5), Span("b", 3.0, 4.0)]
    found = split(0.0, 5.0, spans, 2, 1.0)
    assert found.work_s == 2.0
    assert found.start_s == pytest.approx(1.5)
    assert found.end_s == pytest.approx(1.25)
    assert found.between_s == pytest.approx(0.25)
    assert found.overhead == pytest.approx(1.5)
    assert found.steady == pytest.approx(0.125)


@given(data=st.data(), slots=st.integers(1, 4), each=st.integers(1, 5))
def test_the_parts_add_up(data: st.DataObject, slots: int, each: int) -> None:
    gap = st.floats(0.0, 0.4)
    spans, ends = [], []
    for slot in range(slots):
        at = 9.5 - data.draw(gap)
        for _ in range(each):
            spans.append(Span(slot, at, at + 1.0))
            at += 1.0 + data.draw(gap)
        ends.append(at)
    found = split(0.0, max(ends) + 1.0, spans, slots, 1.0)
    assert found.start_s + found.work_s + found.between_s + found.end_s == pytest.approx(found.whole_s)
    assert found.between_s >= -1e-9
    assert found.most == slots


def test_a_slot_without_a_trial_was_starting() -> None:
    found = split(0.0, 5.0, [Span("a", 1.0, 2.0), Span("a", 2.0, 3.0)], 2, 1.0)
    assert (found.start_s, found.work_s, found.end_s) == pytest.approx((3.0, 1.0, 1.0))
    assert found.most == 1


def test_a_process_that_was_replaced_had_the_same_slot() -> None:
    found = split(0.0, 5.0, [Span("a", 1.0, 2.0), Span("b", 2.5, 3.5)], 1, 1.0)
    assert (found.start_s, found.between_s, found.end_s, found.most) == (1.0, 0.5, 1.5, 1)


def test_more_processes_at_a_time_than_slots_are_no_figure() -> None:
    with pytest.raises(ValueError, match="2 processes ran at a time on 1 slots"):
        split(0.0, 5.0, [Span("a", 1.0, 2.0), Span("b", 1.5, 2.5)], 1, 1.0)


def recorded(folder: Path, trials: list[int], phase: str = "search") -> Path:
    """A run of engines that were warm at once and have two blocks of 2 s each for a trial, one after the other, with a
    second before and between them; those of one trial take turns."""
    run = RunFolder.create(folder)
    engines = [{"engine_id": f"e{number}", "warm_at": BEGIN.isoformat()} for number in range(len(trials))]
    run.provenance.write_text(json.dumps({"engines": engines, "processes": []}))
    for index, engine in enumerate(engines):
        turn_s = 6 * trials[:index].count(trials[index])
        rows = [
            plain_row(
                "blocks",
                engine_id=engine["engine_id"],
                phase=phase,
                trial=trials[index],
                block=2 * index + number,
                pair=number,
                started_at=BEGIN + timedelta(seconds=turn_s + 1 + 3 * number),
                duration_s=2.0,
            )
            for number in range(2)
        ]
        # The second block once more, as the baseline's greedy tokens are with every finalist.
        rows.append(rows[1] | {"trial": 99, "phase": "accuracy"})
        write_rows(run.path, "blocks", f"of-{engine['engine_id']}", rows)
    return run.path


def test_the_share_of_an_engines_life(tmp_path: Path) -> None:
    lives = engine_lives(recorded(tmp_path / "run", [0, 1]))
    assert [life.engine_id for life in lives] == ["e0", "e1"]
    for life in lives:
        assert life.life_s == pytest.approx(6.0)
        assert life.share == pytest.approx(4 / 6)
        assert list(life.by_phase.values()) == pytest.approx([4.0])


def test_engines_that_take_turns_are_no_figure(tmp_path: Path) -> None:
    with pytest.raises(ChunksmithError, match="its engines take turns"):
        engine_lives(recorded(tmp_path / "run", [0, 0]))


def test_the_two_engines_of_a_start_have_one_life(tmp_path: Path) -> None:
    [life] = engine_lives(recorded(tmp_path / "run", [0, 0], phase="confirm"))
    assert life.engine_id == "e0+e1"
    assert life.life_s == pytest.approx(12.0)
    assert life.share == pytest.approx(8 / 12)


def test_a_bound_that_is_missed_is_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = recorded(tmp_path / "run", [0])
    assert overhead.main(["--trials", "0", "--run", str(run)]) == 1
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["bounds"][0]["name"] == "e0, share of its life measuring"
    assert last["figures"]["engines"][0]["share"] == pytest.approx(4 / 6)
