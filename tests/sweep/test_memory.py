from __future__ import annotations

import dataclasses
import io
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.analysis import best
from orchestrator.engines import EngineConfig, EngineInfo
from orchestrator.engines.faulty import FaultyEngine
from orchestrator.errors import UserError
from orchestrator.records import RunFolder, collect, read_arrow
from orchestrator.sweep import SweepSpec
from orchestrator.sweep.memory import FILE
from orchestrator.sweep.reuse import conditions, machine_of
from tests.sweep.studies import content, make_spec, new_run, read, require_no_duplicates, run_sweep

NODE = collect()


class PlacedEngine(FaultyEngine):
    """One that says what it runs on, as an engine in an actor does."""

    node: Mapping[str, Any] = NODE

    def start(self, config: EngineConfig) -> EngineInfo:
        return dataclasses.replace(super().start(config), node=self.node)


def swept(folder: Path, spec: SweepSpec, engine: type[FaultyEngine] = PlacedEngine) -> RunFolder:
    run = new_run(folder, spec)
    run_sweep(spec, run, engine)
    return run


def trials(run: RunFolder) -> list[dict[str, Any]]:
    # Not by pandas: there a text that is missing in every row is a number.
    rows: list[dict[str, Any]] = read_arrow(run.path, "trials").sort_by("trial").to_pylist()
    return rows


