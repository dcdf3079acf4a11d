"""``chunksmith init``: a spec for somebody's model and machines."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.cli import main
from orchestrator.cli.architectures import ARCHITECTURES, architecture_of
from orchestrator.planning.models import MODELS
from orchestrator.sweep import SweepSpec, load_spec

ROOT = Path(__file__).parents[2]

SHAPES = {
    "defaults": ["--gpus-per-node", "8", "--input-len", "32768"],
    "one GPU": ["--gpus-per-node", "1", "--input-len", "2048", "--concurrency", "300"],
    "short prompts": ["--gpus-per-node", "6", "--nodes", "3", "--input-len", "600", "--output-len", "2000"],
    "goodput": ["--gpus-per-node", "8", "--input-len", "8192", "--rate", "2", "--slo", "ttft:500,tpot:50"],
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def made(*arguments: str) -> SweepSpec:
    assert main(["init", *arguments, "-o", "spec.yaml", "--force"]) == 0
    return load_spec(Path("spec.yaml"))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_and_shape_is_a_spec_with_reasons(name: str, shape: str) -> None:
    spec = made("--model", name, *SHAPES[shape])
    assert spec.search_space().size
    text = Path("spec.yaml").read_text()
    assert all(len(line) <= 120 for line in text.splitlines())
    assert text.count("#") >= 7
    gpus = spec.resources.gpus
    assert gpus == (0 if name == "tiny-mla" else spec.engine.args["tensor_parallel_size"])


@pytest.mark.parametrize("name", ["tiny-mla", "kimi-k3"])
def test_validate_accepts_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    made("--model", name, *SHAPES["defaults"])
    capsys.readouterr()
    assert main(["validate", "spec.yaml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["space"]["valid"] > 0


def test_what_was_asked_for_is_in_it() -> None:
    spec = made(
        *("--model", "kimi-k3", "--gpus-per-node", "8", "--tp", "8", "--dcp", "8", "--input-len", "65536"),
        *("--output-len", "16", "--rate", "0.5", "--slo", "ttft:2000", "--trials", "33", "--study", "mine"),
    )
    assert spec.model == "moonshotai/Kimi-K3"
    assert spec.engine.args["decode_context_parallel_size"] == 8
    assert "decode_context_parallel_size" not in spec.space
    assert (spec.study, spec.trials, spec.objective.metric) == ("mine", 33, "goodput_at_slo")
    assert spec.slo is not None
    assert spec.slo.ttft_ms == 2000
    assert spec.workload.longest_input() == 65536


def test_dcp_is_searched_unless_it_is_given_and_only_where_vllm_has_it() -> None:
    assert "decode_context_parallel_size" in made("--model", "glm-5", *SHAPES["defaults"]).space
    assert "decode_context_parallel_size" not in made("--model", "deepseek-v4", *SHAPES["defaults"]).space
    fixed = made("--model", "glm-5", "--dcp", "1", *SHAPES["defaults"])
    assert not {"decode_context_parallel_size", "dcp_comm_backend"} & set(fixed.space)


def test_minutes_are_turned_into_trials() -> None:
    few, many = (
        made("--model", "tiny-mla", "--input-len", "8192", "--minutes", minutes).trials for minutes in ("5", "20")
    )
    assert 4 <= few < many


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("deepseek-ai/DeepSeek-V3.1", "deepseek-v3"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-v3"),
        ("deepseek-ai/DeepSeek-V3.2-Exp", "deepseek-v3.2"),
        ("nvidia/DeepSeek-V4-Pro-NVFP4", "deepseek-v4-pro"),
        ("moonshotai/Kimi-K2-Thinking", "kimi-k2"),
        ("zai-org/GLM-5-FP8", "glm-5"),
        ("org/other", None),
    ],
)
def test_a_name_tells_the_architecture(model: str, expected: str | None) -> None:
    assert architecture_of(model) == expected


def test_a_folder_tells_the_architecture_by_its_config() -> None:
    for folder, kind, expected in (
        ("a", "deepseek_v32", "deepseek-v3.2"),
        ("kimi-k2-mine", "deepseek_v3", "kimi-k2"),
        ("b", "deepseek_v3", "deepseek-v3"),
        ("c", "llama", None),
    ):
        Path(folder).mkdir()
        Path(folder, "config.json").write_text(json.dumps({"model_type": kind}))
        assert architecture_of(folder) == expected
    spec = made("--model", "b", *SHAPES["defaults"])
    assert spec.model == str(Path("b").resolve())


def test_shapes_are_those_of_the_planner() -> None:
    assert {kind.shape for kind in ARCHITECTURES.values()} - {None} == set(MODELS)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "--model: is missing; give it, or run `chunksmith init` on a terminal, which asks"),
        (["--model", "kimi-k3"], "--gpus-per-node: is missing"),
        (["--model", "kimi-k3", "--gpus-per-node", "8"], "--input-len: is missing"),
        (["--model", "kimi-k33", *SHAPES["defaults"]], "--model: unknown model 'kimi-k33'; did you mean 'kimi-k3'?"),
        (["--model", "org/other", *SHAPES["defaults"]], "--architecture: is missing, and 'org/other' does not tell it"),
        (
            ["--model", "org/x", "--architecture", "kimi", *SHAPES["defaults"]],
            "--architecture: unknown architecture 'kimi'",
        ),
        (["--model", "kimi-k2", *SHAPES["defaults"], "--tp", "16"], "--tp: 16 is above the 8 GPUs of a node"),
        (["--model", "kimi-k2", *SHAPES["defaults"], "--dcp", "3"], "--dcp: 3 has to divide --tp 8"),
        (["--model", "deepseek-v4", *SHAPES["defaults"], "--dcp", "2"], "--dcp: vLLM 0.32 runs deepseek-v4 without"),
        (["--model", "tiny-mla", "--input-len", "100"], "--input-len: must be at least 512, got 100"),
        (["--model", "tiny-mla", "--input-len", "199999"], "--input-len: 199999 tokens and those of an answer exceed"),
        (["--model", "kimi-k2", *SHAPES["defaults"], "--objective", "goodput_at_slo"], "--objective: goodput_at_slo"),
        (["--model", "kimi-k2", *SHAPES["defaults"], "--objective", "median_ttf_ms"], "spec.yaml: objective.metric"),
        (["--model", "kimi-k2", *SHAPES["defaults"], "--slo", "tft:5"], "--slo: unknown"),
        (["--model", "kimi-k2", *SHAPES["defaults"], "--trials", "9", "--minutes", "9"], "--minutes: cannot go with"),
        (["--model", "kimi-k2", *SHAPES["defaults"], "--rate", "9", "--concurrency", "9"], "--rate: cannot go with"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", *arguments, "-o", "spec.yaml"]) == 2
    output, error = capsys.readouterr()
    assert (output, error.count("\n")) == ("", 1)
    assert error.startswith(f"chunksmith: error: {line}")
    assert not Path("spec.yaml").exists()


def test_a_file_that_is_there_stays_without_force(capsys: pytest.CaptureFixture[str]) -> None:
    Path("spec.yaml").write_text("mine")
    assert main(["init", "--model", "tiny-mla", "--input-len", "8192", "-o", "spec.yaml"]) == 2
    assert "spec.yaml: exists already; --force replaces it" in capsys.readouterr().err
    assert Path("spec.yaml").read_text() == "mine"
    assert made("--model", "tiny-mla", "--input-len", "8192").model == "tiny-mla"


def test_on_a_terminal_it_asks_what_is_missing() -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrator.cli", "init", "--trials", "50"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    os.close(theirs)
    os.write(ours, b"kimi-k2\n8\n2\n\n16384\n\n12\n")
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:
        pass  # how Linux tells that the other side of a terminal is closed
    finally:
        os.close(ours)
    assert process.wait(60) == 0, shown.decode()
    spec = load_spec(Path("kimi-k2-tp8.yaml"))
    assert (spec.trials, spec.load.concurrency, spec.engine.args["tensor_parallel_size"]) == (50, 12, 8)  # type: ignore[union-attr]
    assert b"Trials" not in shown
    assert "2 x 8 GPUs" in Path("kimi-k2-tp8.yaml").read_text()
