"""The kernel lab as an engine: the contract, and what its knobs do to the path that it really runs."""

from __future__ import annotations

import itertools
import os
import pickle
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from orchestrator.engines import Engine, EngineConfig, EngineError, RequestTimeline
from orchestrator.engines.kernel_lab.counters import LabBlockResult
from orchestrator.engines.kernel_lab.engine import KernelLabEngine
from orchestrator.engines.kernel_lab.errors import LabError
from orchestrator.engines.testing import ONE_AT_A_TIME, EngineConformance
from orchestrator.vllm_plugin import PluginSettings
from orchestrator.workloads import Request, Schedule, random_requests
from tests.engines.kernel_lab.labs import TINY

ARGS: dict[str, Any] = {
    **TINY,
    "layers": {"dense": 1, "c4a": 1, "swaonly": 1},
    "max_model_len": 4096,
    "max_num_batched_tokens": 256,
    "max_num_seqs": 4,
    "block_size": 16,
}

NUMBERS = itertools.count()
"""Each engine has a name of its own, by which its threads are known."""


def requests(count: int, length: int, output_len: int = 1, seed: int = 7) -> list[Request]:
    return random_requests(count, input_len=length, output_len=output_len, seed=[seed], vocab_size=1024)


def started(folder: Path, plugin: PluginSettings | None = None, **args: Any) -> KernelLabEngine:
    engine = KernelLabEngine(f"lab-{next(NUMBERS)}", str(folder / "lab.log"))
    engine.start(EngineConfig(model="none", args={**ARGS, **args}, plugin=plugin or PluginSettings()))
    return engine


class TestKernelLabEngine(EngineConformance):
    folder: ClassVar[Path]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def logs(cls, tmp_path_factory: pytest.TempPathFactory) -> None:
        cls.folder = tmp_path_factory.mktemp("lab")

    @classmethod
    def make_engine(cls) -> KernelLabEngine:
        return KernelLabEngine(f"lab-{next(NUMBERS)}", str(cls.folder / "lab.log"))

    @classmethod
    def config(cls) -> EngineConfig:
        return EngineConfig(model="none", args=ARGS)

    @classmethod
    def spare_config(cls) -> EngineConfig:
        plugin = PluginSettings(mla_workspace_rows=100, prefill_chunk_size=3, prefill_area_limit=900)
        return EngineConfig(model="none", args={**ARGS, "long_prefill_token_threshold": 5}, plugin=plugin)

    @classmethod
    def leftovers(cls, engine: Engine) -> Collection[threading.Thread]:
        """The thread of an aborted block may still be in its last layer."""
        assert isinstance(engine, KernelLabEngine)
        for thread in computing(engine):
            thread.join(30.0)
        return computing(engine)


def computing(engine: KernelLabEngine) -> list[threading.Thread]:
    """Threads that compute for an engine."""
    return [thread for thread in threading.enumerate() if thread.name.startswith(f"{engine._engine_id}_")]


class TestSparseEngine(TestKernelLabEngine):
    """Its workspace is sized by the rule of sparse backends."""

    @classmethod
    def config(cls) -> EngineConfig:
        return EngineConfig(model="none", args={**ARGS, "layers": {"sparse": 2, "c4a": 1}, "index_topk": 200})


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KernelLabEngine]:
    engine = started(tmp_path_factory.mktemp("lab"))
    yield engine
    engine.stop()


def gap_where_different(baseline: RequestTimeline, other: RequestTimeline) -> float | None:
    """The baseline's gap at the first token in which two outputs differ; None when they are equal."""
    assert baseline.top2_gaps is not None
    outputs = zip(baseline.output_token_ids, other.output_token_ids, baseline.top2_gaps, strict=True)
    return next((gap for token, found, gap in outputs if token != found), None)


@pytest.mark.parametrize(
    "point",
    [
        {"mla_workspace_rows": 16},
        {"mla_workspace_rows": 256},
        {"prefill_area_limit": 100},
        {"chunk_order": "optimal"},
        {"chunk_order": "fixed", "prefill_chunk_size": 1},
        {"max_num_batched_tokens": 100},
    ],
)
def test_greedy_tokens_do_not_depend_on_the_point(lab: KernelLabEngine, point: dict[str, Any]) -> None:
    """Equal, or first different where the two best tokens were so close that rounding decides."""
    asked = requests(6, 500, output_len=4)
    baseline = lab.run(asked, Schedule(), top2=True).requests
    lab.retune(point)
    found = lab.run(asked, Schedule(), top2=True).requests
    lab.retune({})
    gaps = [gap_where_different(*pair) for pair in zip(baseline, found, strict=True)]
    assert gaps.count(None) >= 4, gaps
    assert all(gap is None or gap < 0.1 for gap in gaps), gaps


def test_other_prompts_give_other_tokens(lab: KernelLabEngine) -> None:
    outputs = lab.run(requests(8, 100, output_len=3), Schedule()).requests
    assert len({tuple(one.output_token_ids) for one in outputs}) == 8


