"""``chunksmith sweep --dry-run``: every engine as a command, and nothing is started or written."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.cli import main
from orchestrator.cli.dry_run import MOST_SHOWN, SOCKET
from orchestrator.engines.serve import server_command
from orchestrator.engines.vllm import QUIET_ENV, engine_environment
from orchestrator.search.serve import engine_config, serve_command
from tests.sweep.studies import content, make_spec

SEVERAL: dict[str, Any] = {
    "space__max_num_seqs": {"scope": "engine", "values": [2, 4, 8]},
    "space__VLLM_USE_DEEP_GEMM": {"scope": "engine", "values": [True, False]},
    "engine__env": {"OMP_NUM_THREADS": "1", "NOTE": "two words"},
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def printed(capsys: pytest.CaptureFixture[str], **changes: Any) -> list[str]:
    Path("spec.yaml").write_text(yaml.safe_dump(content(**changes), sort_keys=False))
    assert main(["sweep", "spec.yaml", "--dry-run"]) == 0
    assert [path.name for path in Path().iterdir()] == ["spec.yaml"]
    return capsys.readouterr().out.splitlines()


def test_every_engine_is_a_command_with_its_environment(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, **SEVERAL)
    spec = make_spec(**SEVERAL)
    assert lines[0] == "study small: 7 engines, each with 1 CPUs and 0 GPUs from Ray"
    assert lines[2] == "# engine 1 (the baseline): max_num_seqs=None, VLLM_USE_DEEP_GEMM=None"
    groups = [dict.fromkeys(("max_num_seqs", "VLLM_USE_DEEP_GEMM")), *spec.search_space().groups()]
    commands = [line for line in lines if "vllm serve" in line]
    assert len(commands) == len(groups)
    for line, group in zip(commands, groups, strict=True):
        words = shlex.split(line)
        begin = words.index("vllm")
        args, env = serve_command(spec.engine_config(), group)
        assert words[begin:] == ["vllm", "serve", *args]
        assert dict(word.split("=", 1) for word in words[:begin]) == {**QUIET_ENV, **env}


def test_a_server_is_the_command_that_is_started(capsys: pytest.CaptureFixture[str], tiny_model_folder: Path) -> None:
    changes = {**SEVERAL, "engine__kind": "vllm_serve", "model": str(tiny_model_folder)}
    lines = printed(capsys, **changes)
    spec = make_spec(**changes)
    words = shlex.split(next(line for line in lines if "vllm serve" in line))
    begin = words.index("vllm")
    config = engine_config(spec.engine_config(), {})
    assert words[begin:] == server_command(config, SOCKET)
    assert dict(word.split("=", 1) for word in words[:begin]) == engine_environment(config)
    # The model is a folder.
    assert "HF_HUB_OFFLINE=1" in words[:begin]


def test_of_many_engines_the_first_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    values = list(range(1, MOST_SHOWN + 6))
    lines = printed(capsys, space__max_num_seqs={"scope": "engine", "values": values})
    assert len([line for line in lines if "vllm serve" in line]) == MOST_SHOWN
    assert lines[-1] == "# and 6 more"


def test_a_study_with_one_engine_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys)
    assert lines[0].startswith("study small: 1 engine with 1 CPUs")
    assert lines[2] == "# engine 1 (the baseline): the same for every point"


def test_it_needs_a_spec(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "--dry-run"]) == 2
    assert "give a spec" in capsys.readouterr().err
