from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.engines import EngineConfig
from orchestrator.search import Point, engine_config, serve_command
from orchestrator.search.audit import audit
from orchestrator.search.flags import is_environment, is_load, is_nested
from orchestrator.search.serve import PLUGIN_KNOBS
from orchestrator.search.vllm_names import vllm_names
from orchestrator.sweep import SweepSpec, load_spec

SPECS = Path(__file__).resolve().parents[2] / "search_spaces"
ON_GPUS = ("deepseek_v32_sparse", "deepseek_v3_dcp", "deepseek_v4_area", "glm5_dcp", "kimi_k3_dcp8")
ALL = sorted(path.stem for path in SPECS.glob("*.yaml"))
OF_VLLM = [name for name in ALL if not name.startswith("lab_")]
SAMPLED = 25


@pytest.fixture(scope="module")
def parse() -> Any:
    """The parser of ``vllm serve``."""
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    return make_arg_parser(FlexibleArgumentParser()).parse_args


def spec_of(name: str) -> SweepSpec:
    return load_spec(SPECS / f"{name}.yaml")


def points_of(spec: SweepSpec) -> list[Point]:
    """Some valid points of a space, every value of every knob among them if the space is small."""
    return spec.search_space().valid_points(SAMPLED, seed=1)[:SAMPLED]


@pytest.mark.vllm
@pytest.mark.parametrize("name", OF_VLLM)
def test_vllms_parser_reads_every_sampled_point_back(name: str, parse: Any) -> None:
    spec = spec_of(name)
    # The command line needs no model: none is built here.
    base = EngineConfig(model="org/model", args=spec.engine.args, env=spec.engine.env, plugin=spec.engine.plugin)
    others = {"OMP_NUM_THREADS", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"}
    assert set(spec.engine.env) <= vllm_names().environment | others
    for point in points_of(spec):
        words, env = serve_command(base, point)
        parsed = parse(words)
        for knob, value in point.items():
            if value is None or is_load(knob):
                continue
            if is_environment(knob):
                assert env[knob] == str(value)
            elif knob in PLUGIN_KNOBS:
                assert parsed.additional_config["chunksmith"][knob] == value
            elif is_nested(knob):
                section, _, key = knob.partition(".")
                found = getattr(getattr(parsed, section), key)
                assert getattr(found, "name", found) == value, knob
            else:
                assert getattr(parsed, knob) == value, knob


@pytest.mark.vllm
@pytest.mark.parametrize("name", ON_GPUS)
def test_the_engine_takes_the_sampled_points_as_arguments_too(name: str) -> None:
    from vllm import AsyncEngineArgs

    spec = spec_of(name)
    base = EngineConfig(model="org/model", args=spec.engine.args, env=spec.engine.env, plugin=spec.engine.plugin)
    for point in points_of(spec)[:5]:
        args = AsyncEngineArgs(model="org/model", **engine_config(base, point).args)
        for knob, value in point.items():
            section, _, key = knob.partition(".")
            if value is not None and is_nested(knob):
                found = getattr(getattr(args, section), key)
                assert getattr(found, "name", found) == value, knob


@pytest.mark.vllm
def test_vllms_parser_refuses_a_flag_that_it_does_not_know(parse: Any) -> None:
    words, _ = serve_command(EngineConfig(model="org/model"), {"block_sise": 16})
    with pytest.raises(SystemExit):
        parse(words)
    words, _ = serve_command(EngineConfig(model="org/model"), {"attention_config.mla_prefill_backend": "FLASH"})
    with pytest.raises(SystemExit):
        parse(words)


@pytest.mark.parametrize("name", ON_GPUS)
def test_a_space_for_gpus_is_large_and_every_one_of_its_values_can_be_reached(name: str) -> None:
    spec = spec_of(name)
    space = spec.search_space()
    numbers = audit(space, seed=1)
    assert numbers.valid > 100_000
    assert 0.1 < numbers.valid / numbers.distinct < 1
    seen: dict[str, set[Any]] = {}
    for point in space.valid_points(400, seed=1):
        assert space.violated(point) is None
        for knob, value in point.items():
            seen.setdefault(knob, set()).add(value)
    assert seen == {knob.name: set(knob.values) for knob in space.knobs}


def test_the_spaces_for_gpus_hold_the_cap_or_the_area_and_the_knobs_around_them() -> None:
    held: set[str] = set()
    for name in ON_GPUS:
        names = set(spec_of(name).space)
        assert names & {"mla_workspace_rows", "prefill_area_limit"}
        held |= names
    assert held >= {
        "attention_backend",
        "attention_config.mla_prefill_backend",
        "attention_config.sparse_mla_prefill_workspace_factor",
        "block_size",
        "compilation_config.cudagraph_mode",
        "cp_kv_cache_interleave_size",
        "dcp_comm_backend",
        "dcp_q_replicate",
        "decode_context_parallel_size",
        "gpu_memory_utilization",
        "kv_cache_dtype",
        "max_num_batched_tokens",
        "max_num_seqs",
        "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE",
        "VLLM_SPARSE_INDEXER_MAX_LOGITS_MB",
    }


@pytest.mark.parametrize("name", ALL)
def test_each_spec_says_at_its_top_which_hardware_it_needs(name: str) -> None:
    first = (SPECS / f"{name}.yaml").read_text().partition("\n")[0]
    assert first.startswith(("# Needs ", "# Runs anywhere"))
