"""The fake keeps the contract when no fault is put in, and shows each fault that is."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.engines import EngineConfig, EngineError
from orchestrator.engines.faulty import Faults, FaultyEngine, FaultyEngines
from orchestrator.engines.testing import EngineConformance
from orchestrator.measurement import block_metrics
from orchestrator.vllm_plugin import PluginSettings
from orchestrator.workloads import Prompt, Request, Schedule, random_requests

ARGS: dict[str, Any] = {"max_model_len": 4096, "max_num_batched_tokens": 128, "max_num_seqs": 4}
CONFIG = EngineConfig(model="none", args=ARGS)
REQUESTS = random_requests(3, input_len=600, output_len=4, seed=[0], vocab_size=1000)


class TestFaultyEngine(EngineConformance):
    @classmethod
    def make_engine(cls) -> FaultyEngine:
        return FaultyEngine()

    @classmethod
    def config(cls) -> EngineConfig:
        return CONFIG

    @classmethod
    def spare_config(cls) -> EngineConfig:
        plugin = PluginSettings(mla_workspace_rows=100, prefill_chunk_size=3, prefill_area_limit=900)
        return EngineConfig(model="none", args={**ARGS, "long_prefill_token_threshold": 5}, plugin=plugin)


def started(faults: Faults | None = None, **kwargs: Any) -> FaultyEngine:
    engine = FaultyEngine(faults, **kwargs)
    engine.start(CONFIG)
    return engine


def ttft_ms(engine: FaultyEngine, rows: int | None) -> float:
    engine.retune({"mla_workspace_rows": rows})
    block = engine.run(REQUESTS, Schedule(concurrency=1))
    ttft = block_metrics(block.requests, block.duration_s)["median_ttft_ms"]
    assert ttft is not None
    return ttft


@pytest.mark.parametrize("best", [256, 1024, 4096])
def test_the_best_rows_are_known(best: int) -> None:
    engine = started(best_rows=best)
    by_rows = {rows: ttft_ms(engine, rows) for rows in (128, 256, 512, 1024, 2048, 4096, 8192, 16384)}
    assert min(by_rows, key=lambda rows: by_rows[rows]) == best


def test_one_seed_gives_one_block_and_another_seed_another() -> None:
    first, again, other = (started(seed=seed).run(REQUESTS, Schedule()) for seed in (1, 1, 2))
    assert first == again
    assert first.duration_s != other.duration_s


def test_a_block_can_kill_the_engine() -> None:
    fault = EngineError("engine-dead", "injected", lost=True)
    engine = started(Faults(run_errors={1: fault}))
    engine.run(REQUESTS, Schedule())
    with pytest.raises(EngineError, match="injected"):
        engine.run(REQUESTS, Schedule())
    with pytest.raises(EngineError, match="gone"):
        engine.run(REQUESTS, Schedule())
    assert not engine.is_running


def test_an_interrupt_leaves_the_engine_alive() -> None:
    engine = started(Faults(run_errors={0: KeyboardInterrupt()}))
    with pytest.raises(KeyboardInterrupt):
        engine.run(REQUESTS, Schedule())
    assert engine.run(REQUESTS, Schedule()).requests[0].error is None


def test_a_start_can_fail_for_some_configurations() -> None:
    fault = EngineError("out-of-memory", "injected")
    few = EngineConfig(model="none", args={**ARGS, "max_num_seqs": 1})
    faults = Faults(start_error=fault, start_error_if=lambda config: config.args["max_num_seqs"] > 1)
    FaultyEngine(faults).start(few)
    with pytest.raises(EngineError, match="out-of-memory"):
        FaultyEngine(faults).start(CONFIG)
    with pytest.raises(EngineError, match="out-of-memory"):
        FaultyEngine(Faults(start_error=fault)).start(few)


def test_requests_can_fail_and_hit_the_cache_in_one_block() -> None:
    engine = started(Faults(failed_requests={0: {1}}, cached_tokens={1: 16}))
    first, second = engine.run(REQUESTS, Schedule()), engine.run(REQUESTS, Schedule())
    assert [request.error for request in first.requests] == [None, "injected fault", None]
    assert [request.error for request in second.requests] == [None] * 3
    assert [request.cached_tokens for request in first.requests] == [0] * 3
    assert [request.cached_tokens for request in second.requests] == [16] * 3


def test_a_knob_can_be_out_of_force() -> None:
    unused = started(Faults(workspace_unused=True)).run(REQUESTS, Schedule())
    assert (unused.counters.workspace_entries, unused.counters.context_chunks) == (0, 0)
    stuck = started(Faults(rows_in_force=48))
    stuck.retune({"mla_workspace_rows": 256})
    assert stuck.run(REQUESTS, Schedule()).in_force.workspace_rows == 48
    deaf = started(Faults(ignored_knobs={"max_num_batched_tokens"}))
    deaf.retune({"max_num_batched_tokens": 64, "mla_workspace_rows": 256})
    force = deaf.run(REQUESTS, Schedule()).in_force
    assert (force.max_num_batched_tokens, force.workspace_rows) == (128, 256)


def test_arguments_can_be_forced() -> None:
    info = FaultyEngine(Faults(forced_args={"max_num_seqs": 2})).start(CONFIG)
    assert info.resolved["scheduler_config"] == {**ARGS, "max_num_seqs": 2}


@pytest.mark.parametrize(("concurrency", "cuts"), [(1, 0), (2, 3)])
def test_the_threshold_acts_only_beside_another_request(concurrency: int, cuts: int) -> None:
    engine = started()
    engine.retune({"long_prefill_token_threshold": 48})
    assert engine.run(REQUESTS, Schedule(concurrency=concurrency)).counters.long_prefill_cuts == cuts


def test_tokens_can_be_wrong_at_a_point() -> None:
    engine = started(Faults(wrong_tokens_if=lambda live: live.get("mla_workspace_rows") == 256))
    right = engine.run(REQUESTS, Schedule(), top2=True).requests[0]
    engine.retune({"mla_workspace_rows": 256})
    wrong = engine.run(REQUESTS, Schedule(), top2=True).requests[0]
    differ = [a != b for a, b in zip(right.output_token_ids, wrong.output_token_ids, strict=True)]
    assert differ == [True, False, True, False]
    assert right.top2_gaps == [1.0] * 4


def test_context_chunks_by_hand() -> None:
    """600 tokens in steps of 128: contexts of 128, 256, 384 and 512 rows, in chunks of 96: 2 + 3 + 4 + 6."""
    engine = started()
    engine.retune({"mla_workspace_rows": 96})
    counters = engine.run([Request(prompt=Prompt(token_ids=range(600), output_len=1))], Schedule()).counters
    assert (counters.context_chunks, counters.workspace_entries) == (15, 4 * 2)
    assert (counters.scheduler_steps, counters.max_step_tokens) == (5, 128)


def test_engines_get_their_faults_in_order() -> None:
    make = FaultyEngines(Faults(workspace_unused=True), Faults(rows_in_force=16))
    engines = [make(), make(), make()]
    assert make.made == engines
    assert [engine.faults for engine in engines] == [Faults(workspace_unused=True), Faults(rows_in_force=16), Faults()]
