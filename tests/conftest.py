"""What every test can use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from orchestrator.models import tiny_model

# One thread: on a machine that does other work too, two OpenMP threads spend their time waiting for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

# A busy machine may pause any example for longer than hypothesis' deadline allows.
settings.register_profile("chunksmith", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
# `make test` draws the same examples every time; `make soak` looks for new ones.
settings.load_profile(os.environ.get("CHUNKSMITH_HYPOTHESIS", "chunksmith"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For ``pytest -n 2 --dist loadgroup``: one group for the tests that start an engine or Ray, so that there is one
    at a time; it is the longest and goes first. The others go by file, whose fixtures are then made once."""
    for item in items:
        alone = item.get_closest_marker("engine") or item.get_closest_marker("ray")
        item.add_marker(pytest.mark.xdist_group("engine" if alone else item.nodeid.partition("::")[0]))
    items.sort(key=lambda item: item.get_closest_marker("engine") is None and item.get_closest_marker("ray") is None)


@pytest.fixture(scope="session")
def tiny_model_folder() -> Path:
    """Folder of the default tiny model, in the user's cache, as the demo sweep uses it."""
    return tiny_model()
