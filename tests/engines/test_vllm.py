"""A real vLLM engine with the tiny model: the contract, and the workspace cap seen in the tensor itself.

Two engines are started, some twenty seconds each.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pytest

from orchestrator.engines import Engine, EngineConfig, EngineError, RequestTimeline
from orchestrator.engines.testing import EngineConformance, Started
from orchestrator.models import tiny_model
from orchestrator.vllm_plugin import PluginSettings
from orchestrator.workloads import Request, Schedule, random_requests
from tests.engines.child import ChildEngine

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

ARGS: dict[str, Any] = {
    "dtype": "bfloat16",
    "max_model_len": 4096,
    "max_num_batched_tokens": 256,
    "max_num_seqs": 4,
    "enforce_eager": True,
    "enable_chunked_prefill": True,
    "enable_prefix_caching": False,
}
ENV = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"}
ROW_BYTES = 576 * 2
"""One row of the workspace: 512 + 64 numbers of 2 bytes, as in DeepSeek's models."""
DEFAULT_ROWS = 8 * 4096
"""vLLM's own size at this length: 8 full-length requests, below its cap of 65,536 rows."""
LAYERS = 2
ONE_AT_A_TIME = Schedule(concurrency=1)


def config(**plugin: Any) -> EngineConfig:
    settings = PluginSettings(cpu_chunked_prefill=True, **plugin)
    return EngineConfig(model=str(tiny_model()), args=ARGS, env=ENV, plugin=settings)


def requests(count: int, length: int, output_len: int = 1, seed: int = 7) -> list[Request]:
    return random_requests(count, input_len=length, output_len=output_len, seed=[seed], vocab_size=10_000)


