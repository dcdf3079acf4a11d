"""The heartbeat: what its page holds, and that it is renewed."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cluster.heartbeat import BEAT_EVERY_S, Beat, Heartbeat
from orchestrator.engines import Progress

COUNTS = st.integers(0, 2**62)
BEATS = st.builds(
    Beat,
    at_s=st.floats(1e-6, 1e9),
    since_s=st.floats(0.0, 1e9),
    phase=st.sampled_from(["start", "idle", "retune", "block", "stop"]),
    is_alone=st.booleans(),
    kind=COUNTS,
    sent=COUNTS,
    ended=COUNTS,
    chunks=COUNTS,
)


@given(BEATS)
def test_a_beat_comes_out_of_its_page_as_it_went_in(beat: Beat) -> None:
    assert Beat.unpacked(beat.packed()) == beat


def test_there_is_no_beat_before_the_first(tmp_path: Path) -> None:
    assert Beat.read(tmp_path / "none.beat") is None
    (tmp_path / "torn.beat").write_bytes(b"\0")
    assert Beat.read(tmp_path / "torn.beat") is None


def test_it_beats_and_counts_from_the_beginning_of_a_phase(tmp_path: Path) -> None:
    progress, beaten = Progress(sent=5, ended=5, chunks=90), threading.Semaphore(0)
    path = tmp_path / "engine.beat"
    heart = Heartbeat(path, progress, is_alone=False, each=beaten.release)
    assert one(path).phase == "idle"
    with heart.during("block", 7):
        begun = one(path)
        assert (begun.phase, begun.kind, begun.in_flight, begun.is_alone) == ("block", 7, 0, False)
        progress.sent, progress.chunks = 7, 91
        # The second beat began after the counts had changed.
        for _ in range(2):
            assert beaten.acquire(timeout=10 * BEAT_EVERY_S)
        later = one(path)
        assert (later.sent, later.ended, later.chunks, later.in_flight) == (2, 0, 1, 2)
        assert later.since_s == begun.since_s
        assert begun.at_s < later.at_s <= time.monotonic()
    assert (one(path).phase, one(path).kind, one(path).sent) == ("idle", 0, 0)


def one(path: Path) -> Beat:
    beat = Beat.read(path)
    assert beat is not None
    return beat
