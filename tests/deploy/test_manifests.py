"""deploy/ and cluster.yaml, checked by the programs that they are for, as far as that goes without a cloud."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[2]
CLUSTERS = ("cluster.yaml", "deploy/cluster-aws.yaml")
RAY = ("deploy/kuberay/raycluster.yaml", "deploy/kuberay/rayjob.yaml")


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def groups(name: str) -> list[dict[str, Any]]:
    """The head's group and the workers' groups."""
    spec = read(name)["spec"]
    cluster = spec.get("rayClusterSpec", spec)
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


@pytest.mark.parametrize("name", CLUSTERS)
def test_ray_accepts_the_cluster(name: str) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(read(name))
    validate_config(config)
    assert config["head_node_type"] in config["available_node_types"]


@pytest.mark.parametrize("name", RAY)
def test_kubernetes_accepts_every_pod(name: str) -> None:
    for group in groups(name):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, **group["template"]}
        kubernetes_validate.validate(pod, "1.31", strict=True)


@pytest.mark.parametrize("name", [*CLUSTERS, *RAY])
def test_ray_asks_for_a_token_and_no_file_holds_one(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "RAY_AUTH_MODE" in text
    if name in CLUSTERS:
        for command in (*read(name)["head_start_ray_commands"], *read(name)["worker_start_ray_commands"]):
            assert "ray stop" in command or "RAY_AUTH_MODE=token" in command
        assert "RAY_AUTH_TOKEN=" not in text
        assert "--dashboard-host=127.0.0.1" in text
        return
    for group in groups(name):
        (container,) = group["template"]["spec"]["containers"]
        env = {one["name"]: one for one in container["env"]}
        assert env["RAY_AUTH_MODE"]["value"] == "token"
        assert "value" not in env["RAY_AUTH_TOKEN"]


@pytest.mark.parametrize("name", RAY)
def test_workers_have_shared_memory_and_nobody_is_root(name: str) -> None:
    for group in groups(name):
        assert group["template"]["spec"]["securityContext"]["runAsNonRoot"] is True
    for group in groups(name)[1:]:
        mounts = group["template"]["spec"]["containers"][0]["volumeMounts"]
        assert "/dev/shm" in {mount["mountPath"] for mount in mounts}


def test_what_the_manifests_start_exists() -> None:
    words = read("deploy/kuberay/rayjob.yaml")["spec"]["entrypoint"].split()
    for word in words[1:]:
        assert (ROOT / word.removeprefix("/opt/chunksmith/")).is_file(), word
    copied = [
        line.split()[1] for line in (ROOT / "deploy/Dockerfile").read_text().splitlines() if line.startswith("COPY")
    ]
    assert all((ROOT / name).exists() for name in copied)