def chunks_by_hand(length: int, step: int, rows: int) -> int:
    """Chunks of one prompt that is prefilled alone: at each step after the first, the cached context in pieces of at
    most ``rows`` rows."""
    return sum(-(-context // rows) for context in range(step, length, step))


class TestVllmEngine(EngineConformance):
    made: ClassVar[list[ChildEngine]] = []
    log_folder: ClassVar[Path]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def children(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        cls.log_folder = tmp_path_factory.mktemp("engines")
        yield
        while cls.made:
            cls.made.pop().close()

    @classmethod
    def make_engine(cls) -> ChildEngine:
        engine = ChildEngine(str(cls.log_folder / f"{len(cls.made)}.log"))
        cls.made.append(engine)
        return engine

    @classmethod
    def config(cls) -> EngineConfig:
        return config()

    @classmethod
    def spare_config(cls) -> EngineConfig:
        return config(mla_workspace_rows=250, prefill_area_limit=900)

    @classmethod
    def leftovers(cls, engine: Engine) -> Collection[psutil.Process]:
        assert isinstance(engine, ChildEngine)
        return engine.processes()

    @classmethod
    def wait_until_serving(cls, engine: Engine) -> None:
        """The worker plans a chunk of context after this call began."""
        assert isinstance(engine, ChildEngine)
        before = engine.worker_report()["context_chunks"]
        deadline = time.monotonic() + 60
        while engine.worker_report()["context_chunks"] == before:
            assert time.monotonic() < deadline, "nothing is served"

    def test_abort_ends_a_running_block_and_frees_the_engine(self, spare: Started) -> None:
        """Before it is aborted: a cap of 250 rows at start gives 256, since vLLM rounds up to whole blocks of 16."""
        check_tensor(spare, 256)
        spare.engine.retune({"mla_workspace_rows": 1024})
        check_tensor(spare, 1024)
        spare.engine.retune({})
        check_tensor(spare, 256)
        super().test_abort_ends_a_running_block_and_frees_the_engine(spare)

    def test_a_start_that_fails_is_an_engine_error_and_leaves_nothing(self) -> None:
        engine = self.make_engine()
        wrong = EngineConfig(model=str(tiny_model()), args={**ARGS, "max_model_len": 10**9}, env=ENV)
        with pytest.raises(EngineError, match=r"engine-start: .*max_model_len") as error:
            engine.start(wrong)
        assert not error.value.lost
        self._require_gone(engine)

    def test_a_live_cap_is_the_size_of_the_tensor(self, started: Started) -> None:
        check_tensor(started, DEFAULT_ROWS)
        for cap, rows in [(256, 256), (1000, 1008), (None, DEFAULT_ROWS), (65_536, DEFAULT_ROWS), (1, 16)]:
            assert started.engine.retune({"mla_workspace_rows": cap}) < 1.0
            check_tensor(started, rows)
        started.engine.retune({})

    @pytest.mark.parametrize("rows", [64, 256, 1024, DEFAULT_ROWS])
    @pytest.mark.parametrize("step", [256, 128])
    def test_context_chunks_are_those_of_arithmetic(self, started: Started, rows: int, step: int) -> None:
        started.engine.retune({"mla_workspace_rows": rows, "max_num_batched_tokens": step})
        counters = started.engine.run(requests(1, 1500), ONE_AT_A_TIME).counters
        started.engine.retune({})
        assert counters.context_chunks == chunks_by_hand(1500, step, rows)
        # One step a piece of the prompt, and in each but the first every layer enters the path once.
        assert counters.scheduler_steps == -(-1500 // step)
        assert counters.workspace_entries == LAYERS * (counters.scheduler_steps - 1)
        assert counters.max_step_tokens == step

    def test_greedy_tokens_do_not_depend_on_the_cap(self, started: Started) -> None:
        """Equal, or first different where the two best tokens were so close that rounding decides."""
        asked = requests(6, 1500, output_len=4)
        outputs = {}
        for rows in (DEFAULT_ROWS, 1024, 64):
            started.engine.retune({"mla_workspace_rows": rows})
            outputs[rows] = started.engine.run(asked, ONE_AT_A_TIME, top2=True).requests
        started.engine.retune({})
        for rows in (1024, 64):
            gaps = [gap_where_different(*pair) for pair in zip(outputs[DEFAULT_ROWS], outputs[rows], strict=True)]
            assert gaps.count(None) >= 3, f"{rows} rows: {gaps}"
            assert all(gap is None or gap < 0.1 for gap in gaps), f"{rows} rows: {gaps}"

    def test_all_live_requests_share_the_step_budget(self, started: Started) -> None:
        started.engine.retune({"max_num_batched_tokens": 128, "max_num_seqs": 2})
        counters = started.engine.run(requests(4, 400, output_len=4), Schedule()).counters
        started.engine.retune({})
        assert (counters.max_step_tokens, counters.max_running_requests) == (128, 2)

    @pytest.mark.parametrize(("concurrency", "is_cut"), [(2, True), (1, False)])
    def test_the_threshold_acts_only_beside_another_request(
        self, started: Started, concurrency: int, is_cut: bool
    ) -> None:
        started.engine.retune({"long_prefill_token_threshold": 64})
        counters = started.engine.run(requests(2, 600), Schedule(concurrency=concurrency)).counters
        started.engine.retune({})
        assert (counters.long_prefill_cuts > 0) is is_cut

    def test_vllms_configuration_says_what_it_forced(self, started: Started) -> None:
        """Block sizes are tokens: 16 is what vLLM takes on a CPU."""
        resolved = started.info.resolved
        assert resolved["cache_config"]["block_size"] == started.info.block_size == 16
        assert resolved["model_config"]["max_model_len"] == ARGS["max_model_len"]
        assert resolved["scheduler_config"]["enable_chunked_prefill"] is True
        assert resolved["compilation_config"]["cudagraph_mode"] == "NONE"
        # OMP_NUM_THREADS is none of vLLM's own.
        assert resolved["environment"] == {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": 1}

    def test_the_engine_did_not_touch_this_process(self, started: Started) -> None:
        assert "vllm.v1.engine.async_llm" not in sys.modules
        assert started.info.kind == "vllm"


def gap_where_different(baseline: RequestTimeline, other: RequestTimeline) -> float | None:
    """The baseline's gap at the first token in which two outputs differ; None when they are equal."""
    assert baseline.top2_gaps is not None
    outputs = zip(baseline.output_token_ids, other.output_token_ids, baseline.top2_gaps, strict=True)
    return next((gap for token, found, gap in outputs if token != found), None)


def check_tensor(started: Started, rows: int) -> None:
    """The workspace in the worker has that many rows, and so says the contract."""
    assert isinstance(started.engine, ChildEngine)
    report = started.engine.worker_report()
    assert report["workspace_rows"] == [rows]
    assert (report["builders"], report["workspace_alignment"]) == (1, 16)
    assert report["workspace_bytes"] == rows * ROW_BYTES
    force = started.engine.run(requests(1, 600), ONE_AT_A_TIME).in_force
    assert (force.workspace_rows, force.workspace_bytes) == (rows, rows * ROW_BYTES)
