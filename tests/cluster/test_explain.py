"""An engine's log explains its failure: class, lines that decided, remedy, and whether another try is worth it."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.cluster.explain import TAIL_BYTES, VAGUE, explained, read_tail
from orchestrator.cluster.failure_table import CLASSES
from orchestrator.cluster.guard import note_verdict, verdict_of
from orchestrator.engines import EngineError, RequestTimeline
from tests.cluster.failure_lines import AFTER, LINES

DIED = "ActorDiedError: The actor died unexpectedly before finishing this task."
HEALTHY = ("INFO 11-30 12:00:00 [loggers.py:100] Engine 000: Avg prompt throughput: 9.0 tokens/s, Running: 8 reqs",)
VERDICT = "2026-11-30T12:00:00.000 engine-1 chunksmith watchdog: process 7 (python) was stopped for 5 s (state T)"


def of(
    log: tuple[str, ...],
    label: str = "engine-start",
    *,
    lost: bool = False,
    is_start: bool = True,
    said: str = "it failed",
) -> EngineError:
    error = EngineError(label, said, lost=lost, log_path="e.log")
    return explained(error, log, is_start=is_start, exception=said)


def test_a_cause_in_the_log_becomes_class_evidence_and_remedy() -> None:
    error = of((*LINES["kv_cache_too_small"], *AFTER))
    assert (error.label, error.lost, error.log_path) == ("kv-cache-too-small", False, "e.log")
    assert "To serve at least one request" in error.detail
    assert CLASSES["kv_cache_too_small"].remedy in error.detail
    assert "\n" not in error.detail


def test_what_is_worth_another_try_is_lost() -> None:
    assert of(LINES["gpu_memory_busy_at_start"]).lost
    assert not of(LINES["nccl_timeout_or_error"]).lost
    assert of(LINES["nccl_timeout_or_error"], "engine-dead", lost=True, is_start=False).lost
    # A cause that comes again is not tried again, though the engine is gone.
    assert not of(LINES["workspace_locked"], "engine-dead", lost=True, is_start=False).lost


def test_a_log_that_says_nothing_changes_nothing() -> None:
    for label, lost in (("engine-error", False), ("hang", True), ("ray", True)):
        error = of(HEALTHY, label, lost=lost, is_start=False, said="no answer for 1800 s in phase block")
        assert (error.label, error.lost) == (label, lost)


def test_a_label_that_names_its_cause_stays() -> None:
    error = of(LINES["gpu_oom_load"], "plugin-refused")
    assert (error.label, error.detail) == ("plugin-refused", "it failed")


def test_a_dead_actor_is_that_and_a_cause_in_its_log_goes_before() -> None:
    died = of(HEALTHY, "ray-actor-died", lost=True, said=DIED)
    assert (died.label, died.lost) == ("ray-actor-died", True)
    node = of((), "ray-actor-died", lost=True, said=f"{DIED} The actor died because its node has died.")
    assert (node.label, node.lost) == ("node-lost", True)
    oom = of(LINES["host_oom"], "ray-actor-died", lost=True, said=DIED)
    assert (oom.label, oom.lost) == ("host-oom", False)


def test_the_watchdogs_verdict_is_a_hang_unless_the_log_has_a_cause() -> None:
    hung = of((*HEALTHY, "", VERDICT), "ray-actor-died", lost=True, is_start=False, said=DIED)
    assert (hung.label, hung.lost, hung.detail) == ("hang", True, "process 7 (python) was stopped for 5 s (state T)")
    caused = of((*LINES["cuda_illegal_memory_access"], VERDICT), "ray-actor-died", lost=True, is_start=False, said=DIED)
    assert caused.label == "cuda-illegal-memory-access"
    assert caused.detail.endswith("; hang: process 7 (python) was stopped for 5 s (state T)")


def test_timelines_are_kept() -> None:
    error = EngineError("engine-dead", "gone", lost=True)
    error.partial = [
        RequestTimeline(
            index=0,
            prompt_tokens=1,
            output_tokens=0,
            cached_tokens=0,
            arrival_s=0.0,
            send_s=0.0,
            first_token_s=None,
            end_s=None,
            token_times_s=[],
            output_token_ids=[],
        )
    ]
    better = explained(error, LINES["worker_segfault"], is_start=False, exception="gone")
    assert (better.label, better.partial) == ("worker-segfault", error.partial)


def test_the_vague_labels_are_no_classes_of_causes() -> None:
    causes = {label.replace("_", "-") for label in CLASSES} - {"engine-dead", "ray-actor-died"}
    assert not causes & VAGUE


def test_a_verdict_is_found_where_it_was_written(tmp_path: Path) -> None:
    log = tmp_path / "e.log"
    log.write_text("Loading weights:  40%")
    note_verdict(str(log), "engine-1", "no token for 10 s")
    assert verdict_of(read_tail(log)) == "no token for 10 s"
    assert verdict_of(["nothing"]) is None
    note_verdict("", "engine-1", "no token")
    note_verdict(str(tmp_path / "none" / "e.log"), "engine-1", "no token")


@pytest.mark.parametrize("size", [0, 10, 3 * TAIL_BYTES])
def test_the_end_of_a_log_is_read(tmp_path: Path, size: int) -> None:
    log = tmp_path / "e.log"
    log.write_bytes(b"\xff" * size + b"\nthe end\n")
    lines = read_tail(log)
    assert lines[-1] == "the end"
    assert sum(map(len, lines)) <= TAIL_BYTES
    assert read_tail(tmp_path / "none.log") == []