@pytest.mark.parametrize("rows", [16, 64, 1024])
def test_context_chunks_are_those_of_arithmetic(lab: KernelLabEngine, rows: int) -> None:
    """One prompt in steps of 256: contexts of 256, 512, ... tokens, each in pieces of at most the workspace's rows."""
    lab.retune({"mla_workspace_rows": rows})
    block = lab.run(requests(1, 1500), ONE_AT_A_TIME)
    lab.retune({})
    contexts = range(256, 1500, 256)
    chunks = sum(-(-context // rows) for context in contexts)
    assert block.counters.context_chunks == chunks
    assert block.counters.workspace_entries == len(contexts)
    assert block.in_force.workspace_rows == rows
    assert block.in_force.workspace_bytes == rows * 48 * 2
    # Beside the dense layer's chunks, one for each of the six steps in each of the two others.
    assert block.lab.chunks == chunks + 12
    assert block.lab.workspace_peak_bytes < block.lab.workspace_reserved_bytes


def test_a_lower_area_limit_makes_more_chunks(lab: KernelLabEngine) -> None:
    asked = requests(4, 60)
    usual = lab.run(asked, Schedule())
    assert (usual.counters.area_plans > 0, usual.counters.area_limited) == (True, 0)
    lab.retune({"prefill_area_limit": 80})
    limited = lab.run(asked, Schedule())
    lab.retune({})
    assert limited.counters.area_limited == limited.counters.area_plans == 2
    assert limited.lab.chunks > usual.lab.chunks
    assert limited.lab.gathered_rows == usual.lab.gathered_rows
    assert limited.lab.flops == usual.lab.flops


def test_the_order_of_chunks_is_a_live_knob(lab: KernelLabEngine) -> None:
    asked = [*requests(2, 20), *requests(1, 120, seed=8), *requests(1, 20, seed=9)]
    assert lab.run(asked, Schedule()).in_force.chunk_order == "batch"
    seen = {}
    for order in ("width", "fixed"):
        lab.retune({"chunk_order": order, "prefill_area_limit": 300})
        block = lab.run(asked, Schedule())
        assert block.in_force.chunk_order == order
        seen[order] = block
    lab.retune({"chunk_order": None})
    assert lab.run(asked, Schedule()).in_force.chunk_order == "batch"
    assert seen["width"].counters.area_plans == 2
    assert seen["fixed"].counters.area_plans == 0
    assert seen["fixed"].lab.padded_rows > seen["width"].lab.padded_rows


def test_an_unknown_order_changes_nothing(lab: KernelLabEngine) -> None:
    before = lab.run(requests(1, 20), ONE_AT_A_TIME).in_force
    with pytest.raises(ValueError, match="chunk_order must be one of batch, width, optimal, fixed, got 'deep'"):
        lab.retune({"max_num_seqs": 1, "chunk_order": "deep"})
    assert lab.run(requests(1, 20), ONE_AT_A_TIME).in_force == before


def test_lab_counters_are_of_one_block_and_can_be_carried(lab: KernelLabEngine) -> None:
    block = lab.run(requests(2, 700), Schedule())
    counters = block.lab
    assert 0 < counters.gather_s + counters.attend_s <= counters.prefill_s < block.duration_s
    assert (counters.gather_gb_per_s or 0) > 0
    assert 0 < (counters.attend_gflop_per_s or 0) < counters.roof.gflop_per_s
    assert counters.columns()["launches"] == counters.launches > counters.chunks
    again = pickle.loads(pickle.dumps(block))
    assert isinstance(again, LabBlockResult)
    assert again == block
    idle = lab.run([], ONE_AT_A_TIME).lab
    assert (idle.chunks, idle.flops, idle.gather_gb_per_s, idle.attend_gflop_per_s) == (0, 0, None, None)


def test_requests_wait_for_blocks(tmp_path: Path) -> None:
    """20 blocks of 16 tokens hold one request of 200 tokens and no second."""
    engine = started(tmp_path, num_kv_blocks=20)
    block = engine.run(requests(3, 198, output_len=2), Schedule())
    assert [one.error for one in block.requests] == [None] * 3
    assert block.counters.max_running_requests == 1
    (too_long,) = engine.run(requests(1, 400), Schedule()).requests
    assert (too_long.error or "").startswith("too-long: 400 tokens of input and 1 of output, at most 320 fit")
    engine.stop()


def test_an_engine_of_deepseek_v4_alone_has_no_context_workspace(tmp_path: Path) -> None:
    engine = started(tmp_path, PluginSettings(mla_workspace_rows=64), layers={"c4a": 1})
    force = engine.run(requests(1, 600), ONE_AT_A_TIME).in_force
    assert (force.workspace_rows, force.workspace_bytes, force.builders) == (None, None, 0)
    engine.retune({"mla_workspace_rows": 32})
    engine.stop()


@pytest.mark.parametrize("kv_cache_dtype", ["auto", "fp8_ds_mla"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_dtypes_that_are_asked_for(tmp_path: Path, dtype: str, kv_cache_dtype: str) -> None:
    engine = KernelLabEngine(f"lab-{next(NUMBERS)}", str(tmp_path / "lab.log"))
    args = {**ARGS, "layers": {"c4a": 1}, "dtype": dtype, "kv_cache_dtype": kv_cache_dtype}
    info = engine.start(EngineConfig(model="none", args=args))
    assert info.resolved["lab_config"]["dtype"] == dtype
    roof = info.resolved["roof"]
    assert roof["gflop_per_s"] == roof[f"{dtype}_gflop_per_s"] > 0
    assert engine.run(requests(2, 300, output_len=2), Schedule()).requests[1].error is None
    engine.stop()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"layers": {"dens": 1}}, "lab-shape: unknown kind of layer 'dens'; did you mean 'dense'?"),
        ({"max_model_len": 2**50}, "out-of-memory: "),
        ({"device": "gpu"}, "lab-shape: device must be one that torch knows, got 'gpu'"),
    ],
)
def test_a_start_that_fails_is_one_line_and_leaves_nothing(tmp_path: Path, args: dict[str, Any], message: str) -> None:
    engine = KernelLabEngine(f"lab-{next(NUMBERS)}", str(tmp_path / "lab.log"))
    with pytest.raises(EngineError) as error:
        engine.start(EngineConfig(model="none", args={**ARGS, **args}))
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)
    assert not error.value.lost
    assert not computing(engine)
    with pytest.raises(EngineError, match="engine-dead"):
        engine.run([], ONE_AT_A_TIME)