def origins(run: RunFolder) -> list[str | None]:
    return [row["reused_from"] for row in trials(run)]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that measured every point but the baseline."""
    return swept(tmp_path_factory.mktemp("earlier") / "run", make_spec(study="earlier", trials=12))


def remembering(earlier: RunFolder, **changes: Any) -> SweepSpec:
    return make_spec(**{"memory": {"runs": [str(earlier.path)]}, "confirm__points": 0, **changes})


def test_a_point_that_was_measured_alike_is_taken_over_and_confirmed_afresh(tmp_path: Path, earlier: RunFolder) -> None:
    run = swept(tmp_path / "run", remembering(earlier, seed=7, confirm__points=2))
    require_no_duplicates(run)
    theirs = {row["point"]: row for row in trials(earlier)}
    for row in trials(run):
        origin = theirs[row["point"]]
        assert row["reused_from"] == f"{earlier.path} trial {origin['trial']}"
        for name in ("outcome", "ratio", "ratio_low", "ratio_high", "pairs", "candidate_value", "workspace_rows"):
            assert row[name] == origin[name], name
        assert (row["measuring_s"], row["engine_id"]) == (0.0, None)
    phases = {row["phase"] for row in read(run, "blocks")}
    assert phases == {"confirm", "accuracy"}
    assert best(run.path).decision == "winner"


def test_the_first_trials_know_the_best_point(tmp_path: Path, earlier: RunFolder) -> None:
    run = swept(tmp_path / "run", remembering(earlier, trials=4, memory__reuse=False))
    assert origins(run) == [None] * 4
    best_there = min(trials(earlier), key=lambda row: row["ratio"])["point"]
    assert best_there in [row["point"] for row in trials(run)]


@pytest.mark.parametrize(
    "changes",
    [
        {"memory__reuse": False},
        {"workload__input_len": 2049},
        {"load": {"concurrency": 2}},
        {"engine__env": {"OMP_NUM_THREADS": "1"}},
        {"baseline": {"mla_workspace_rows": 512}},
        {"objective": {"metric": "p99_ttft_ms"}},
    ],
)
def test_other_conditions_are_measured(tmp_path: Path, earlier: RunFolder, changes: dict[str, Any]) -> None:
    run = swept(tmp_path / "run", remembering(earlier, trials=3, **changes))
    assert set(origins(run)) == {None}


def test_another_machine_or_one_that_is_not_known_is_measured(tmp_path: Path, earlier: RunFolder) -> None:
    class Elsewhere(PlacedEngine):
        node = {**NODE, "memory_bytes": 1}  # noqa: RUF012

    for name, engine in (("other", Elsewhere), ("unknown", FaultyEngine)):
        run = swept(tmp_path / name, remembering(earlier, trials=2), engine)
        assert origins(run) == [None] * 2


def test_a_resumed_study_knows_what_it_knew(tmp_path: Path, earlier: RunFolder) -> None:
    source = RunFolder(shutil.copytree(earlier.path, tmp_path / "source"))
    whole = swept(tmp_path / "whole", remembering(source, trials=6))
    spec = remembering(source, trials=6)
    cut = new_run(tmp_path / "cut", spec)
    shutil.copy(whole.path / FILE, cut.path / FILE)
    shutil.rmtree(source.path)
    run_sweep(spec, cut, PlacedEngine)
    assert [row["point"] for row in trials(cut)] == [row["point"] for row in trials(whole)]
    assert origins(cut) == origins(whole)
    assert None not in origins(cut)


def test_knobs_are_matched_by_name_and_a_value_at_engine_start_is_none(tmp_path: Path, earlier: RunFolder) -> None:
    space = {
        "mla_workspace_rows": {"scope": "live", "values": [512, 1024]},
        "max_num_batched_tokens": {"scope": "live", "values": [512]},
        "max_num_seqs": {"scope": "live", "values": [None, 2]},
    }
    run = swept(tmp_path / "run", remembering(earlier, trials=4, space=space))
    for row in trials(run):
        assert (row["reused_from"] is not None) == (json.loads(row["point"])["max_num_seqs"] is None)


def test_what_there_is_nothing_to_learn_from_is_one_line(tmp_path: Path, earlier: RunFolder) -> None:
    def refused(spec: SweepSpec) -> str:
        run = new_run(tmp_path / "run", spec)
        made: list[FaultyEngine] = []

        def make() -> FaultyEngine:
            made.append(PlacedEngine())
            return made[-1]

        with pytest.raises(UserError) as error:
            run_sweep(spec, run, make, io.StringIO())
        assert not made
        assert not run.provenance.exists()
        shutil.rmtree(run.path)
        return str(error.value)

    missing = str(tmp_path / "none")
    assert refused(make_spec(memory={"runs": [missing]})) == f"memory.runs: {missing}: does not exist."
    other = {"max_num_seqs": {"scope": "live", "values": [2, 4]}}
    assert refused(remembering(earlier, space=other)) == (
        f"memory.runs: {earlier.path}: shares no knob with this space: it varied max_num_batched_tokens, "
        "mla_workspace_rows, the space has max_num_seqs"
    )


def test_the_section_is_checked(tmp_path: Path, load_error: Any) -> None:
    runs = {"runs": ["runs/a"]}
    assert load_error(memory={"runs": []}).endswith("memory.runs: should not be empty, got []")
    twice = load_error(memory={"runs": ["runs/a", "runs/../runs/a"]})
    assert "memory.runs: names a run twice: runs/a, runs/../runs/a" in twice
    ladder = load_error(memory=runs, fidelity={"rungs": ["short", "full"]})
    assert "memory.warm_start: the ladder of fidelity chooses the points: set it to false" in ladder
    two = [{"metric": "median_ttft_ms"}, {"metric": "p99_ttft_ms"}]
    assert "memory: is for one objective; objectives has 2" in load_error(memory=runs, objectives=two)


def test_conditions_and_machines_are_equal_where_it_matters() -> None:
    spec = make_spec()
    one = conditions(content_of(spec))
    assert conditions(content_of(make_spec(trials=3, seed=9, confirm={"points": 1}))) == one
    assert conditions(content_of(make_spec(model="org/other"))) != one
    engine = {"kind": "vllm", "version": "0.32.0", "node": NODE}
    assert machine_of({**engine, "engine_id": "engine-2", "start_s": 3.0}) == machine_of(engine)
    assert machine_of({**engine, "version": "0.33.0"}) != machine_of(engine)
    assert machine_of({**engine, "node": {}}) is None


def content_of(spec: SweepSpec) -> dict[str, Any]:
    content_: dict[str, Any] = json.loads(spec.model_dump_json())
    return content_


@pytest.fixture
def load_error(tmp_path: Path) -> Any:
    """The message for a spec that is refused."""
    import yaml

    from orchestrator.sweep import load_spec

    def error(**changes: Any) -> str:
        path = tmp_path / "spec.yaml"
        path.write_text(yaml.safe_dump(content(**changes)))
        with pytest.raises(UserError) as found:
            load_spec(path)
        return str(found.value)

    return error
