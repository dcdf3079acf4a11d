from __future__ import annotations

import importlib
from typing import Any

import pytest

from orchestrator.vllm_plugin import guard

pytestmark = pytest.mark.vllm

TABLE = guard.symbols_of(guard.LAST_KNOWN)
FUNCTIONS = [symbol for symbol in TABLE if symbol.parameters is not None]


def holder_of(symbol: guard.Symbol) -> tuple[Any, str]:
    """The module or class that holds a symbol, and the symbol's name in it."""
    holder: Any = importlib.import_module(symbol.module)
    *outer, name = symbol.name.split(".")
    for part in outer:
        holder = getattr(holder, part)
    return holder, name


def pretend(monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    monkeypatch.setattr(guard, "installed_version", lambda: version)


def test_the_installed_vllm_is_known() -> None:
    report = guard.check()
    assert report.reason is None
    assert report.supported
    assert report.vllm_version is not None
    assert guard.parse_release(report.vllm_version) == (0, 32)


@pytest.mark.parametrize("version", ["0.27.1", "0.33.0", "0.33.0rc1+cpu", "1.0.0", "0.9.2", "dev"])
def test_an_unknown_release_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    pretend(monkeypatch, version)
    report = guard.check()
    assert not report.supported
    assert report.reason is not None
    assert f"vLLM {version}" in report.reason
    assert "0.28 to 0.32" in report.reason
    assert "\n" not in report.reason


def test_no_vllm_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, None)
    assert guard.check() == guard.GuardReport(None, False, "vLLM is not installed")


@pytest.mark.parametrize("symbol", TABLE, ids=lambda symbol: symbol.path)
def test_a_missing_symbol_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch, symbol: guard.Symbol) -> None:
    monkeypatch.delattr(*holder_of(symbol))
    report = guard.check()
    assert not report.supported
    assert report.reason is not None
    assert symbol.path in report.reason
    assert f"vLLM {report.vllm_version}" in report.reason
    assert "\n" not in report.reason


@pytest.mark.parametrize("symbol", FUNCTIONS, ids=lambda symbol: symbol.path)
def test_other_parameters_are_refused_with_both_lists(monkeypatch: pytest.MonkeyPatch, symbol: guard.Symbol) -> None:
    holder, name = holder_of(symbol)
    monkeypatch.setattr(holder, name, lambda something_else: None)
    report = guard.check()
    assert not report.supported
    assert report.reason is not None
    assert symbol.parameters is not None
    assert f"{symbol.path} takes (something_else), not ({', '.join(symbol.parameters)})" in report.reason


def test_one_parameter_more_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = importlib.import_module("vllm.v1.core.sched.scheduler").Scheduler

    def schedule(self: object, throttle_prefills: bool = False, budget: int = 0) -> None:
        return None

    monkeypatch.setattr(scheduler, "schedule", schedule)
    reason = guard.check().reason
    assert reason is not None
    assert "Scheduler.schedule takes (self, throttle_prefills, budget)" in reason


@pytest.mark.parametrize("minor", [28, 29, 30, 31, 32])
def test_a_symbol_has_one_signature_in_a_release(minor: int) -> None:
    paths = [symbol.path for symbol in guard.symbols_of((0, minor))]
    assert len(paths) == len(set(paths))


@pytest.mark.parametrize(
    ("release", "symbol", "last_parameter"),
    [
        ((0, 31), "_context_parallel_compute_prefill_context", "dcp_world_size"),
        ((0, 32), "_context_parallel_compute_prefill_context", "fused_mla_kv_concat_fn"),
        ((0, 29), "get_prefill_chunk_plan", "prefill_chunk_size"),
        ((0, 30), "get_prefill_chunk_plan", "has_compressed"),
    ],
)
def test_signatures_that_changed_between_releases(release: tuple[int, int], symbol: str, last_parameter: str) -> None:
    (found,) = [known for known in guard.symbols_of(release) if known.name.endswith(f".{symbol}")]
    assert found.parameters is not None
    assert found.parameters[-1] == last_parameter


def test_the_table_of_another_release_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sources are those of 0.32: under the name of 0.31 the guard must see the parameter that came with 0.32."""
    pretend(monkeypatch, "0.31.0")
    report = guard.check()
    assert report.reason is not None
    assert "_context_parallel_compute_prefill_context takes" in report.reason
    assert "fused_mla_kv_concat_fn" in report.reason


@pytest.mark.parametrize(
    ("text", "release"),
    [("0.32.0+cpu", (0, 32)), ("0.28.0rc1", (0, 28)), ("1.2", (1, 2)), ("main", None), ("", None), ("32", None)],
)
def test_release_of_a_version(text: str, release: tuple[int, int] | None) -> None:
    assert guard.parse_release(text) == release
