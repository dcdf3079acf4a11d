"""From a run to what is deployed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.analysis.export import deployment
from orchestrator.analysis.export.deployment import engine_args
from orchestrator.engines import EngineConfig
from orchestrator.errors import ChunksmithError, UserError
from orchestrator.search import serve_command
from tests.analysis.runs import Run

NAMES = ("block_size", "enable_prefix_caching", "max_num_seqs", "kv_cache_dtype", "gpu_memory_utilization")
VALUES = st.one_of(
    st.integers(0, 10**6),
    st.booleans(),
    st.floats(0.1, 0.9),
    st.sampled_from(["bfloat16", "fp8_e4m3", "auto", "a b"]),
    st.lists(st.sampled_from([1, 2, 4]), min_size=2),
    st.dictionaries(st.sampled_from(["mode", "level"]), st.integers(0, 3), min_size=1),
)


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(NAMES), VALUES))
def test_the_words_of_a_command_give_the_arguments_back(args: dict[str, object]) -> None:
    words, _ = serve_command(EngineConfig(model="m", args=args), {})
    assert engine_args(words[1:]) == args


def test_the_winner_is_exported_with_its_figures(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.finalist(0, 0.9)
    run.finalist(1, 0.66)
    what = deployment(run.path)
    assert (what.study, what.trial, what.model, what.gpus) == ("demo", 1, "tiny model", 0)
    assert what.verdict.startswith("winner: 0.66")
    assert what.env == {"VLLM_PLUGINS": "chunksmith", "NOTE": "a b"}
    assert what.engine_args == {"additional_config": {"chunksmith": {"mla_workspace_rows": 256}}}
    assert what.needs_plugin


def test_another_trial_is_marked_as_no_winner(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.finalist(0, 0.9)
    run.finalist(1, 0.66)
    assert deployment(run.path, 0).verdict.startswith("NOT a confirmed winner")


def test_without_a_winner_a_trial_has_to_be_named(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.trial(0)
    with pytest.raises(ChunksmithError, match=r"no winner to export .* Name a trial"):
        deployment(run.path)
    with pytest.raises(UserError, match="no trial 7; recorded are 0 to 0"):
        deployment(run.path, 7)


def test_what_failed_or_cannot_be_served_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.trial(0, outcome="failed", failure="oom", ratio=None)
    run.trial(1, serve_args=[])
    with pytest.raises(ChunksmithError, match=r"trial 0 is failed \(oom\)"):
        deployment(run.path, 0)
    with pytest.raises(ChunksmithError, match="kernel lab"):
        deployment(run.path, 1)


def test_the_version_is_that_of_the_engines(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    run.finalist(0, 0.5)
    assert deployment(run.path).vllm_version is None
    run.folder.provenance.write_text(json.dumps({"engines": [{"version": "0.32.0+cpu"}, {"version": "0.32.0"}]}))
    assert deployment(run.path).vllm_version == "0.32.0"
    run.folder.provenance.write_text(json.dumps({"engines": [{"version": "0.31.0"}, {"version": "0.32.0"}]}))
    assert deployment(run.path).vllm_version is None
