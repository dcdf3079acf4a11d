"""What every test can use."""

from __future__ import annotations

import dataclasses
import importlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from orchestrator.models import tiny_model

# One thread: on a machine that does other work too, two OpenMP threads spend their time waiting for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

# A shell has its background jobs ignore Ctrl-C, and their children inherit that: some tests would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine may pause any example for longer than hypothesis' deadline allows.
settings.register_profile("chunksmith", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
# `make test` draws the same examples every time; `make soak` looks for new ones.
settings.load_profile(os.environ.get("CHUNKSMITH_HYPOTHESIS", "chunksmith"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For ``pytest -n 3 --dist loadgroup``: one group for the tests that start an engine or Ray, so that there is one
    at a time; it is the longest and goes first. Its worker mostly waits, hence three for two cores. Then those that
    need vLLM in their own process, so that one worker imports it. The others go by file, whose fixtures are then made
    once."""
    groups = {item: _group(item) for item in items}
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: {"engine": 0, "vllm": 1}.get(groups[item], 2))


def _group(item: pytest.Item) -> str:
    if item.get_closest_marker("engine") or item.get_closest_marker("ray"):
        return "engine"
    if item.get_closest_marker("vllm") or "vllm_originals" in getattr(item, "fixturenames", ()):
        return "vllm"
    return item.nodeid.partition("::")[0]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests that start an engine or Ray must not run beside each other, which nothing else would show."""
    if hasattr(item.config, "workerinput") and "@" not in item.nodeid:
        pytest.fail("pytest-xdist did not group the tests: this pytest is too new for it, or --dist is not loadgroup")


@pytest.fixture(scope="session")
def tiny_model_folder() -> Path:
    """Folder of the default tiny model, in the user's cache, as the demo sweep uses it."""
    return tiny_model()


@pytest.fixture(scope="module")
def vllm_originals() -> Iterator[pytest.MonkeyPatch]:
    """vLLM's own symbols during the test file, whoever patched them before in this process (vLLM loads the plugin when
    its argument parser is built); afterwards every symbol of the guard's table and the plugin's state as they were."""
    from orchestrator.vllm_plugin import guard
    from orchestrator.vllm_plugin.protocol import UTILITY_SCHEDULER_REPORT, UTILITY_SCHEDULER_RETUNE
    from orchestrator.vllm_plugin.state import PLUGIN, SCHEDULER, WORKER

    with pytest.MonkeyPatch.context() as patch:
        for symbol in guard.symbols_of(guard.LAST_KNOWN):
            holder: Any = importlib.import_module(symbol.module)
            *outer, name = symbol.name.split(".")
            for part in outer:
                holder = getattr(holder, part)
            patch.setattr(holder, name, _vllms_own(vars(holder)[name]))
        engine_core = importlib.import_module("vllm.v1.engine.core").EngineCore
        for name in (UTILITY_SCHEDULER_REPORT, UTILITY_SCHEDULER_RETUNE):
            patch.setattr(engine_core, name, None, raising=False)
        for state in (PLUGIN, WORKER, SCHEDULER):
            for field in dataclasses.fields(state):
                patch.setattr(state, field.name, field.default)
        yield patch


def _vllms_own(value: Any) -> Any:
    """A symbol without our wrappers."""
    if isinstance(value, (staticmethod, classmethod)):
        return type(value)(_vllms_own(value.__func__))
    while "vllm_plugin" in getattr(getattr(value, "__code__", None), "co_filename", ""):
        value = value.__wrapped__
    return value