@pytest.mark.parametrize(
    ("fault", "label"),
    [
        (LabError("workspace-locked", "injected"), "workspace-locked"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "out-of-memory"),
        (ZeroDivisionError("injected"), "engine-error"),
    ],
)
def test_a_step_that_fails_ends_the_engine_with_its_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception, label: str
) -> None:
    engine = started(tmp_path)
    assert engine._started is not None
    model = engine._started.model
    step, calls = model.step, 0

    def failing_step(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise fault
        return step(*args)

    monkeypatch.setattr(model, "step", failing_step)
    with pytest.raises(EngineError) as error:
        engine.run(requests(3, 400), ONE_AT_A_TIME)
    assert error.value.label == label
    assert not error.value.lost
    # Two steps served the first request; the second was being served.
    assert [one.error is None for one in error.value.partial] == [True, False, False]
    assert label in (tmp_path / "lab.log").read_text()
    with pytest.raises(EngineError, match="engine-dead"):
        engine.run([], ONE_AT_A_TIME)
    assert not computing(engine)


def test_a_write_beside_a_workspace_ends_the_engine(tmp_path: Path) -> None:
    engine = started(tmp_path)
    assert engine._started is not None
    manager = engine._started.model._manager
    (buffer,) = manager.get_simultaneous(((manager.current_bytes,), torch.uint8))
    torch.as_strided(buffer, (1,), (1,), buffer.storage_offset() + buffer.numel()).fill_(0)
    with pytest.raises(EngineError, match="workspace-overrun: bytes beside the buffer of lane 0 were overwritten"):
        engine.run(requests(1, 20), ONE_AT_A_TIME)
    with pytest.raises(EngineError, match="engine-dead"):
        engine.run([], ONE_AT_A_TIME)


def test_an_abort_is_felt_while_nothing_is_served(tmp_path: Path) -> None:
    engine = started(tmp_path)
    ended: list[EngineError] = []

    def serve() -> None:
        try:
            engine.run(requests(1, 20), Schedule(times_s=[60.0]))
        except EngineError as error:
            ended.append(error)

    serving = threading.Thread(target=serve)
    serving.start()
    deadline = time.monotonic() + 30
    while engine._block is None and time.monotonic() < deadline:
        serving.join(0.01)
    engine.abort()
    serving.join(30)
    assert not serving.is_alive()
    assert (ended[0].label, ended[0].lost) == ("engine-dead", True)


def test_a_block_that_was_ended_early_leaves_nothing_behind(lab: KernelLabEngine) -> None:
    """Blocks of requests that were given up in mid-flight come back: the next ones fit."""

    def stop(
        send_s: Sequence[float], first_token_s: Sequence[float], end_s: Sequence[float], now_s: float
    ) -> str | None:
        return "enough"

    for _ in range(3):
        block = lab.run(requests(4, 100, output_len=3900), Schedule(), stop=stop)
        assert block.stopped == "enough"
    block = lab.run(requests(4, 60, output_len=3900), Schedule(), stop=stop)
    assert block.counters.max_running_requests == 4


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores are pinned on Linux only")
def test_the_computing_thread_can_be_pinned(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0)
    engine = started(tmp_path, cores=[core])
    assert engine._started is not None
    assert engine._started.executor.submit(os.sched_getaffinity, 0).result() == {core}
    assert os.sched_getaffinity(0) == before
    engine.stop()
