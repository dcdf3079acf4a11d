"""The provoked failures: what is kept fits what is provoked, and one is provoked here."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from orchestrator.cluster.failure_table import CLASSES
from orchestrator.cluster.failures import classify
from tools.provoke.__main__ import CASES, MOST_LINES, provoke

KEPT = Path(__file__).resolve().parents[1] / "cluster" / "data" / "provoked_failures.jsonl"


def test_every_case_has_a_name_of_its_own_and_a_class() -> None:
    assert [name for name, count in Counter(case.name for case in CASES).items() if count > 1] == []
    assert {case.label for case in CASES} <= set(CLASSES)
    assert all(bool(case.script) != bool(case.command) for case in CASES)


def test_what_is_kept_is_of_these_cases_and_short() -> None:
    labels = {case.name: case.label for case in CASES}
    for line in KEPT.open():
        record = json.loads(line)
        assert record["label"] == labels[record["id"]]
        assert len(record["log"]) <= MOST_LINES


def test_a_full_disk_is_provoked_and_known() -> None:
    record = provoke(next(case for case in CASES if case.name == "dev-full"))
    assert record["exit_code"] == 1
    assert classify(record["log"], exit_code=1).label == "disk_full"
    assert any("/path/to/scratch/script.py" in line for line in record["log"])


def test_a_signal_is_an_exit_code_below_zero() -> None:
    record = provoke(next(case for case in CASES if case.name == "segfault"))
    assert record["exit_code"] == -11
    assert classify([], exit_code=-11).label == record["label"]
