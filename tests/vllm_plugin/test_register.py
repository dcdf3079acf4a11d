"""What loading the plugin does to a process. Each test has a process of its own: patches cannot be taken back."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from typing import Any

import pytest

PROGRAM = """
import importlib, importlib.metadata, json, sys
from orchestrator.vllm_plugin import guard, register
from orchestrator.vllm_plugin.state import PLUGIN

def current():
    found = {}
    for symbol in guard.symbols_of(guard.LAST_KNOWN):
        holder = importlib.import_module(symbol.module)
        *outer, name = symbol.name.split(".")
        for part in outer:
            holder = getattr(holder, part)
        found[symbol.path] = vars(holder)[name]
    return found

before = current()
BREAK
kept = current()
register()
after = current()
register()
again = current()
from vllm.v1.engine.core import EngineCore
print(json.dumps({
    "refused": PLUGIN.refused,
    "patched": sorted(path for path in kept if after[path] is not kept[path]),
    "patched again": sorted(path for path in kept if again[path] is not after[path]),
    "utilities": [name for name in vars(EngineCore) if name.startswith("chunksmith")],
}))
"""


def registered(breakage: str = "") -> tuple[dict[str, Any], str]:
    """What a process says after it registered the plugin, and its log."""
    program = PROGRAM.replace("BREAK", breakage)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_vllm_finds_the_plugin() -> None:
    (entry,) = [e for e in importlib.metadata.entry_points(group="vllm.general_plugins") if e.name == "chunksmith"]
    assert entry.value == "orchestrator.vllm_plugin:register"
    assert callable(entry.load())


def test_a_known_vllm_is_patched_once() -> None:
    said, _ = registered()
    assert said["refused"] is None
    names = {path.rsplit(".", 1)[1] for path in said["patched"]}
    assert names == {
        "determine_chunked_prefill_workspace_size",
        "build_mla_chunked_context_metadata",
        "_compute_prefill_context",
        "_context_parallel_compute_prefill_context",
        "get_prefill_chunk_plan",
        "__init__",
        "schedule",
        "check_and_update_config",
    }
    assert said["patched again"] == []
    assert sorted(said["utilities"]) == ["chunksmith_scheduler_report", "chunksmith_scheduler_retune"]


@pytest.mark.parametrize(
    ("breakage", "names"),
    [
        ("importlib.metadata.version = lambda name: '0.33.0'", ["vLLM 0.33.0"]),
        (
            "from vllm.v1.core.sched.scheduler import Scheduler; Scheduler.schedule = lambda self: None",
            ["vLLM 0.32", "vllm.v1.core.sched.scheduler.Scheduler.schedule"],
        ),
    ],
)
def test_any_other_vllm_is_left_alone_and_the_log_says_why(breakage: str, names: list[str]) -> None:
    said, log = registered(breakage)
    assert said["patched"] == said["utilities"] == []
    lines = [line for line in log.splitlines() if "chunksmith: not patching" in line]
    assert lines
    for name in names:
        assert name in said["refused"]
        assert all(name in line for line in lines)
