"""The classes of failures: own lines, provoked logs, and the traps of reading a log."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.cluster.failure_table import CLASSES, GPU_OOM, RULES
from orchestrator.cluster.failure_table.frames import FRAMES
from orchestrator.cluster.failure_table.hints import HINTS
from orchestrator.cluster.failures import Failure, classify, trial_fields
from tests.cluster.failure_lines import AFTER, AT_LAST, LINES

ROOT = Path(__file__).resolve().parents[2]
PROVOKED = [json.loads(line) for line in Path(__file__).with_name("data").joinpath("provoked_failures.jsonl").open()]
PUBLIC = Path(os.environ.get("CHUNKSMITH_FAILURE_LOGS", ROOT.parent / "shared" / "data" / "failure-logs.jsonl"))
PHASE = {"gpu_oom_runtime": "serve"}


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


TRAPS: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "torch's OutOfMemoryError is the GPU's": ("gpu_oom_load", ["torch.OutOfMemoryError: XPU out of memory."], {}),
    "Ray's OutOfMemoryError is the host's": ("ray_host_oom", ["ray.exceptions.OutOfMemoryError: Task was killed"], {}),
    "no space in /dev/shm is no full disk": (
        "shm_too_small",
        ["OSError: [Errno 28] No space left on device: '/dev/shm/psm_1'"],
        {},
    ),
    "Ray counts nobody": (
        "ray_actor_died",
        [
            "(raylet) 0 Workers (tasks / actors) killed due to memory pressure (OOM), 2 Workers crashed due to "
            "other reasons"
        ],
        {},
    ),
    "advice on capture is no failure": (
        "none",
        [
            "INFO 11-30 12:00:00 [model_runner.py:1] Capturing cudagraphs. If out-of-memory error occurs "
            "during cudagraph "
            "capture, consider decreasing `gpu_memory_utilization`."
        ],
        {},
    ),
    "advice on an override is no out-of-bounds error": (
        "invalid_config",
        [
            "Value error, User-specified max_model_len (9) is greater than the derived max_model_len (8). Positions "
            "exceeding derived_max_model_len will cause a CUDA array out-of-bounds error."
        ],
        {},
    ),
    "an address in a prefix is no network failure": (
        "invalid_config",
        [
            "ValueError: [address=127.0.0.1:9, pid=3] User-specified max_model_len (9) is greater than the "
            "derived max_model_len"
        ],
        {},
    ),
    "an OOM inside a dead engine's message": (
        "gpu_oom_runtime",
        [
            "MQEngineDeadError: Engine loop is not running. Inspect the stacktrace: OutOfMemoryError('CUDA out "
            "of memory.')"
        ],
        {},
    ),
    "an OOM that never says so": (
        "gpu_oom_runtime",
        [
            'RuntimeError: torch_call_dispatcher( "aten::new_empty", "", stack.data()) API call failed at '
            "ops.h, line 939"
        ],
        {"phase": "serve"},
    ),
    "a port that was only tried": (
        "none",
        ["INFO 11-30 12:00:00 [utils.py:1] Port 8000 is already in use, trying port 8001"],
        {},
    ),
    "a silent minute while compiling": (
        "none",
        [LINES["hang_shm_broadcast"][0], "(APIServer pid=1) INFO:     Application startup complete."],
        {},
    ),
    "a refused request, although the engine goes on": (
        "bad_request_too_long",
        [
            "WARNING 11-30 12:00:00 [scheduler.py:1] Input prompt (9000 tokens) is too long and exceeds limit of 8192",
            'INFO:     10.0.0.1:4 - "POST /v1/completions HTTP/1.1" 200 OK',
        ],
        {},
    ),
    "a traceback that Python passes over": (
        "none",
        [
            "INFO 11-30 12:00:00 [core.py:1] done",
            "Exception ignored in: <function LLM.__del__ at 0x7f>",
            "Traceback (most recent call last):",
            '  File "/path/vllm/entrypoints/llm.py", line 1, in __del__',
            "AttributeError: 'NoneType' object has no attribute 'shutdown'",
        ],
        {},
    ),
    "an end that was asked for": (
        "none",
        ["INFO:     Shutting down", "Traceback (most recent call last):", "KeyboardInterrupt"],
        {},
    ),
    "an error that a configuration in a dump only seems to have": (
        "engine_dead",
        [
            "ERROR 11-30 12:00:00 [dump_input.py:72] Dumping input data for V1 LLM engine: CUDA out of memory",
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
        ],
        {},
    ),
    "a preempted request": (
        "none",
        [
            "WARNING 11-30 12:00:00 [scheduler.py:1] Sequence group 0 is preempted by PreemptionMode.RECOMPUTE "
            "mode because "
            "there is not enough KV cache space."
        ],
        {},
    ),
    "the phase tells one OOM from another": (
        "gpu_oom_profile",
        ["torch.OutOfMemoryError: CUDA out of memory."],
        {"phase": "profile"},
    ),
    "an unknown cause is not called a dead engine": (
        "unknown",
        ["KeyError: 'layers.0.moon'", "RuntimeError: Engine core initialization failed. See root cause above."],
        {},
    ),
    "new words for an old matter": (
        "unsupported_backend_or_dcp",
        ["NotImplementedError: MoonMLA has no support yet: DCP is unsupported by this attention backend"],
        {},
    ),
    "the place that raised it": (
        "quantization_or_kernel_unsupported",
        ['  File "/path/vllm/model_executor/layers/quantization/moon.py", line 3, in apply', "AssertionError"],
        {},
    ),
    "an exception while graphs are captured": (
        "cudagraph_capture_failed",
        [
            "Capturing CUDA graph shapes:  40%|####      | 14/35",
            "RuntimeError: a (50) must match b (56) at dimension 0",
        ],
        {},
    ),
    "an exception after graphs were captured": (
        "unknown",
        [
            "Capturing CUDA graph shapes: 100%|##########| 35/35",
            "INFO 11-30 12:00:00 [gpu_model_runner.py:1] Graph capturing finished in 9 secs",
            "RuntimeError: a (50) must match b (56) at dimension 0",
        ],
        {},
    ),
    "a signal without a word": ("worker_segfault", [], {"exit_code": -11}),
    "a bus error without a word": ("shm_too_small", [], {"exit_code": 135}),
    "SIGKILL does not say who sent it": ("engine_dead", ["loading"], {"exit_code": -9}),
    "an end in order": ("none", [], {"exit_code": 0}),
    "nothing at all": ("unknown", [], {}),
    "an exit code does not outdo a line": (
        "port_in_use",
        ["OSError: [Errno 98] Address already in use"],
        {"exit_code": -11},
    ),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_the_traps(trap: str) -> None:
    label, lines, how = TRAPS[trap]
    assert classify(lines, **how).label == label


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
    assert (lost["outcome"], lost["failure"]) == ("lost", "node_lost")
    failed = trial_fields(classify(LINES["kv_cache_too_small"]))
    assert failed["outcome"] == "failed"
    assert "\n" not in failed["failure_detail"]
    assert len(failed["failure_detail"]) <= 400


def test_the_table_speaks_of_classes_that_exist() -> None:
    named = {rule.label for rule in RULES} | {label for label, *_ in HINTS} | {label for _, label in FRAMES}
    assert named - {GPU_OOM} <= set(CLASSES)
    assert set(CLASSES) - {"none", "unknown", "gpu_oom_load", "gpu_oom_runtime"} <= named | {"gpu_oom_profile"}
    assert all(rule.source for rule in RULES)


def test_no_phrase_stands_twice() -> None:
    phrases = [(phrase, rule.strength, rule.needs) for rule in RULES for phrase in rule.phrases]
    assert [phrase for phrase, count in Counter(phrases).items() if count > 1] == []


def test_the_guide_lists_every_class() -> None:
    guide = (ROOT / "docs" / "how-to" / "failures.md").read_text()
    for kind in CLASSES.values():
        assert f"| `{kind.label}` | {kind.meaning} | {kind.remedy} |" in guide
    assert set(re.findall(r"^\| `(\w+)` \|", guide, re.MULTILINE)) == set(CLASSES)
