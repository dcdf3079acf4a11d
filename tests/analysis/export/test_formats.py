"""Each format, read by the program that it is for."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from orchestrator.analysis.export import FORMATS, Deployment, Placement, write
from orchestrator.errors import UserError

WORDS = (
    *("--max-num-seqs", "4", "--no-enable-prefix-caching", "--tensor-parallel-size", "4"),
    *("--decode-context-parallel-size", "4", "--gpu-memory-utilization", "0.85"),
    *("--additional-config", '{"chunksmith": {"mla_workspace_rows": 2048}}'),
)


def what(**changes: Any) -> Deployment:
    values: dict[str, Any] = {
        "study": "demo",
        "trial": 3,
        "verdict": "winner: 0.65",
        "model": "org/model",
        "words": WORDS,
        "env": {"VLLM_USE_V1": "1", "NOTE": 'it\'s "two" words'},
        "gpus": 4,
        "vllm_version": "0.32.0",
    }
    return Deployment(**{**values, **changes})


WHERE = Placement(name="demo", image="registry/vllm:1")


def documents(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text))


def test_the_script_runs_what_was_measured(tmp_path: Path) -> None:
    script = tmp_path / "serve.sh"
    script.write_text(write("vllm-serve", what(), WHERE))
    # The shell finds this in place of vLLM's command, and it prints what it was given.
    fake = tmp_path / "vllm"
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$NOTE" "$@"\n')
    fake.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", str(script), "--seed", "1"], env=env, capture_output=True, text=True, check=True)
    given = ["serve", "org/model", *WORDS, "--port", "8000", "--seed", "1"]
    assert done.stdout.splitlines() == ['it\'s "two" words', *given]


def test_vllm_reads_its_config_file_as_the_words(tmp_path: Path) -> None:
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    config = tmp_path / "config.yaml"
    config.write_text(write("yaml", what(), WHERE))
    words = FlexibleArgumentParser().load_config_file(str(config))
    assert words == ["--model", "org/model", "--port", "8000", *WORDS]
    assert "NOTE='it'\"'\"'s" in config.read_text()


@pytest.mark.parametrize("gpus", [0, 4])
def test_kubernetes_accepts_the_manifests(gpus: int) -> None:
    deployment, service = documents(write("kubernetes", what(gpus=gpus), WHERE))
    for manifest in (deployment, service):
        kubernetes_validate.validate(manifest, "1.31", strict=True)
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    assert container["args"] == ["org/model", *WORDS, "--port", "8000"]
    assert container.get("resources") == ({"limits": {"nvidia.com/gpu": 4}} if gpus else None)
    assert service["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()


def test_kubernetes_refuses_a_misspelt_manifest() -> None:
    deployment, _ = documents(write("kubernetes", what(), WHERE))
    deployment["spec"]["template"]["spec"]["containers"][0]["imagee"] = "x"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, "1.31", strict=True)


@pytest.mark.parametrize("gpus", [0, 4])
def test_ray_serve_accepts_its_config(gpus: int) -> None:
    from ray.serve.llm import LLMServingArgs
    from ray.serve.schema import ServeDeploySchema

    (config,) = documents(write("ray-serve", what(gpus=gpus), WHERE))
    ServeDeploySchema.model_validate(config)
    (application,) = config["applications"]
    served = LLMServingArgs.model_validate(application["args"]).llm_configs[0]
    assert served.engine_kwargs["decode_context_parallel_size"] == 4
    assert served.placement_group_config["bundles"] == [{"CPU": 1, "GPU": 1}] * 4 if gpus else [{"CPU": 1}]
    assert served.runtime_env["env_vars"]["NOTE"] == 'it\'s "two" words'


def test_llm_d_gets_the_parallel_sizes_apart() -> None:
    (values,) = documents(write("llm-d", what(), WHERE))
    assert values["decode"]["parallelism"] == {"tensor": 4, "data": 1, "dataLocal": 1, "workers": 1}
    (container,) = values["decode"]["containers"]
    assert "--tensor-parallel-size" not in container["args"]
    assert container["args"][:3] == ["--max-num-seqs", "4", "--no-enable-prefix-caching"]
    assert not values["multinode"]


def test_llm_d_spans_nodes() -> None:
    words = ("--tensor-parallel-size", "8", "--data-parallel-size", "4")
    (values,) = documents(write("llm-d", what(words=words, gpus=32), WHERE))
    assert values["decode"]["parallelism"] == {"tensor": 8, "data": 4, "dataLocal": 1, "workers": 4}
    assert values["multinode"]


@pytest.mark.parametrize("name", FORMATS)
def test_each_says_where_it_comes_from_and_what_it_needs(name: str) -> None:
    head = write(name, what(), WHERE)
    assert "# Chunksmith: study demo, trial 3" in head
    assert "# Needs Chunksmith installed beside vLLM" in head
    assert "# Needs" not in write(name, what(words=("--max-num-seqs", "4")), WHERE)


@pytest.mark.parametrize("name", ["kubernetes", "llm-d"])
def test_an_image_without_the_plugin_is_not_taken_for_granted(name: str) -> None:
    with pytest.raises(UserError, match="--image is missing: the point has settings of Chunksmith's plugin"):
        write(name, what(), Placement(name="demo"))
    text = write(name, what(words=("--max-num-seqs", "4")), Placement(name="demo"))
    assert "image: vllm/vllm-openai:v0.32.0" in text
    with pytest.raises(UserError, match="which version of vLLM"):
        write(name, what(words=(), vllm_version=None), Placement(name="demo"))


def test_mistakes_are_one_line_each() -> None:
    with pytest.raises(UserError, match="did you mean 'kubernetes'"):
        write("kubernets", what(), WHERE)
    with pytest.raises(UserError, match="--name: 'De mo' must be"):
        write("kubernetes", what(), Placement(name="De mo", image="x"))
    with pytest.raises(UserError, match="16 GPUs do not fit on one node of 8"):
        write("kubernetes", what(gpus=16), WHERE)
