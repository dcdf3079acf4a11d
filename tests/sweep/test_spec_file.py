from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.errors import UserError
from orchestrator.measurement.metrics import METRIC_NAMES, THROUGHPUTS
from orchestrator.sweep import load_spec
from orchestrator.sweep.spec import direction_of
from tests.sweep.studies import content

SPECS = Path(__file__).resolve().parents[2] / "search_spaces"


def written(folder: Path, spec: Any) -> Path:
    path = folder / "spec.yaml"
    path.write_text(spec if isinstance(spec, str) else yaml.safe_dump(spec, sort_keys=False))
    return path


def error_of(path: Path) -> str:
    """The one line that the spec is refused with, without the file in front."""
    with pytest.raises(UserError) as caught:
        load_spec(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert len(message) < len(str(path)) + 900
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # A name that is not known, at each level.
        ({"trails": 3}, "unknown key 'trails'; did you mean 'trials'? Allowed: accuracy, baseline, "),
        ({"engine__arg": {}}, "engine: unknown key 'arg'; did you mean 'args'? Allowed: args, env, kind, plugin."),
        (
            {"engine__plugin__cpu_chunk_prefill": True},
            "engine.plugin: unknown key 'cpu_chunk_prefill'; did you mean 'cpu_chunked_prefill'? Allowed: ",
        ),
        (
            {"space__mla_workspace_rows__vales": [1]},
            "space.mla_workspace_rows: unknown key 'vales'; did you mean 'values'?",
        ),
        ({"workload__inputlen": 3}, "workload: unknown key 'inputlen'; did you mean 'input_len'?"),
        ({"load__concurency": 3}, "load: unknown key 'concurency'; did you mean 'concurrency'?"),
        ({"objective__metrics": "x"}, "objective: unknown key 'metrics'; did you mean 'metric'?"),
        ({"blocks__warm_up": 3}, "blocks: unknown key 'warm_up'; did you mean 'warmup'?"),
        ({"confirm__point": 3}, "confirm: unknown key 'point'; did you mean 'points'?"),
        ({"accuracy__toleranse": 3}, "accuracy: unknown key 'toleranse'; did you mean 'tolerance'?"),
        ({"resources__cpu": 3}, "resources: unknown key 'cpu'; did you mean 'cpus'?"),
        ({"model": "tiny-mla", "tiny_model": {"layer": 3}}, "tiny_model: unknown key 'layer'; did you mean 'layers'?"),
        (
            {"space__mla_workspace_row": {"scope": "live", "values": [1]}},
            "space: unknown knob 'mla_workspace_row'; did you mean 'mla_workspace_rows'?",
        ),
        (
            {"baseline": {"mla_rows": 1}},
            "baseline: unknown knob 'mla_rows'; did you mean 'mla_workspace_rows'? Allowed: ",
        ),
        (
            {"engine__args__max_modle_len": 1},
            "engine.args: unknown engine argument 'max_modle_len'; did you mean 'max_model_len'?",
        ),
        (
            {"objective__metric": "median_tft_ms"},
            "objective.metric: unknown metric 'median_tft_ms'; did you mean 'median_ttft_ms'? Nearest of ",
        ),
        # A value of the wrong type or out of its range.
        ({"trials": 2.5}, "trials: should be a valid integer, got 2.5"),
        ({"trials": True}, "trials: should be a valid integer, got True"),
        ({"trials": "many"}, "trials: should be a valid integer, got 'many'"),
        ({"trials": 0}, "trials: should be greater than or equal to 1, got 0"),
        ({"version": 2}, "version: should be 1, got 2"),
        ({"study": "a/b"}, "study: string should match pattern "),
        ({"workload": 3}, "workload: should be a mapping of keys, got 3"),
        ({"space": {}}, "space: should not be empty, got {}"),
        ({"space": [1]}, "space: should be a mapping of keys, got [1]"),
        ({"objective__direction": "down"}, "objective.direction: should be 'minimize' or 'maximize', got 'down'"),
        ({"engine__env": {"A": 1}}, "engine.env.A: should be a valid string, got 1"),
        ({"blocks__half_width": float("inf")}, "blocks.half_width: should be a finite number, got inf"),
        ({"accuracy__tolerance": -0.1}, "accuracy.tolerance: should be greater than or equal to 0, got -0.1"),
        ({"blocks__min_pairs": 9}, "blocks: min_pairs 9 is above max_pairs 3"),
        ({"confirm__starts": 4}, "confirm: starts 4 is above pairs 3"),
        ({"confirm__starts": 2}, "confirm: starts must be 1, or 3 and more"),
        ({"accuracy": {}}, "accuracy.input_len: is missing"),
        (
            {"baseline": {"mla_workspace_rows": [3]}},
            "baseline.mla_workspace_rows: should be a number, true, false, text or null, got [3]",
        ),
        ({"tiny_model": {"layers": 2}}, "tiny_model: only for model tiny-mla, got model 'org/model'"),
        ({"model": "tiny-mla", "tiny_model": {"layers": 0}}, "tiny_model: layers must be at least 1, got 0"),
        ({"trials": 0, "seed": -1}, "seed: should be greater than or equal to 0, got -1 (and 1 more)"),
        # Knobs.
        ({"space__dtype": {"scope": "engine", "values": [[1], "half"]}}, "space.dtype.values.0: should be a number, "),
        (
            {"space__dtype": {"scope": "live", "values": ["half"]}},
            "space.dtype.scope: must be engine; live is possible for long_",
        ),
        (
            {"space__dtype": {"scope": "life", "values": ["half"]}},
            "space.dtype.scope: should be 'live', 'engine' or 'load', got 'life'",
        ),
        ({"space__model": {"scope": "engine", "values": ["x"]}}, "space.model: belongs to the key model"),
        ({"engine__args__model": "x"}, "engine.args.model: belongs to the key model"),
        ({"engine__args__worker_extension_cls": "x"}, "engine.args.worker_extension_cls: belongs to nobody"),
        (
            {"engine__args__additional_config": {"chunksmith": {}}},
            "engine.args.additional_config.chunksmith: belongs to engine.plugin",
        ),
        ({"space__max_num_seqs": {"scope": "live"}}, "space.max_num_seqs: give either values, or low and high"),
        (
            {"space__max_num_seqs": {"scope": "live", "values": []}},
            "space.max_num_seqs.values: should not be empty, got []",
        ),
        (
            {"space__max_num_seqs": {"scope": "live", "values": [2, 2]}},
            "space.max_num_seqs: values holds one value twice",
        ),
        (
            {"space__max_num_seqs": {"scope": "live", "values": [2, 0.5]}},
            "space.max_num_seqs: must be a whole number from 1 up, got 0.5",
        ),
        (
            {"space__max_num_seqs": {"scope": "live", "values": [True]}},
            "space.max_num_seqs: must be a whole number from 1 up, got True",
        ),
        (
            {"space__long_prefill_token_threshold": {"scope": "live", "values": [-1]}},
            "space.long_prefill_token_threshold: must be a whole number from 0 up, got -1",
        ),
        (
            {"space__max_num_seqs": {"scope": "live", "values": [4, 5]}},
            "space.max_num_seqs: 5 is above 4, the value under engine",
        ),
        (
            {"baseline": {"max_num_batched_tokens": 1025}},
            "baseline.max_num_batched_tokens: 1025 is above 1024, the value under",
        ),
        (
            {"engine__plugin__prefill_chunk_size": 2, "space__prefill_chunk_size": {"scope": "live", "values": [3]}},
            "space.prefill_chunk_size: 3 is above 2, the value under engine",
        ),
        (
            {"space__additional_config": {"scope": "engine", "values": ["x"]}},
            "space.additional_config: is a mapping; its ",
        ),
        (
            {"engine__args__additional_config": "chunksmith"},
            "engine.args.additional_config: should be a mapping of keys, got 'chunksmith'",
        ),
        ({"engine__args__additional_config": 3}, "engine.args.additional_config: should be a mapping of keys, got 3"),
        (
            {"space__mla_workspace_rows": {"scope": "live", "low": 1, "high": 10_001}},
            "space.mla_workspace_rows: 10001 values, at most 10000 are allowed: thin it out by step, log2, powers or "
            "count",
        ),
        (
            {"space__mla_workspace_rows": {"scope": "live", "low": 1, "high": 10**15}},
            f"space.mla_workspace_rows: {10**15} values, at most 10000 are allowed: ",
        ),
        # Two keys that do not fit together.
        (
            {"objective": {"metric": "request_throughput", "direction": "minimize"}},
            "objective.direction: must be maximize for request_throughput, got minimize",
        ),
        (
            {"objective": {"metric": "p99_ttft_ms", "direction": "maximize"}},
            "objective.direction: must be minimize for p99_ttft_ms, got maximize",
        ),
        ({"objective__direction": "maximize"}, "objective.direction: must be minimize for median_ttft_ms, got max"),
        (
            {"objective": {"metric": "median_ttft", "direction": "minimize"}},
            "objective.metric: unknown metric 'median_ttft'; did you mean 'median_ttft_ms'?",
        ),
        (
            {"workload__input_len": 1024},
            "workload.input_len: must be above 1024, the tokens of a scheduler step: a prompt that fits into one step "
            "never reaches the workspace of mla_workspace_rows; got 1024",
        ),
        ({"accuracy__input_len": 1000}, "accuracy.input_len: must be above 1024, the tokens of a scheduler step: "),
        (
            {"baseline": {"max_num_batched_tokens": 768}, "accuracy__input_len": 768},
            "accuracy.input_len: must be above 768, the tokens",
        ),
        (
            {"space__max_num_batched_tokens": {"scope": "engine", "values": [512, 1500]}},
            "accuracy.input_len: must be above 1500, the tokens",
        ),
        (
            {"engine__args__long_prefill_token_threshold": 300, "accuracy__input_len": 300},
            "accuracy.input_len: must be above 300, the tokens",
        ),
        (
            {
                "space__long_prefill_token_threshold": {"scope": "live", "values": [0, 300]},
                "engine__args__long_prefill_token_threshold": 300,
                "accuracy__input_len": 1024,
            },
            "accuracy.input_len: must be above 1024, the tokens",
        ),
        (
            {"objective__metric": "p99_tpot_ms"},
            "workload.output_len: p99_tpot_ms needs at least 2 output tokens, got 1",
        ),
        ({"accuracy__input_len": 8192}, "accuracy: 8196 tokens of input and output exceed max_model_len 8192"),
        ({"workload__input_len": 8192}, "workload: 8193 tokens of input and output exceed max_model_len 8192"),
        # Workload, load, SLO and the search for a rate.
        (
            {"workload": {"kind": "shared_prefx"}},
            "workload: unknown kind 'shared_prefx'; did you mean 'shared_prefix'? Allowed: burst_behind_giant, ",
        ),
        (
            {"workload": {"kind": "random", "input_len": {"kind": "zip"}}},
            "workload.input_len: unknown kind 'zip'; did you mean 'zipf'? Allowed: fixed, ",
        ),
        ({"workload__promts": 3}, "workload: unknown key 'promts'; did you mean 'prompts'?"),
        ({"workload__prompts": 0}, "workload.prompts: should be greater than or equal to 1, got 0"),
        (
            {"workload__input_len": {"kind": "uniform", "low": 9, "hihg": 10}},
            "workload.input_len: unknown key 'hihg'; did you mean 'high'?",
        ),
        ({"workload__input_len": {"low": 9}}, "workload.input_len: kind is missing; allowed: fixed, uniform, "),
        ({"load": {"kind": "posson", "rate": 1.0}}, "load: unknown kind 'posson'; did you mean 'poisson'?"),
        ({"load": {"kind": "poisson", "rate": -1.0}}, "load.rate: should be greater than 0, got -1.0"),
        ({"load": {"kind": "poisson", "rte": 1.0}}, "load: unknown key 'rte'; did you mean 'rate'?"),
        ({"load": {"rate": 1.0}}, "load: kind is missing; allowed: all_at_once, closed_loop, constant, "),
        ({"load": {"concurrency": 0}}, "load.concurrency: should be greater than or equal to 1, got 0"),
        ({"slo": {"tttf_ms": 3.0}}, "slo: unknown key 'tttf_ms'; did you mean 'ttft_ms'?"),
        ({"slo": {}}, "slo: give at least one limit: ttft_ms, tpot_ms or e2el_ms"),
        ({"slo": {"ttft_ms": 0.0}}, "slo.ttft_ms: should be greater than 0, got 0.0"),
        ({"objective__metric": "request_goodput"}, "slo: is missing; request_goodput counts the requests that keep it"),
        (
            {"objective__metric": "output_throughput_per_gpu"},
            "resources.gpus: must be above 0 for output_throughput_per_gpu, got 0",
        ),
        ({"rate_search": {"low": 2.0, "high": 1.0}}, "rate_search: low 2 must be below high 1"),
        (
            {"rate_search": {"low": 1.0, "high": 2.0}},
            "rate_search: is only for the metric goodput_at_slo, got median_ttft_ms",
        ),
        (
            {"slo": {"ttft_ms": 1.0}, "objective__metric": "goodput_at_slo"},
            "rate_search: is missing; goodput_at_slo searches between two rates",
        ),
        (
            {
                "slo": {"ttft_ms": 1.0},
                "objective__metric": "goodput_at_slo",
                "rate_search": {"low": 1.0, "high": 2.0},
            },
            "load.kind: must be constant, poisson or gamma for goodput_at_slo, got closed_loop: the search sets",
        ),
        # The model.
        (
            {"model": "/nowhere/model"},
            "model: '/nowhere/model' does not exist; allowed: tiny-mla, a model's folder, or a hub",
        ),
        ({"model": "./model"}, "model: './model' does not exist; allowed: "),
        ({"model": "tiny_mla"}, "model: 'tiny_mla' does not exist; allowed: "),
    ],
)
def test_each_mistake_is_one_line_with_key_value_and_what_is_allowed(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    found = error_of(written(tmp_path, content(**changes)))
    assert found[: len(message)] == message


@pytest.mark.parametrize(
    "changes",
    [
        {"workload__input_len": 1025, "accuracy__input_len": 1025},
        {"baseline": {"max_num_batched_tokens": 768}, "accuracy__input_len": 769},
        {"engine__args__long_prefill_token_threshold": 300, "accuracy__input_len": 301},
        # Without the knob no prompt has to reach the workspace; and what vLLM's default is, the spec does not say.
        {"space": {"max_num_seqs": {"scope": "live", "values": [2]}}, "accuracy__input_len": 9},
        {"space__max_num_batched_tokens": {"scope": "live", "values": [512]}, "engine__args": {}},
    ],
)
def test_a_prompt_that_takes_two_steps_is_long_enough(tmp_path: Path, changes: dict[str, Any]) -> None:
    load_spec(written(tmp_path, content(**changes)))


@pytest.mark.parametrize(
    ("metric", "direction"),
    [("p99_e2el_ms", "minimize"), ("mean_ttft_ms", "minimize"), ("total_token_throughput", "maximize")],
)
def test_the_direction_follows_from_the_metric_and_is_written_out(tmp_path: Path, metric: str, direction: str) -> None:
    spec = load_spec(written(tmp_path, content(objective={"metric": metric})))
    assert yaml.safe_load(spec.to_yaml())["objective"] == {"metric": metric, "direction": direction}
    assert load_spec(written(tmp_path, spec.to_yaml())) == spec


def test_no_metric_can_be_better_both_ways() -> None:
    for metric in METRIC_NAMES:
        assert direction_of(metric) == ("maximize" if metric in THROUGHPUTS else "minimize")


def test_a_model_folder_without_a_configuration_is_not_a_model(tmp_path: Path) -> None:
    assert "has no config.json" in error_of(written(tmp_path, content(model=str(tmp_path))))


def test_a_model_folder_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for given_model in ("./model", "model", "~/model"):
        spec = load_spec(written(tmp_path, content(model=given_model)))
        assert spec.engine_config().model == str(tmp_path / "model")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a spec is a mapping of keys, got NoneType"),
        ("- 1\n", "a spec is a mapping of keys, got list"),
        ("a: [1\nb: 2\n", "not YAML: "),
        ("a: \t1\n  b: 2\n", "not YAML: "),
    ],
)
def test_what_is_no_spec_at_all_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    found = error_of(written(tmp_path, text))
    assert found.startswith(message)
    if message.startswith("not YAML"):
        assert re.search(r"line \d, column \d", found)


def test_a_spec_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    assert error_of(tmp_path / "gone.yaml") == "cannot read the spec: No such file or directory"
    assert error_of(tmp_path) == "cannot read the spec: Is a directory"
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert error_of(tmp_path / "binary.yaml").startswith("cannot read the spec: ")


def test_the_resolved_spec_reads_back_as_itself(tmp_path: Path) -> None:
    spec = load_spec(written(tmp_path, content(baseline={"mla_workspace_rows": 4096}, model="tiny-mla")))
    assert load_spec(written(tmp_path, spec.to_yaml())) == spec


@pytest.mark.parametrize("path", sorted(SPECS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_spec_of_ours_is_right_and_reads_back_as_itself(tmp_path: Path, path: Path) -> None:
    spec = load_spec(path)
    assert load_spec(written(tmp_path, spec.to_yaml())) == spec
