"""A study with a fidelity ladder: what is measured on which rung, what climbs, and that a stop costs nothing."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest

from orchestrator.analysis import best
from orchestrator.engines import EngineError
from orchestrator.engines.faulty import Faults, FaultyEngines
from orchestrator.engines.kernel_lab.engine import KernelLabEngine
from orchestrator.errors import ChunksmithError
from orchestrator.records import RunFolder
from orchestrator.sweep import Progress, Sweep, SweepSpec
from orchestrator.sweep.cost import Seconds, cost_of
from orchestrator.sweep.fidelity_section import FidelitySection, short_spec
from tests.sweep.studies import ROWS, Table, journal, make_spec, new_run, read, require_no_duplicates, run_sweep

FIRST_FAILED = EngineError("cuda-oom", "out of memory")


def ladder_spec(*rungs: str, trials: int = 3, **changes: Any) -> SweepSpec:
    """A study of a model whose shape is known."""
    fidelity = {"rungs": [*rungs, "full"], "eta": 2.0, **changes.pop("fidelity", {})}
    return make_spec(model="org/DeepSeek-V3", trials=trials, fidelity=fidelity, **changes)


def of(run: RunFolder, fidelity: str) -> list[Table]:
    """Trials of a rung by their numbers."""
    rows = [row for row in read(run, "trials") if row["fidelity"] == fidelity]
    return sorted(rows, key=lambda row: int(row["trial"]))


def points_of(rows: list[Table]) -> list[Table]:
    return [json.loads(row["point"]) for row in rows]


def best_first(rows: list[Table]) -> list[Table]:
    return sorted((row for row in rows if row["outcome"] == "complete"), key=lambda row: float(row["ratio"]))


def test_the_best_of_each_rung_climb(tmp_path: Path) -> None:
    spec, output = ladder_spec("planning", "short", trials=12), io.StringIO()
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run, output=output)
    planned, short, full = (of(run, rung) for rung in ("planning", "short", "full"))
    # 12 points, 6 of them, 3 of those; the numbers of the lower rungs begin after the 12 trials there could be.
    assert [row["trial"] for row in planned] == list(range(12, 24))
    assert [row["trial"] for row in short] == list(range(24, 30))
    assert [row["trial"] for row in full] == [0, 1, 2]
    assert sorted(map(str, points_of(short))) == sorted(map(str, points_of(best_first(planned)[:6])))
    assert points_of(full) == points_of(best_first(short)[:3])
    assert {row["pairs"] for row in planned} == {0}
    assert {row["pairs"] for row in short} == {1}
    assert "rung planning: 12 points; 6 climb" in output.getvalue()
    assert "s of blocks; 3 climb" in output.getvalue()


def test_points_keep_their_figures_where_engines_group_them(tmp_path: Path) -> None:
    # Those with the least workspace come first, and so the groups take turns.
    space = {
        "mla_workspace_rows": {"scope": "live", "values": [128, 512, 2048]},
        "max_num_batched_tokens": {"scope": "engine", "values": [256, 512, 1024]},
    }
    spec = ladder_spec("planning", trials=9, space=space)
    run = new_run(tmp_path / "run", spec)
    engines = FaultyEngines()
    run_sweep(spec, run, engines)
    best_planned = points_of(best_first(of(run, "planning"))[:5])
    full = points_of(of(run, "full"))
    assert sorted(map(str, full)) == sorted(map(str, best_planned))
    groups = [point["max_num_batched_tokens"] for point in full]
    assert len([one for one, before in zip(groups, [None, *groups], strict=False) if one != before]) == len(set(groups))


def test_what_it_may_cost() -> None:
    spec = ladder_spec("planning", "short", trials=8, fidelity={"short": {"pairs": 2, "share": 0.5}})
    without = spec.model_copy(update={"fidelity": None})
    seconds = Seconds(1.0, 1.0, "given")
    fewest, most = cost_of(spec, spec.search_space(), seconds).blocks
    plain = cost_of(without, without.search_space(), seconds).blocks
    # 12 points, 6 of them with four half blocks each; at least one gets a trial.
    assert most == plain[1] + 6 * 2
    assert fewest == plain[0] - 7 * (spec.blocks.warmup + 2 * spec.blocks.min_pairs)


def test_blocks_tell_their_fidelity_and_short_ones_are_shorter(tmp_path: Path) -> None:
    spec = ladder_spec("short", trials=2, workload__prompts=6)
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run)
    blocks = read(run, "blocks")
    assert {(row["fidelity"], row["requests"]) for row in blocks if row["phase"] == "search"} == {
        ("short", 2),
        ("full", 6),
    }
    assert {row["fidelity"] for row in blocks if row["phase"] != "search"} == {"full"}
    short = [row for row in blocks if row["fidelity"] == "short"]
    # A pair for each point, and a dropped block in front of the first.
    assert len(short) == 2 * len(of(run, "short")) + 1
    assert [row["block"] for row in short if row["dropped"]] == [0]
    require_no_duplicates(run)


def test_only_full_trials_are_told_confirmed_and_answered(tmp_path: Path) -> None:
    spec = ladder_spec("planning", "short", trials=4)
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run)
    told = journal(run)
    full = of(run, "full")
    assert [trial.value for trial in told] == [row["ratio"] for row in full]
    answer = best(run.path)
    assert answer.counts["trials"] == {"complete": len(full)}
    assert {one.trial for one in answer.finalists} <= {row["trial"] for row in full}


def test_what_a_machine_lacks_is_skipped_with_a_word(tmp_path: Path) -> None:
    spec, output = ladder_spec("planning", "simulator", "lab", "short", trials=2), io.StringIO()
    run = new_run(tmp_path / "run", spec.model_copy(update={"model": "org/unknown"}))
    run_sweep(spec.model_copy(update={"model": "org/unknown"}), run, output=output)
    lines = output.getvalue()
    assert "rung planning: skipped: the shape of org/unknown is not known" in lines
    assert "rung simulator: skipped: there is no simulator engine" in lines
    assert "rung lab: skipped: the shape of org/unknown is not known" in lines
    assert {row["fidelity"] for row in read(run, "trials")} == {"short", "full"}


def test_without_any_lower_rung_every_trial_is_full(tmp_path: Path) -> None:
    spec, output = ladder_spec("simulator", trials=3), io.StringIO()
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run, output=output)
    assert "no rung below it can be climbed: every trial gets full blocks" in output.getvalue()
    assert [row["trial"] for row in of(run, "full")] == [0, 1, 2]


def test_more_points_than_the_trials_can_use_are_drawn_from(tmp_path: Path) -> None:
    spec = ladder_spec("short", trials=2)
    seen: list[list[Table]] = []
    for seed in (0, 0, 1):
        own = spec.model_copy(update={"seed": seed})
        run = new_run(tmp_path / f"run-{len(seen)}", own)
        run_sweep(own, run)
        seen.append(points_of(of(run, "short")))
    assert [len(points) for points in seen] == [4, 4, 4]
    assert seen[0] == seen[1] != seen[2]


@pytest.mark.parametrize("seed", range(3))
def test_stopped_at_some_block_and_resumed(tmp_path: Path, seed: int) -> None:
    spec = ladder_spec("planning", "short", trials=8)
    undisturbed = new_run(tmp_path / "undisturbed", spec)
    run_sweep(spec, undisturbed)

    run, position = new_run(tmp_path / "run", spec), random.Random(seed).randrange(1, 24)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(spec, run, FaultyEngines(Faults(run_errors={position: KeyboardInterrupt()})))
    require_no_duplicates(run)
    before = {row["trial"]: row["finished_at"] for row in read(run, "trials")}
    engines = FaultyEngines()
    run_sweep(spec, run, engines)
    require_no_duplicates(run)
    after = {row["trial"]: row["finished_at"] for row in read(run, "trials")}
    assert before.items() <= after.items()
    for rung in ("planning", "short"):
        assert points_of(of(run, rung)) == points_of(of(undisturbed, rung))
    assert len(of(run, "full")) == len(of(undisturbed, "full"))
    assert sum(row["phase"] != "search" for row in read(run, "blocks")) > 0


def test_a_failure_on_a_rung_does_not_climb(tmp_path: Path) -> None:
    spec = ladder_spec("short", trials=12)
    run = new_run(tmp_path / "run", spec)
    # Block 0 warms the engine up, block 1 is dropped, and the first point has the next two.
    run_sweep(spec, run, FaultyEngines(Faults(failed_requests={3: [0]})))
    short = of(run, "short")
    assert [row["outcome"] for row in short] == ["failed"] + ["complete"] * 11
    assert points_of(short)[0] not in points_of(of(run, "full"))


def test_a_lost_engine_is_replaced_on_a_rung(tmp_path: Path) -> None:
    spec, output = ladder_spec("short", trials=3), io.StringIO()
    run = new_run(tmp_path / "run", spec)
    lost = EngineError("engine-dead", "killed", lost=True)
    run_sweep(spec, run, FaultyEngines(Faults(run_errors={2: lost})), output)
    assert {row["outcome"] for row in of(run, "short")} == {"complete"}
    assert of(run, "short")[0]["attempt"] == 1
    assert "lost: engine-dead" in output.getvalue()


def test_a_rung_on_which_everything_fails_ends_the_study(tmp_path: Path) -> None:
    spec = ladder_spec("short", trials=2)
    run = new_run(tmp_path / "run", spec)
    faults = Faults(failed_requests={block: [0] for block in range(1, 100)})
    engines = FaultyEngines(faults)
    with pytest.raises(ChunksmithError, match="no point gave a figure on the rung short; the last: request-failed"):
        run_sweep(spec, run, engines)
    assert not any(engine.is_running for engine in engines.made)


def test_the_lab_stands_in_for_a_model_of_known_shape(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    shape = {"kv_lora_rank": 32, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 16}
    (model / "config.json").write_text(json.dumps({**shape, "num_attention_heads": 2}))
    spec = make_spec(
        model=str(model),
        trials=2,
        engine={"args": {"max_model_len": 1024, "max_num_batched_tokens": 128, "max_num_seqs": 2}},
        space={"mla_workspace_rows": {"scope": "live", "values": [64, 128, 256]}},
        workload={"prompts": 1, "input_len": 400},
        accuracy={"input_len": 200, "output_len": 2},
        confirm={"points": 0},
        fidelity={"rungs": ["lab", "full"], "eta": 2.0},
    )
    run = new_run(tmp_path / "run", spec)
    labs: list[KernelLabEngine] = []

    def make_lab() -> KernelLabEngine:
        labs.append(KernelLabEngine(f"lab-{len(labs)}", str(tmp_path / "lab.log")))
        return labs[-1]

    with run.lock(), Progress(_quiet(), spec.trials, 0) as progress:
        Sweep(spec, run, FaultyEngines(), progress, make_lab=make_lab).run()
    assert len(of(run, "lab")) == 3
    assert len(of(run, "full")) == 2
    engines = {row["fidelity"]: row["engine_id"] for row in read(run, "blocks")}
    assert engines == {"lab": "lab-0", "full": "faulty-0"}
    assert all(row["lab_chunks"] > 0 for row in read(run, "blocks") if row["fidelity"] == "lab")
    with pytest.raises(EngineError):
        labs[0].retune({})


def _quiet() -> Any:
    from rich.console import Console

    return Console(file=io.StringIO())


def test_a_short_block_keeps_what_is_in_flight() -> None:
    section = FidelitySection(rungs=["short", "full"])
    for load, expected in (({"concurrency": 1}, 3), ({"concurrency": 6}, 6), ({"concurrency": None}, 9)):
        spec = make_spec(workload__prompts=9, load=load)
        assert getattr(short_spec(spec, section).workload, "prompts", None) == expected
    assert short_spec(make_spec(workload__prompts=1), section).workload == make_spec(workload__prompts=1).workload


@pytest.mark.parametrize(
    "rungs", [["full"], ["short", "planning", "full"], ["short", "short", "full"], ["planning", "short"]]
)
def test_rungs_go_from_cheap_to_dear(rungs: list[str]) -> None:
    with pytest.raises(ValueError, match="fidelity"):
        make_spec(fidelity={"rungs": rungs})


def test_the_space_of_these_studies() -> None:
    assert len(ROWS) * 2 == 12
