"""When the compiled loops are loaded, and what happens where their code cannot be kept."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numba  # type: ignore[import-untyped]
import pytest

from orchestrator.planning import warm_up
from orchestrator.planning.jit import compiled


def test_importing_loads_no_compiler_and_no_framework() -> None:
    code = (
        "import sys, orchestrator.planning, orchestrator.planning.memory\n"
        "print([name for name in ('numba', 'torch', 'vllm', 'ray') if name in sys.modules])\n"
        "orchestrator.planning.plan_prefill_chunks([5], [5], compress_ratio=1, window=1, area_limit=9)\n"
        "print('numba' in sys.modules, 'orchestrator.planning._optimal' in sys.modules)\n"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert printed.splitlines() == ["[]", "True False"]


def test_warming_up_loads_every_loop() -> None:
    warm_up()
    assert {f"orchestrator.planning.{name}" for name in ("_greedy", "_packing", "_optimal")} <= set(sys.modules)


def test_code_that_cannot_be_kept_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[bool] = []
    njit = numba.njit

    def njit_on_a_read_only_disk(signatures: list[str], cache: bool = False, **rest: Any) -> Any:
        tried.append(cache)
        if cache:
            raise RuntimeError("cannot cache function 'twice': no locator available for file '/read-only/x.py'")
        return njit(signatures, **rest)

    monkeypatch.setattr(numba, "njit", njit_on_a_read_only_disk)

    @compiled("(int64,)")
    def twice(value: int) -> int:
        return value * 2

    assert twice(21) == 42
    assert tried == [True, False]


def test_another_failure_of_the_compiler_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty_njit(signatures: list[str], cache: bool = False, **rest: Any) -> Any:
        raise RuntimeError("out of registers")

    monkeypatch.setattr(numba, "njit", faulty_njit)
    with pytest.raises(RuntimeError, match="out of registers"):
        compiled("(int64,)")(abs)
