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


@pytest.fixture(scope="session")
def tiny_model_folder() -> Path:
    """Folder of the default tiny model, in the user's cache, as the demo sweep uses it."""
    return tiny_model()
