from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.cli import main
from tests.sweep.studies import content

ENGINE_KNOB = {"scope": "engine", "values": [None, 16, 32, 48]}


def written(folder: Path, **changes: Any) -> str:
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(content(**changes), sort_keys=False))
    return str(path)


@pytest.fixture(autouse=True)
def _no_earlier_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_it_prints_size_removals_groups_and_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = written(
        tmp_path,
        space__block_size={**ENGINE_KNOB, "when": "max_num_batched_tokens == 512"},
        constraints={"rules": ["mla_workspace_rows <= 8 * max_num_batched_tokens", "block_size != 48"]},
    )
    assert main(["validate", spec, "--start-s", "30", "--block-s", "2"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "study small, 6 trials" in text
    assert "block_size engine null, 16, 32, 48 max_num_batched_tokens == 512" in text
    # 6 rows with 256 tokens, 6 rows and 4 blocks with 512.
    assert "space: 48 combinations, 30 different points, 23 of them valid, engine groups: 3" in text
    assert "constraints.rules.0 1 1 mla_workspace_rows <= 8 * max_num_batched_tokens" in text
    assert "constraints.rules.1 6 6 block_size != 48" in text
    assert "max-num-seqs 0 0 max_num_seqs <= max_num_batched_tokens" in text
    assert "engine starts 1 to 5, blocks 48 to 60, minutes 2 to 4" in text
    assert "rests on 30 s for an engine start (given), 2 s for a block (given)" in text


def test_a_sample_is_of_valid_points_and_as_large_as_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = written(tmp_path, constraints={"rules": ["mla_workspace_rows <= 4 * max_num_batched_tokens"]})
    assert main(["validate", spec, "--sample", "5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["sample"]) == 5
    for point in found["sample"]:
        assert point["mla_workspace_rows"] <= 4 * point["max_num_batched_tokens"]
    assert (found["space"]["raw"], found["space"]["valid"], found["space"]["is_exact"]) == (12, 9, True)
    assert found["groups"] == 1
    assert found["cost"]["seconds"]["source"].count("assumed") == 2
    assert found["knobs"]["max_num_batched_tokens"] == {"scope": "live", "values": [256, 512]}
    assert main(["validate", spec, "--sample", "99"]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = next(index for index, line in enumerate(lines) if line.split() == list(found["knobs"]))
    assert len([line for line in lines[start + 2 :] if line.strip()]) == 9


def test_a_large_space_is_estimated_and_a_wide_sample_has_a_column_a_point(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    knobs = {
        f"space__{name}": {"scope": "engine", "low": 1, "high": 8}
        for name in (
            "block_size",
            "tensor_parallel_size",
            "cp_kv_cache_interleave_size",
            "long_prefill_token_threshold",
        )
    }
    knobs["space__VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE"] = {"scope": "engine", "low": 1, "high": 16}
    spec = written(
        tmp_path,
        **knobs,
        constraints={"rules": ["block_size > tensor_parallel_size"], "use": ["vllm-dcp"], "model": "kimi-k3"},
    )
    assert main(["validate", spec, "--sample", "2"]) == 0
    text = capsys.readouterr().out
    assert f"space: {12 * 8**4 * 16:,} combinations, about " in text
    assert "(estimated from 5,000 random draws)" in text
    assert "engine groups: more than " in text
    assert "Of use, these remove nothing: dcp-divides-tp, dcp-fits-pcp, " in text
    share = next(line.split()[1] for line in text.splitlines() if "constraints.rules.0" in line)
    assert 53.0 <= float(share.removesuffix("%")) <= 60.0  # 36 of 64
    head = [line.split() for line in text.splitlines() if line.split()[:1] == ["knob"]]
    assert head[-1] == ["knob", "1", "2"]


def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = written(tmp_path, constraints={"rules": ["mla_workspace_rows > 8192"]})
    for command in ("validate", "sweep"):
        assert main([command, spec]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert "no point is left: constraints.rules.0 (mla_workspace_rows > 8192) rules out all 12 points" in error
    assert not (tmp_path / "runs").exists()


def test_a_rule_that_fails_at_one_value_alone_is_one_line_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    block = {"scope": "engine", "values": [*range(16, 2000, 16), "large"]}
    spec = written(tmp_path, space__block_size=block, constraints={"rules": ["block_size < 1600"]})
    assert main(["validate", spec]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "constraints.rules.0: 'block_size < 1600', column 1: 'large' < 1600 compares a number with another" in error
