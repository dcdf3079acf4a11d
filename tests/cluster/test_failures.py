"""The classes of failures: own lines, provoked logs, and the traps of reading a log."""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.cluster.explain import VAGUE
from orchestrator.cluster.failure_log import squeeze
from orchestrator.cluster.failure_table import CLASSES, GPU_OOM, RULES
from orchestrator.cluster.failure_table.frames import FRAMES
from orchestrator.cluster.failure_table.hints import HINTS
from orchestrator.cluster.failure_table.last_hints import LAST_HINTS
from orchestrator.cluster.failures import MOST_LINES, Failure, certain_labels, classify, recorded_label, trial_fields
from tests.cluster.failure_guises import GUISES
from tests.cluster.failure_lines import AFTER, AT_LAST, LINES
from tests.cluster.failure_places import PLACES
from tests.cluster.failure_traps import TRAPS
from tests.cluster.failure_words import WORDS

ROOT = Path(__file__).resolve().parents[2]
PROVOKED = [json.loads(line) for line in Path(__file__).with_name("data").joinpath("provoked_failures.jsonl").open()]
PUBLIC = Path(os.environ.get("CHUNKSMITH_FAILURE_LOGS", ROOT.parent / "shared" / "data" / "failure-logs.jsonl"))
PHASE = {"gpu_oom_runtime": "serve"}
CASES = GUISES | PLACES | TRAPS | WORDS


def of(record: dict[str, Any]) -> Failure:
    return classify(record["log"], phase=record["phase"], exit_code=record.get("exit_code"))


@pytest.mark.parametrize("label", sorted(CLASSES))
def test_every_class_is_known_by_a_line(label: str) -> None:
    found = classify(LINES[label], phase=PHASE.get(label))
    assert found.label == label
    assert set(found.evidence) <= set(LINES[label])


@pytest.mark.parametrize("label", sorted(set(CLASSES) - AT_LAST))
def test_what_others_say_afterwards_does_not_decide(label: str) -> None:
    assert classify((*LINES[label], *AFTER), phase=PHASE.get(label)).label == label


@settings(max_examples=40)
@given(
    label=st.sampled_from(sorted(set(CLASSES) - {"unknown"})),
    width=st.integers(60, 200),
    dressed=st.sampled_from(["{}", "\x1b[36m(RayWorkerWrapper pid=7, ip=10.0.0.2)\x1b[0m {}", "vllm-1  | {}", "{}\r"]),
)
def test_wrapping_and_prefixes_change_nothing(label: str, width: int, dressed: str) -> None:
    """A terminal wraps in the middle of words, and whoever collects logs puts something in front."""
    wrapped = [line[at : at + width] for line in LINES[label] for at in range(0, len(line), width)]
    assert classify([dressed.format(line) for line in wrapped], phase=PHASE.get(label)).label == label


@settings(max_examples=60)
@given(st.lists(st.text(max_size=80), max_size=20), st.sampled_from([None, "start", "serve"]))
def test_any_text_has_a_class(lines: list[str], phase: str | None) -> None:
    assert classify(lines, phase=phase).label in CLASSES


def test_at_least_60_provoked_logs_are_called_by_their_names() -> None:
    """Each was made on purpose, so its class is known; `python -m tools.provoke` made them."""
    assert len(PROVOKED) >= 60
    wrong = {record["id"]: of(record).label for record in PROVOKED if of(record).label != record["label"]}
    assert len(wrong) <= 0.02 * len(PROVOKED), wrong


def test_a_healthy_log_is_never_a_failure_and_few_logs_are_unknown() -> None:
    healthy = [record for record in PROVOKED if record["label"] == "none"]
    assert healthy
    assert {of(record).label for record in healthy} == {"none"}
    assert Counter(of(record).label for record in PROVOKED)["unknown"] <= 0.05 * len(PROVOKED)


def test_the_public_logs_are_called_by_their_names() -> None:
    if not PUBLIC.exists():
        pytest.skip(f"no public failure logs at {PUBLIC}; CHUNKSMITH_FAILURE_LOGS names another file")
    records = [json.loads(line) for line in PUBLIC.open()]
    assert len(records) >= 73
    # Tier C: the deciding line is outside the excerpt.
    wrong = {
        record["id"]: found
        for record in records
        if record["tier"] != "C" and (found := of(record).label) not in {record["label"], *record.get("alt_labels", ())}
    }
    assert wrong == {}
    assert {of(record).label for record in records if record["label"] == "none"} == {"none"}


def test_the_public_logs_come_again_as_they_are_noted() -> None:
    if not PUBLIC.exists():
        pytest.skip(f"no public failure logs at {PUBLIC}; CHUNKSMITH_FAILURE_LOGS names another file")
    for record in map(json.loads, PUBLIC.open()):
        found = of(record)
        if found.label == record["label"] and record["deterministic"] != "unknown":
            assert found.deterministic in {record["deterministic"], None}, record["id"]


