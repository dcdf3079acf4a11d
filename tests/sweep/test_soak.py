"""The soak: what it serves, what breaks it, and what is kept of that."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.analysis import best
from orchestrator.engines import BlockResult, EngineConfig, EngineError, EngineInfo, InForce
from orchestrator.engines.faulty import COMPRESS_RATIO, WINDOW, Faults, FaultyEngine, FaultyEngines
from orchestrator.errors import ChunksmithError, UserError
from orchestrator.planning import (
    LAYER_TYPES,
    AreaPlanning,
    SchedulerLimits,
    fcfs_steps,
    plan_prefill_chunks,
    worst_batches,
)
from orchestrator.records import RunFolder, SoakRecord
from orchestrator.sweep import SweepSpec, point_to_soak, soak_trial
from orchestrator.workloads import Prompt, Request, Schedule
from tests.sweep.studies import ROWS, make_spec, new_run, points, read, require_no_duplicates, require_whole, run_sweep

LOST = EngineError("engine-dead", "the engine is gone", lost=True, log_path="x.log")
CHUNK_SIZE, MODEL_LEN, STEP_TOKENS = 4, 8192, 1024
"""Of the engines of ``studies``."""

LIMIT = CHUNK_SIZE * (MODEL_LEN // COMPRESS_RATIO + WINDOW + STEP_TOKENS)
CONTEXT_ONLY = CHUNK_SIZE * STEP_TOKENS
"""Rows that are missing where the reservation counts the longest contexts and forgets the step's own tokens."""

WIDEST = "widest area, c4a layers"
FIRST = {"mla_workspace_rows": 1024, "max_num_batched_tokens": 512}
"""The best point of ``studies``."""


