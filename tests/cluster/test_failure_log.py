"""A log as the table of failures reads it."""

from __future__ import annotations

import pytest

from orchestrator.cluster.failure_log import GAP, NEAR, FailureLog, Span, squeeze
from orchestrator.cluster.failure_table import Level

MESSAGE = "RuntimeError: it is gone"


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "(EngineCore_DP0 pid=34) ",
        "(RayWorkerWrapper pid=7, ip=10.0.0.1) ",
        "(raylet) ",
        "\x1b[36m(Worker_TP1 pid=9)\x1b[0m ",
        "#033[2m#033[33m(raylet)#033[0m ",
        "[rank0]: ",
        "ERROR 06-30 13:53:19 [core.py:515] ",
        "ERROR 11-25 08:17:34 multiproc_worker_utils.py:229] ",
        "2024-12-19 21:40:35 ",
        "2024-06-25T16:32:00.563Z ",
        "[2025-04-27 02:52:27,217 E 376235 377651] ",
        "[rank2]:[E626 23:10:17.921506443 ProcessGroupNCCL.cpp:1896] ",
        "vllm-1  | (APIServer pid=1) ",
        "Aug 17 18:42:18 host vllm[8052]: (APIServer pid=8052) ",
        "INFO 2025-11-19T20:16:36.096Z [resource.labels.containerName: vllm] (EngineCore pid=2) ",
        "E       ",
        "> ",
    ],
)
def test_what_stands_in_front_is_taken_off(prefix: str) -> None:
    assert FailureLog([prefix + MESSAGE]).lines[0].message.strip() == MESSAGE
    assert FailureLog([prefix + MESSAGE]).lines[0].text == prefix + MESSAGE


@pytest.mark.parametrize(
    ("line", "level", "marked"),
    [
        ("INFO 11-30 12:00:00 [loggers.py:1] gone", Level.INFO, False),
        ("WARNING 11-30 12:00:00 [ray_utils.py:1] gone", Level.WARNING, False),
        ("2026-11-30 12:00:00,1\tWARNING worker.py:2037 -- gone", Level.WARNING, False),
        ("[2026-11-30 12:00:00,1 W 1 2] gone", Level.WARNING, False),
        ("[2026-11-30 12:00:00,1 C 1 2] gone", Level.ERROR, True),
        ("ERROR 11-30 12:00:00 [core.py:1] gone", Level.ERROR, True),
        ("gone", Level.ERROR, False),
    ],
)
def test_the_level_of_a_line(line: str, level: Level, marked: bool) -> None:
    read = FailureLog([line]).lines[0]
    assert (read.level, read.marked) == (level, marked)


def test_a_dump_of_a_configuration_is_information() -> None:
    log = FailureLog(["ERROR 11-30 12:00:00 [dump_input.py:1] Dumping input data of it"], dumps=("Dumping input",))
    assert log.lines[0].level == Level.INFO


def test_a_phrase_is_found_across_lines_and_led_back_to_them() -> None:
    log = FailureLog(["nothing", "ValueError: No avail", "able  memory for the `cache` blocks.", "nothing"])
    (span,) = log.find("No available memory for the cache blocks")
    assert [*log.line_numbers(span)] == [1, 2]


def test_a_star_is_a_gap_of_a_limited_length() -> None:
    assert FailureLog(["a begin" + "x" * GAP + "end"]).has("begin * end")
    assert not FailureLog(["a begin" + "x" * (GAP + 1) + "end"]).has("begin * end")


def test_a_number_is_above_zero() -> None:
    assert FailureLog(["12 Workers killed"]).has("<n> Workers killed")
    assert not FailureLog(["0 Workers killed"]).has("<n> Workers killed")


def test_the_ends_of_a_line() -> None:
    assert FailureLog(["MemoryError"]).has("^MemoryError")
    assert not FailureLog(["torch.OutOfMemoryError"]).has("^MemoryError")
    assert FailureLog(["x", "Killed", "y"]).has("^Killed$")
    assert not FailureLog(["Killed workers"]).has("^Killed$")


def test_near_is_near() -> None:
    log = FailureLog(["errno 28", "x" * (NEAR + 1), "/dev/shm"])
    (span,) = log.find("errno 28")
    assert not log.has("/dev/shm", span)
    assert log.has("errno 28", Span(span.end, span.end))
    again = FailureLog(["errno 28", "x" * (NEAR + 1), "/dev/shm", "x" * (NEAR + 1), "errno 28", "errno 28"])
    assert [again.has("/dev/shm", span) for span in again.find("errno 28")] == [False, False, False]
    assert [again.has("errno 28", span) for span in again.find("/dev/shm")] == [False]
    close = FailureLog(["errno 28", "x" * (NEAR + 1), "/dev/shm", "x" * NEAR, "errno 28"])
    assert [close.has("/dev/shm", span) for span in close.find("errno 28")] == [False, True]
    assert [close.has("errno 28", span) for span in close.find("/dev/shm")] == [True]


def test_advice_is_taken_out_and_harmless_lines_are_known() -> None:
    log = FailureLog(
        ["If out of memory, wait", "leaked 2", "out of memory"], advice=("If out of memory",), harmless=("leaked",)
    )
    assert [[*log.line_numbers(span)] for span in log.find("out of memory")] == [[2]]
    assert (log.advised, log.harmless) == ({0}, {1})


def test_a_traceback_that_is_ignored_is_taken_out_up_to_its_exception() -> None:
    lines = ["Ignored in moon", "Traceback (most recent call last):", "OSError: a moon", "OSError: a sun"]
    log = FailureLog(lines, ignored=("Ignored in",))
    assert [log.has(phrase) for phrase in ("a moon", "a sun")] == [False, True]
    assert log.harmless == {0, 1, 2}
    cut = FailureLog([*lines[:2], "a moon"], ignored=("Ignored in",))
    assert cut.has("a moon")
    assert cut.harmless == {0, 1, 2}


def test_squeezing_leaves_letters_and_signs() -> None:
    assert squeeze("The model's `max` seq\tlen\n(4)") == "themodelsmaxseqlen(4)"
