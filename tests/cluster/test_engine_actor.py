"""What every engine's actor imports when a sweep begins, and whom the driver asks for the facts of a node."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.cluster import RayEngine
from orchestrator.cluster.engine_actor import Home
from orchestrator.records import collect

HEAVY = ("optuna", "pandas", "pyarrow", "ray", "torch", "vllm")


def test_an_actor_imports_nothing_that_one_in_many_needs() -> None:
    code = (
        "import sys, orchestrator.cluster.engine_actor; print(*(name for name in sys.argv[1:] if name in sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", code, *HEAVY], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.split() == []


@pytest.mark.parametrize(
    ("node", "python", "is_asked"),
    [("here", sys.prefix, False), ("elsewhere", sys.prefix, True), ("here", "/another/python", True)],
)
def test_the_facts_of_a_node_are_the_drivers_own_only_on_its_node_with_its_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, node: str, python: str, is_asked: bool
) -> None:
    def answer(reference: str, timeout_s: float, phase: str) -> dict[str, Any]:
        return {"asked by": reference}

    monkeypatch.setattr(Home, "here", lambda: Home(1, "here", sys.prefix))
    engine = RayEngine(tmp_path)
    engine._home = Home(2, node, python)
    engine._actor = SimpleNamespace(facts=SimpleNamespace(remote=lambda: "actor"))
    monkeypatch.setattr(engine, "_get", answer)
    facts = engine._facts()
    if is_asked:
        assert facts == {"asked by": "actor"}
    else:
        assert facts["versions"] == collect()["versions"]
