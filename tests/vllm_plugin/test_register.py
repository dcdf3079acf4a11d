"""What loading the plugin does to a process. Each case has a process of its own, for patches cannot be taken back: a
fork of one that has imported vLLM, which takes seconds."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from typing import Any

import pytest

PROGRAM = """
import importlib, importlib.metadata, json, os, sys
from pathlib import Path
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

def registered(breakage):
    exec(breakage)
    kept = current()
    register()
    after = current()
    register()
    again = current()
    from vllm.v1.engine.core import EngineCore
    return {
        "refused": PLUGIN.refused,
        "patched": sorted(path for path in kept if after[path] is not kept[path]),
        "patched again": sorted(path for path in kept if again[path] is not after[path]),
        "utilities": [name for name in vars(EngineCore) if name.startswith("chunksmith")],
    }

before = current()
for name, breakage in json.loads(sys.argv[2]).items():
    child = os.fork()
    if child == 0:
        os.dup2(os.open(Path(sys.argv[1], f"{name}.log"), os.O_WRONLY | os.O_CREAT), sys.stderr.fileno())
        Path(sys.argv[1], f"{name}.json").write_text(json.dumps(registered(breakage)))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, name
"""

BREAKAGES = {
    "nothing": "",
    "version": "importlib.metadata.version = lambda name: '0.33.0'",
    "symbol": "from vllm.v1.core.sched.scheduler import Scheduler; Scheduler.schedule = lambda self: None",
}

Registered = dict[str, tuple[dict[str, Any], str]]
"""By the name of what is broken: what the process says after it registered the plugin, and its log."""


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Registered:
    folder = tmp_path_factory.mktemp("registered")
    command = [sys.executable, "-c", PROGRAM, str(folder), json.dumps(BREAKAGES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    logs = {name: (folder / f"{name}.log").read_text() for name in BREAKAGES if (folder / f"{name}.log").exists()}
    assert done.returncode == 0, (done.stderr, logs)
    return {name: (json.loads((folder / f"{name}.json").read_text()), logs[name]) for name in BREAKAGES}


def test_vllm_finds_the_plugin() -> None:
    (entry,) = [e for e in importlib.metadata.entry_points(group="vllm.general_plugins") if e.name == "chunksmith"]
    assert entry.value == "orchestrator.vllm_plugin:register"
    assert callable(entry.load())


def test_a_known_vllm_is_patched_once(registered: Registered) -> None:
    said, _ = registered["nothing"]
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
    ("broken", "names"),
    [
        ("version", ["vLLM 0.33.0"]),
        ("symbol", ["vLLM 0.32", "vllm.v1.core.sched.scheduler.Scheduler.schedule"]),
    ],
)
def test_any_other_vllm_is_left_alone_and_the_log_says_why(
    registered: Registered, broken: str, names: list[str]
) -> None:
    said, log = registered[broken]
    assert said["patched"] == said["utilities"] == []
    lines = [line for line in log.splitlines() if "chunksmith: not patching" in line]
    assert lines
    for name in names:
        assert name in said["refused"]
        assert all(name in line for line in lines)
