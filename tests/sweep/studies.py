"""Small studies on the faulty engine, and what must hold of a run that has ended."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
from rich.console import Console

from orchestrator.engines import Engine
from orchestrator.engines.faulty import FaultyEngines
from orchestrator.records import SCHEMAS, RunFolder
from orchestrator.records.store import Address, Place, open_storage
from orchestrator.sweep import Progress, Sweep, SweepSpec, load_spec
from orchestrator.sweep.crew import Room
from orchestrator.sweep.trial import BASELINE_FAILED

ROWS = [128, 256, 512, 1024, 2048, 4096]
BATCHED_TOKENS = [256, 512]

Table = dict[str, Any]


def content(**changes: Any) -> dict[str, Any]:
    """A spec as its YAML holds it; ``a__b=1`` changes key ``b`` under ``a``."""
    spec: dict[str, Any] = {
        "version": 1,
        "study": "small",
        "model": "org/model",
        "engine": {"args": {"max_model_len": 8192, "max_num_batched_tokens": 1024, "max_num_seqs": 4}},
        "space": {
            "mla_workspace_rows": {"scope": "live", "values": ROWS},
            "max_num_batched_tokens": {"scope": "live", "values": BATCHED_TOKENS},
        },
        "workload": {"prompts": 2, "input_len": 2048},
        "trials": 6,
        "blocks": {"warmup": 1, "min_pairs": 2, "max_pairs": 3},
        "confirm": {"points": 2, "pairs": 3},
        "accuracy": {"prompts": 2, "input_len": 1500, "output_len": 4},
        "soak": {"rounds": 0},
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        section = spec
        for parent in parents:
            section = section.setdefault(parent, {})
        section[last] = value
    return spec


def make_spec(**changes: Any) -> SweepSpec:
    """The spec that ``content`` describes."""
    return SweepSpec.model_validate(content(**changes))


def run_sweep(
    spec: SweepSpec,
    run: RunFolder,
    make_engine: Callable[[], Engine] | None = None,
    output: io.StringIO | None = None,
    *,
    engines: int = 2,
    at_once: int | None = None,
    room: Room | None = None,
    review_s: float = 0.05,
) -> None:
    """Run or resume a study as the command does, on engines without faults if none are given."""
    progress = Progress(Console(file=output or io.StringIO(), width=200), spec.trials, spec.confirm.points)
    with run.lock(), progress:
        made = make_engine or FaultyEngines()
        Sweep(spec, run, made, progress, engines=engines, at_once=at_once, room=room, review_s=review_s).run()


def read(run: RunFolder, table: str) -> list[Table]:
    """A table as a notebook reads it, by pandas alone."""
    return [
        {str(key): value for key, value in row.items()} for row in pd.read_parquet(run.table(table)).to_dict("records")
    ]


def journal(run: RunFolder, study: str = "small") -> list[optuna.trial.FrozenTrial]:
    """The trials that Optuna knows, wherever it keeps them."""
    storage = open_storage(Address.parse(Place.read(run).address), run.journal)
    return optuna.load_study(study_name=study, storage=storage).get_trials()


def points(run: RunFolder) -> dict[int, Table]:
    """Points of the trials table by trial."""
    return {row["trial"]: json.loads(row["point"]) for row in read(run, "trials")}


def require_no_duplicates(run: RunFolder) -> None:
    """Every table is readable, and no row stands twice: at any moment."""
    keys = {
        "trials": ["trial"],
        "blocks": ["trial", "phase", "block"],
        "requests": ["trial", "phase", "block", "request"],
    }
    assert keys.keys() == SCHEMAS.keys()
    for table, key in keys.items():
        rows = [tuple(row[name] for name in key) for row in read(run, table)]
        assert len(rows) == len(set(rows)), table


def require_whole(run: RunFolder, spec: SweepSpec, *, ended_after: int | None = None) -> None:
    """Each of the N trials stands once in every table that its outcome calls for, and once, finished, in the
    journal. N is the spec's number, unless the search ended before."""
    require_no_duplicates(run)
    wanted = spec.trials if ended_after is None else ended_after
    trials, blocks, requests = (read(run, table) for table in ("trials", "blocks", "requests"))
    assert sorted(row["trial"] for row in trials) == list(range(wanted))
    complete = {row["trial"] for row in trials if row["outcome"] == "complete"}
    for table in (blocks, requests):
        assert {row["trial"] for row in table if row["phase"] == "search"} >= complete
    searched = [row for row in blocks if row["phase"] == "search"]
    for row in trials:
        own = [block for block in searched if block["trial"] == row["trial"]]
        counted = [block for block in own if not block["dropped"]]
        assert len(counted) == 2 * row["pairs"] * (row["outcome"] == "complete")
        if row["outcome"] == "complete":
            assert len(own) >= spec.blocks.warmup + 2 * row["pairs"]
            assert {block["pair"] for block in counted} == set(range(row["pairs"]))
            assert {block["outcome"] for block in counted} == {"complete"}
    sent = {(row["trial"], row["phase"], row["block"]): row["requests"] for row in blocks}
    for block, count in sent.items():
        assert sum((row["trial"], row["phase"], row["block"]) == block for row in requests) == count
    assert len(requests) == sum(sent.values())

    told = journal(run, spec.study)
    assert [trial.number for trial in told] == list(range(wanted))
    # What Optuna's samplers look at is pruned. A lost trial, or one whose baseline failed, says nothing of its point.
    states = {"complete": "COMPLETE", "infeasible": "PRUNED", "failed": "PRUNED", "lost": "FAIL"}
    for row in trials:
        trial = told[row["trial"]]
        says_nothing = row["failure"] == BASELINE_FAILED
        assert trial.state.name == ("FAIL" if says_nothing else states[row["outcome"]])
        assert trial.params == json.loads(row["point"])
        assert trial.values == _ratios(row)
        is_broken = row["outcome"] in ("infeasible", "failed") and not says_nothing
        broken = {row["failure"]: 1.0} if is_broken else {}
        assert {name: value for name, value in trial.constraints.items() if name != "0"} == broken


def _ratios(row: Table) -> list[float] | None:
    if row["outcome"] != "complete":
        return None
    return [row["ratio"]] if row["objectives"] is None else [one["ratio"] for one in row["objectives"]]


def new_run(folder: Path, spec: SweepSpec) -> RunFolder:
    """A run folder with its resolved spec, as the command makes it."""
    run = RunFolder.create(folder)
    run.spec.write_text(spec.to_yaml())
    return run


def read_spec(run: RunFolder) -> SweepSpec:
    """The spec of a run folder, as another process finds it."""
    return load_spec(run.spec)