@pytest.mark.parametrize("trap", CASES)
def test_the_traps(trap: str) -> None:
    label, lines, how = CASES[trap]
    assert classify(lines, **how).label == label


def test_no_trap_stands_twice() -> None:
    assert len(CASES) == len(GUISES) + len(PLACES) + len(TRAPS) + len(WORDS)


@pytest.mark.parametrize(
    "line",
    [
        "INFO 11-30 12:00:00 [core.py:1] OSError: [Errno 28] No space left on device: '/dev/shm/moon'",
        "Exception ignored in: <function Moon.__del__ at 0x7f>",
    ],
)
def test_a_line_that_comes_again_and_again_is_read_quickly(line: str) -> None:
    begin = time.process_time()
    classify([line] * MOST_LINES)
    assert time.process_time() - begin < 2.0


def test_the_first_cause_of_an_exception_counts() -> None:
    error = RuntimeError("the server did not start")
    error.__cause__ = OSError(98, "Address already in use")
    assert classify([], exception=error).label == "port_in_use"


def test_an_exception_is_known_by_its_module() -> None:
    class OutOfMemoryError(Exception):
        """Stands for Ray's, which cannot be made without Ray."""

    OutOfMemoryError.__module__, OutOfMemoryError.__qualname__ = "ray.exceptions", "OutOfMemoryError"
    assert classify([], exception=OutOfMemoryError("the node")).label == "ray_host_oom"


def test_the_argument_that_is_not_known_is_the_knob() -> None:
    assert classify(["vllm: error: unrecognized arguments: --mla-chunk-rows 9"]).knobs == ("mla_chunk_rows",)


def test_a_dead_engine_is_tried_again_only_if_it_had_served() -> None:
    assert not classify(LINES["engine_dead"], phase="start").retryable
    assert classify(LINES["engine_dead"], phase="serve").retryable


def test_a_failure_becomes_fields_of_a_trial() -> None:
    lost = trial_fields(classify(LINES["node_lost"]))
    assert (lost["outcome"], lost["failure"]) == ("lost", "node-lost")
    failure = classify(LINES["kv_cache_too_small"])
    failed = trial_fields(failure)
    assert (failed["outcome"], failed["failure"]) == ("failed", "kv-cache-too-small")
    assert "\n" not in failed["failure_detail"]
    assert failed["failure_detail"] == f"{failure.detail} (to do: {failure.remedy})"
    assert len(failure.detail) <= 400


def test_what_comes_again_is_certain() -> None:
    certain = certain_labels()
    assert {"kv-cache-too-small", "workspace-locked", "invalid-config", "host-oom"} <= certain
    assert not {"port-in-use", "node-lost", "gpu-oom-runtime", "engine-dead", "unknown", "none"} & certain


def test_the_table_speaks_of_classes_that_exist() -> None:
    named = (
        {rule.label for rule in RULES} | {label for label, *_ in (*HINTS, *LAST_HINTS)} | {label for _, label in FRAMES}
    )
    assert named - {GPU_OOM} <= set(CLASSES)
    assert set(CLASSES) - {"none", "unknown", "gpu_oom_load", "gpu_oom_runtime"} <= named | {"gpu_oom_profile"}
    assert all(rule.source for rule in RULES)


def test_no_phrase_stands_twice() -> None:
    phrases = [(phrase, rule.strength, rule.needs, rule.near) for rule in RULES for phrase in rule.phrases]
    assert [phrase for phrase, count in Counter(phrases).items() if count > 1] == []


def test_no_phrase_of_a_rule_holds_another_one() -> None:
    """The shorter one finds it too. Those with gaps, numbers or ends of lines are not compared."""
    plain = [[squeeze(phrase) for phrase in rule.phrases if not set("*<^$") & set(phrase)] for rule in RULES]
    held = [
        (shorter, longer)
        for phrases in plain
        for shorter in phrases
        for longer in phrases
        if shorter in longer != shorter
    ]
    assert held == []


def test_the_guide_lists_every_class() -> None:
    guide = (ROOT / "docs" / "how-to" / "failures.md").read_text()
    for kind in CLASSES.values():
        assert f"| `{recorded_label(kind.label)}` | {kind.meaning} | {kind.remedy} |" in guide
    listed, _, others = guide.partition("## What Chunksmith finds itself")
    assert set(re.findall(r"^\| `([\w-]+)` \|", listed, re.MULTILINE)) == set(map(recorded_label, CLASSES))
    assert set(re.findall(r"`([\w-]+)`", others)) >= VAGUE - set(map(recorded_label, CLASSES))