def locked(rows: int = CONTEXT_ONLY, count: int = 20) -> FaultyEngines:
    """Engines whose area limit exceeds their locked reservation."""
    return FaultyEngines(*[Faults(unreserved_rows=rows)] * count, noise=0.005)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that was never soaked; its best point is ``FIRST``."""
    spec = make_spec(trials=12)
    run = new_run(tmp_path_factory.mktemp("swept") / "run", spec)
    run_sweep(spec, run, FaultyEngines(noise=0.005))
    return run


def number_of(run: RunFolder, point: dict[str, Any]) -> int:
    return next(number for number, found in points(run).items() if found == point)


def soak(
    run: RunFolder,
    make_engine: Callable[[], FaultyEngine],
    *,
    rounds: int = 1,
    point: dict[str, Any] | None = None,
    lines: list[str] | None = None,
    **changes: Any,
) -> SoakRecord:
    """Soak a point of a run, as the command does."""
    spec, number = make_spec(trials=12, **changes), number_of(run, point or FIRST)
    said = lines if lines is not None else []
    with run.lock():
        return soak_trial(
            spec, run, make_engine, number, point_to_soak(spec, run, number), rounds=rounds, say=said.append
        )


def soak_blocks(run: RunFolder) -> list[dict[str, Any]]:
    return sorted((row for row in read(run, "blocks") if row["phase"] == "soak"), key=lambda row: row["block"])


def area_batches(tokens: int = 512) -> dict[str, int]:
    """The batches of an engine of ``studies`` that plans by area, and the widest chunk of each, as vLLM plans it."""
    limits = SchedulerLimits(
        max_num_batched_tokens=tokens,
        max_num_seqs=4,
        max_model_len=MODEL_LEN,
        kv_blocks=4096,
        block_size=16,
        area=AreaPlanning(
            prefill_chunk_size=CHUNK_SIZE,
            max_num_batched_tokens=STEP_TOKENS,
            window=WINDOW,
            layers=tuple(LAYER_TYPES[name] for name in ("swaonly", "c4a", "c128a")),
        ),
    )
    found = {}
    for batch in worst_batches(limits):
        widest = 0
        for step in fcfs_steps(batch.lengths, max_num_batched_tokens=tokens, max_num_seqs=4):
            prefills = [share for share in step if share.tokens > 1]
            plan = plan_prefill_chunks(
                [share.context + share.tokens for share in prefills],
                [share.tokens for share in prefills],
                compress_ratio=COMPRESS_RATIO,
                window=WINDOW,
                area_limit=LIMIT,
            )
            widest = max([widest, *(chunk.area for chunk in plan)])
        found[batch.name] = widest
    return found


def test_a_sweep_soaks_its_winner_and_says_so(tmp_path: Path) -> None:
    spec = make_spec(trials=12, soak__rounds=2)
    run, output = new_run(tmp_path / "run", spec), io.StringIO()
    run_sweep(spec, run, FaultyEngines(noise=0.005), output)
    require_whole(run, spec)
    answer = best(run.path)
    assert (answer.decision, answer.point, answer.soak) == ("winner", FIRST, "passed")
    assert "soak passed (10 blocks in " in output.getvalue()
    # The winner alone: the other finalist would be soaked if that one broke.
    assert len(answer.finalists) == 2
    soaked = {row["trial"] for row in soak_blocks(run)}
    assert soaked == {answer.trial}
    assert (
        soaked
        == {one.trial for one in answer.finalists if one.soak == "passed"}
        == {int(path.stem.removeprefix("trial-")) for path in (run.path / "soak").iterdir()}
    )
    own = [row for row in soak_blocks(run) if row["trial"] == answer.trial]
    names = ["normal load", "widest step", "deepest step", "longest context", "full cache"]
    assert [json.loads(row["load"])["batch"] for row in own] == names * 2
    assert [row["pair"] for row in own] == [0] * 5 + [1] * 5
    assert len({row["prompts_seed"] for row in own}) == 10
    assert all(row["dropped"] and row["outcome"] == "complete" for row in own)
    # The batches really are the engine's limits.
    assert max(row["max_running_requests"] for row in own) == 4
    assert {row["max_step_tokens"] for row in own} == {512}
    record = SoakRecord.read(run.path, answer.trial or 0)
    assert record is not None
    assert (record.passed, record.rounds, record.blocks, record.lost_engines) == (True, 2, 10, 0)
    assert record.point == FIRST
    assert list(record.batches) == names
    assert record.serve_args[0] == "org/model"


def test_no_round_and_no_better_point_are_no_soak(tmp_path: Path) -> None:
    for name, changes in (("off", {"soak__rounds": 0}), ("worse", {"soak__rounds": 1, "baseline": FIRST})):
        spec = make_spec(trials=12, **changes)
        run = new_run(tmp_path / name, spec)
        run_sweep(spec, run, FaultyEngines(noise=0.005))
        assert {one.soak for one in best(run.path).finalists} == {"not run"}
        assert not (run.path / "soak").exists()
        assert soak_blocks(run) == []


@pytest.mark.parametrize("seed", range(24))
def test_the_planted_fault_is_caught_whatever_the_seed_and_the_point(swept: RunFolder, seed: int) -> None:
    point = {"mla_workspace_rows": ROWS[seed % len(ROWS)], "max_num_batched_tokens": (256, 512)[seed % 2]}
    engines = locked()
    record = soak(swept, engines, point=point, seed=seed)
    assert not record.passed
    assert (record.batch, record.failure) == (WIDEST, "workspace-locked")
    needed, reserved = (int(word) for word in (record.detail or "").split() if word.isdigit())
    assert LIMIT - CONTEXT_ONLY == reserved < needed == area_batches(point["max_num_batched_tokens"])[WIDEST]
    assert record.engine_log == "faulty-0.log"
    # The normal load and the cheaper batches were served before, on the same engine.
    assert [row["outcome"] for row in soak_blocks(swept) if row["trial"] == record.trial][:-1] == ["complete"] * (
        record.blocks - 1
    )
    assert record.blocks > 2
    assert not any(engine.is_running for engine in engines.made)


def test_only_the_batch_that_the_planner_says_is_widest_hits_the_fault(swept: RunFolder) -> None:
    areas = area_batches()
    assert max(areas, key=lambda name: areas[name]) == WIDEST
    second, widest = sorted(areas.values())[-2:]
    assert second < widest
    # One row too few; then all that a batch can ask for.
    assert soak(swept, locked(LIMIT - widest + 1)).batch == WIDEST
    assert soak(swept, locked(LIMIT - widest)).passed
    assert soak(swept, locked(LIMIT - second)).batch == WIDEST


def test_normal_load_never_hits_the_fault_and_the_point_is_not_recommended(tmp_path: Path) -> None:
    spec = make_spec(trials=12)
    run = new_run(tmp_path / "without", spec)
    run_sweep(spec, run, locked())
    assert {row["outcome"] for row in read(run, "trials")} == {"complete"}
    assert best(run.path).decision == "winner"

    spec = make_spec(trials=12, soak__rounds=1)
    run, output = new_run(tmp_path / "with", spec), io.StringIO()
    run_sweep(spec, run, locked(), output)
    require_whole(run, spec)
    answer = best(run.path)
    assert (answer.decision, answer.point, answer.soak) == ("no clear winner", FIRST, "failed")
    path = run.path / "soak" / f"trial-{answer.trial:05d}.json"
    obstacle = answer.finalists[0].obstacle
    assert obstacle is not None
    assert obstacle.startswith(f"soak failed at '{WIDEST}' (workspace-locked: ")
    assert obstacle.endswith(f"; reproducer: soak/{path.name} of the run")
    assert f"soak failed at '{WIDEST}': workspace-locked: " in output.getvalue()
    failed = [row for row in soak_blocks(run) if row["trial"] == answer.trial][-1]
    assert (failed["outcome"], failed["requests"]) == ("failed", 0)
    assert failed["failure"].startswith("workspace-locked: ")


def test_the_reproducer_breaks_an_engine_again(swept: RunFolder) -> None:
    class RecordingEngine(FaultyEngine):
        """Fault: the area limit exceeds the locked reservation. It keeps the prompts of its latest block."""

        def run(self, requests: Any, schedule: Schedule, **options: Any) -> BlockResult:
            sent[:] = [list(one.prompt.token_ids) for one in requests]
            return super().run(requests, schedule, **options)

    sent: list[list[int]] = []
    faults = Faults(unreserved_rows=CONTEXT_ONLY)
    soak(swept, lambda: RecordingEngine(faults))
    path = swept.path / "soak" / f"trial-{number_of(swept, FIRST):05d}.json"
    kept = json.loads(path.read_text())
    assert kept["point"] == FIRST
    assert kept["load"] == {"kind": "all_at_once"}
    assert "--max-num-batched-tokens" in kept["serve_args"]
    assert kept["why"].endswith("rows that c4a layers may use")
    # The page on the soak shows how to draw the prompts.
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "soak.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(page.partition("```python\n")[2].partition("```")[0], names)
    drawn = names["prompts"](path)
    assert drawn == sent
    engine = FaultyEngine(faults)
    engine.start(make_spec().engine_config())
    engine.retune(kept["point"])
    outputs = [output for _, output in kept["lengths"]]
    requests = [
        Request(prompt=Prompt(token_ids=ids, output_len=output)) for ids, output in zip(drawn, outputs, strict=True)
    ]
    with pytest.raises(EngineError) as caught:
        engine.run(requests, Schedule())
    assert (caught.value.label, caught.value.detail) == (kept["failure"], kept["detail"])


def test_a_soak_that_passes_takes_the_place_of_one_that_failed(swept: RunFolder) -> None:
    number = number_of(swept, FIRST)
    soak(swept, locked())
    assert best(swept.path).trial != number or best(swept.path).decision != "winner"
    record = soak(swept, FaultyEngines())
    assert (record.passed, record.batch, record.failure, list(record.lengths)) == (True, None, None, [])
    answer = best(swept.path)
    assert (answer.decision, answer.trial, answer.soak) == ("winner", number, "passed")
    require_no_duplicates(swept)


@pytest.mark.parametrize("block", range(1, 6))
def test_an_engine_that_a_batch_kills_fails_the_soak(swept: RunFolder, block: int) -> None:
    # Block 0 warms up.
    error = EngineError("cuda-oom", "out of memory", log_path="x.log")
    record = soak(swept, FaultyEngines(Faults(run_errors={block: error})))
    names = ["normal load", "widest step", "deepest step", "longest context", "full cache"]
    assert (record.passed, record.batch, record.failure, record.detail, record.engine_log) == (
        False,
        names[block - 1],
        "cuda-oom",
        "out of memory",
        "x.log",
    )
    assert record.blocks == block
    own = [row for row in soak_blocks(swept) if row["trial"] == record.trial]
    assert [row["outcome"] for row in own] == ["complete"] * (block - 1) + ["failed"]
    if block == 1:
        # The lengths of the spec's workload, and its load.
        assert [list(one) for one in record.lengths] == [[2048, 1]] * 2
        assert record.load == {"kind": "closed_loop", "concurrency": 1}


def test_one_lost_engine_is_excused_and_the_batch_served_again(swept: RunFolder) -> None:
    lines: list[str] = []
    engines = FaultyEngines(Faults(run_errors={3: LOST}))
    record = soak(swept, engines, lines=lines)
    assert (record.passed, record.lost_engines, record.blocks) == (True, 1, 6)
    assert len(engines.made) == 2
    own = [row for row in soak_blocks(swept) if row["trial"] == record.trial]
    lost, again = own[2:4]
    assert (lost["outcome"], again["outcome"]) == ("failed", "complete")
    assert lost["prompts_seed"] == again["prompts_seed"]
    assert any(line.startswith("round 1, deepest step: failed: engine-dead: ") for line in lines)


def test_a_second_lost_engine_is_the_batchs_fault(swept: RunFolder) -> None:
    record = soak(swept, FaultyEngines(Faults(run_errors={3: LOST}), Faults(run_errors={1: LOST})))
    assert (record.passed, record.batch, record.failure, record.lost_engines) == (
        False,
        "deepest step",
        "engine-dead",
        1,
    )


def test_a_failed_request_fails_the_soak_and_its_engine_serves_nobody_else(tmp_path: Path) -> None:
    spec = make_spec(trials=12, soak__rounds=1)
    run = new_run(tmp_path / "run", spec)

    class ShortOfMemoryEngine(FaultyEngine):
        """Fault: a request fails when four are sent together."""

        def run(self, requests: Any, schedule: Schedule, **options: Any) -> BlockResult:
            self.faults = Faults(failed_requests={self.blocks: [2]} if len(requests) == 4 else {})
            return super().run(requests, schedule, **options)

    made: list[FaultyEngine] = []

    def make() -> FaultyEngine:
        made.append(ShortOfMemoryEngine(seed=len(made), noise=0.005))
        return made[-1]

    run_sweep(spec, run, make)
    require_whole(run, spec)
    answer = best(run.path)
    assert answer.decision == "no clear winner"
    assert answer.finalists[0].obstacle is not None
    assert "request-failed: 1 of 4 requests failed, the first with: injected fault" in answer.finalists[0].obstacle
    # The second finalist was soaked on a fresh engine, and is broken too.
    broken = [row["engine_id"] for row in soak_blocks(run) if row["outcome"] == "failed"]
    assert sorted(broken) == ["faulty-0", "faulty-1"]
    assert not any(engine.is_running for engine in made)


class ChangingEngine(FaultyEngine):
    """Fault: from its fourth block on it says that something else is in force."""

    change: Mapping[str, Any]

    def run(self, *arguments: Any, **options: Any) -> BlockResult:
        result = super().run(*arguments, **options)
        if self.blocks <= 3:
            return result
        return dataclasses.replace(result, in_force=dataclasses.replace(result.in_force, **self.change))


@pytest.mark.parametrize(
    ("change", "failure", "detail"),
    [
        ({"workspace_bytes": 7}, "changed", "workspace_bytes went from 1179648 to 7 during the soak"),
        ({"builders": 2}, "changed", "builders went from 1 to 2 during the soak"),
        (
            {"workspace_rows": 64},
            "knob-not-in-force",
            "mla_workspace_rows: asked 1024, which gives 1024; in force is 64",
        ),
        ({"disagreement": "workspace_rows: 1 to 2"}, "knob-not-in-force", "workspace_rows: 1 to 2"),
    ],
)
def test_what_is_in_force_must_not_change(swept: RunFolder, change: dict[str, Any], failure: str, detail: str) -> None:
    class Engine(ChangingEngine):
        """Fault: as above."""

    Engine.change = change
    record = soak(swept, Engine)
    assert (record.batch, record.failure, record.detail) == ("deepest step", failure, detail)


def test_another_engine_may_have_another_cache(swept: RunFolder) -> None:
    class SmallerEngine(FaultyEngine):
        """Fault: none but that its cache is smaller."""

        def start(self, config: EngineConfig) -> EngineInfo:
            info = super().start(config)
            self._start = self._force = dataclasses.replace(self._start, kv_blocks=4000)
            return info

    first = FaultyEngine(Faults(run_errors={3: LOST}))
    engines = iter([first, SmallerEngine()])
    record = soak(swept, lambda: next(engines))
    assert (record.passed, record.lost_engines) == (True, 1)


def test_neither_a_prompt_in_the_cache_nor_an_unused_workspace_fails_a_soak(swept: RunFolder) -> None:
    class PreemptingEngine(FaultyEngine):
        """Fault: after its first block it finds prompts in its cache and needs no workspace."""

        def run(self, *arguments: Any, **options: Any) -> BlockResult:
            result = super().run(*arguments, **options)
            if self.blocks == 1:
                return result
            requests = [dataclasses.replace(one, cached_tokens=16) for one in result.requests]
            counters = dataclasses.replace(result.counters, workspace_entries=0, context_chunks=0)
            return dataclasses.replace(result, requests=requests, counters=counters)

    assert soak(swept, PreemptingEngine).passed


def test_an_engine_that_does_not_say_what_bounds_it(swept: RunFolder) -> None:
    class SilentEngine(FaultyEngine):
        """Fault: it does not report its KV cache."""

        def start(self, config: EngineConfig) -> EngineInfo:
            info = super().start(config)
            self._start = self._force = dataclasses.replace(self._start, kv_blocks=None)
            return info

    with pytest.raises(ChunksmithError, match="a soak needs kv_blocks, which this engine does not report"):
        soak(swept, SilentEngine)


def test_an_engine_that_does_not_start_fails_the_soak_of_its_group(tmp_path: Path) -> None:
    spec = make_spec(
        space={
            "block_size": {"scope": "engine", "values": [16, 32]},
            "mla_workspace_rows": {"scope": "live", "values": [1024]},
        },
        trials=2,
        confirm__points=0,
    )
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run)
    refusal = EngineError("engine-start", "ValueError: no", log_path="x.log")
    number = number_of(run, {"block_size": 32, "mla_workspace_rows": 1024})
    point = point_to_soak(spec, run, number)
    with run.lock():
        record = soak_trial(
            spec, run, FaultyEngines(*[Faults(start_error=refusal)] * 2), number, point, rounds=1, say=lambda _: None
        )
    assert (record.passed, record.batch, record.failure, record.blocks) == (False, "engine start", "engine-start", 0)
    assert record.seed is None


def test_a_sweep_that_is_stopped_in_a_soak_makes_it_when_it_goes_on(tmp_path: Path) -> None:
    spec = make_spec(trials=12, soak__rounds=1)
    run = new_run(tmp_path / "run", spec)

    class StoppedEngine(FaultyEngine):
        """Fault: the user presses Ctrl-C during the first batch of four."""

        def run(self, requests: Any, schedule: Schedule, **options: Any) -> BlockResult:
            if len(requests) == 4:
                raise KeyboardInterrupt
            return super().run(requests, schedule, **options)

    with pytest.raises(KeyboardInterrupt):
        run_sweep(spec, run, lambda: StoppedEngine(noise=0.005))
    assert not (run.path / "soak").exists()
    run_sweep(spec, run, FaultyEngines(noise=0.005))
    require_whole(run, spec)
    answer = best(run.path)
    assert (answer.decision, answer.soak) == ("winner", "passed")


def test_one_engine_at_a_time_is_enough(tmp_path: Path) -> None:
    spec = make_spec(
        space={
            "block_size": {"scope": "engine", "values": [16, 32]},
            "mla_workspace_rows": {"scope": "live", "values": [1024, 8192]},
        },
        trials=4,
        soak__rounds=1,
    )
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run, FaultyEngines(noise=0.005), engines=1)
    require_whole(run, spec)
    answer = best(run.path)
    assert (answer.decision, answer.soak) == ("winner", "passed")


@pytest.mark.parametrize(
    ("number", "message"),
    [(12, "there is no trial 12; trials 0 to 11 are recorded"), (0, r"trial 0 is failed \(cuda-oom: .*\); only a")],
)
def test_what_cannot_be_soaked(tmp_path: Path, number: int, message: str) -> None:
    spec = make_spec(trials=12, confirm__points=0)
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run, FaultyEngines(Faults(run_errors={3: EngineError("cuda-oom", "out of memory")})))
    with pytest.raises(UserError, match=message):
        point_to_soak(spec, run, number)


def test_a_run_without_trials_has_nothing_to_soak(tmp_path: Path) -> None:
    spec: SweepSpec = make_spec()
    with pytest.raises(UserError, match="there is no trial 0; no trial is recorded yet"):
        point_to_soak(spec, new_run(tmp_path / "run", spec), 0)


def test_the_engine_is_in_the_provenance_of_the_run(swept: RunFolder) -> None:
    before = len(json.loads(swept.provenance.read_text())["engines"])
    soak(swept, FaultyEngines())
    after = json.loads(swept.provenance.read_text())
    assert len(after["engines"]) == before + 1
    assert InForce(**after["engines"][-1]["in_force"]).kv_blocks == 4096
