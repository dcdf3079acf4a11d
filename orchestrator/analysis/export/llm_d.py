"""Values for llm-d's Helm chart ``llm-d-modelservice``.

Source: ``values.yaml`` of the chart (github.com/llm-d-incubation/llm-d-modelservice): ``modelArtifacts``, ``routing``,
``decode`` and ``prefill`` with ``parallelism`` and ``containers``.
"""

from __future__ import annotations

from typing import Any

from orchestrator.analysis.export.deployment import Deployment, Placement
from orchestrator.analysis.export.manifest import checked_name, dump, gpus_of_replica, image

_OF_PARALLELISM = frozenset({"tensor_parallel_size", "data_parallel_size", "data_parallel_size_local"})
"""Arguments that the chart adds itself, from ``parallelism``."""


def llm_d(what: Deployment, where: Placement) -> str:
    """One decode deployment that also prefills; no separate prefill pods, which the run did not measure."""
    name, model, args = checked_name(where), where.model or what.model, what.engine_args
    on_volume = model.startswith("/")
    tensor, data = (int(args.get(key, 1)) for key in ("tensor_parallel_size", "data_parallel_size"))
    local = min(data, max(1, where.gpus_per_node // tensor))
    container: dict[str, Any] = {
        "name": "vllm",
        "image": image(what, where),
        "modelCommand": "custom" if on_volume else "vllmServe",
        "args": _words(what),
        "env": [{"name": key, "value": value} for key, value in sorted(what.env.items())],
        "ports": [{"name": "metrics", "containerPort": where.port, "protocol": "TCP"}],
        "mountModelVolume": not on_volume,
    }
    if on_volume:
        container["command"] = ["vllm", "serve", model, "--port", str(where.port)]
        container["args"] = list(what.words)
    values: dict[str, Any] = {
        "fullnameOverride": name,
        "modelArtifacts": {
            "name": model,
            "uri": f"pvc://REPLACE-WITH-CLAIM{model}" if on_volume else f"hf://{model}",
            "labels": {"llm-d.ai/inferenceServing": "true", "llm-d.ai/model": name},
        },
        "multinode": gpus_of_replica(what) > where.gpus_per_node,
        "routing": {"servicePort": where.port, "proxy": {"enabled": False, "targetPort": where.port}},
        "decode": {
            "create": True,
            "replicas": 1,
            "parallelism": {"tensor": tensor, "data": data, "dataLocal": local, "workers": -(-data // local)},
            "containers": [container],
        },
        "prefill": {"create": False, "replicas": 0},
    }
    return dump(what, values)


def _words(what: Deployment) -> list[str]:
    """The arguments but those of ``_OF_PARALLELISM``."""
    kept: list[str] = []
    skips = False
    for word in what.words:
        if word.startswith("--"):
            skips = word.removeprefix("--").replace("-", "_") in _OF_PARALLELISM
        if not skips:
            kept.append(word)
    return kept
