"""A Kubernetes Deployment and its Service."""

from __future__ import annotations

from typing import Any

from orchestrator.analysis.export.deployment import Deployment, Placement
from orchestrator.analysis.export.manifest import checked_name, dump, fits_one_node, image

_START_SECONDS = 3600
"""How long a model may load. Kubernetes kills a container whose start-up probe fails for longer."""
_PROBE_SECONDS = 10


def kubernetes(what: Deployment, where: Placement) -> str:
    """A Deployment of one replica and a Service inside the cluster (apps/v1 and v1)."""
    name = checked_name(where)
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "chunksmith"}
    gpus = fits_one_node(what, where, "kubernetes")
    container: dict[str, Any] = {
        "name": "vllm",
        "image": image(what, where),
        "command": ["vllm", "serve"],
        "args": [where.model or what.model, *what.words, "--port", str(where.port)],
        "env": [{"name": key, "value": value} for key, value in sorted(what.env.items())],
        "ports": [{"name": "http", "containerPort": where.port}],
        "startupProbe": _probe(_START_SECONDS // _PROBE_SECONDS),
        "readinessProbe": _probe(3),
        # Tensor parallel workers exchange through shared memory, of which a container has 64 MiB by default.
        "volumeMounts": [{"name": "shared-memory", "mountPath": "/dev/shm"}],
    }
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    pod = {
        "containers": [container],
        "volumes": [{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}],
    }
    return dump(
        what,
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                # The old server has to give its GPUs back before the new one can start.
                "strategy": {"type": "Recreate"},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "labels": labels},
            "spec": {"selector": labels, "ports": [{"name": "http", "port": where.port, "targetPort": "http"}]},
        },
    )


def _probe(failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": "/health", "port": "http"},
        "periodSeconds": _PROBE_SECONDS,
        "failureThreshold": failures,
    }
