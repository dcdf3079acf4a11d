"""What the manifests have in common."""

from __future__ import annotations

import re
from typing import Any

import yaml

from orchestrator.analysis.export.deployment import Deployment, Placement
from orchestrator.errors import UserError

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""RFC 1123: what Kubernetes allows as a name."""


_NEEDS_PLUGIN = (
    "Needs Chunksmith installed beside vLLM: its plugin reads additional_config.chunksmith, which vLLM alone ignores."
)


def heading(what: Deployment) -> list[str]:
    """Where the file comes from and what it needs, for its head."""
    lines = [f"Chunksmith: study {what.study}, trial {what.trial}", what.verdict]
    return [*lines, _NEEDS_PLUGIN] if what.needs_plugin else lines


def checked_name(where: Placement) -> str:
    """The name of the deployment.

    Raises:
        UserError: Kubernetes would refuse it.
    """
    if not _DNS_LABEL.fullmatch(where.name):
        raise UserError(
            f"--name: {where.name!r} must be 1 to 63 lower-case letters, digits or '-', with no '-' at either end."
        )
    return where.name


def image(what: Deployment, where: Placement) -> str:
    """The container image.

    Raises:
        UserError: None is named, and vLLM's own will not do: it lacks the plugin, or its version is not known.
    """
    if where.image is not None:
        return where.image
    if what.needs_plugin:
        raise UserError(
            "--image is missing: the point has settings of Chunksmith's plugin, so it needs an image that holds vLLM "
            "and Chunksmith (deploy/Dockerfile builds one)."
        )
    if what.vllm_version is None:
        raise UserError("--image is missing: the run does not say which version of vLLM it measured.")
    return f"vllm/vllm-openai:v{what.vllm_version}"


def gpus_of_replica(what: Deployment) -> int:
    """GPUs of one server: those that an engine of the run had, else what the parallel sizes multiply to.

    A run on a CPU has 0.
    """
    if what.gpus == 0:
        return 0
    args, product = what.engine_args, 1
    for name in (
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "prefill_context_parallel_size",
    ):
        product *= int(args.get(name, 1))
    return max(what.gpus, product)


def fits_one_node(what: Deployment, where: Placement, format_name: str) -> int:
    """GPUs of one server, which have to be on one node.

    Raises:
        UserError: They are more than a node has.
    """
    gpus = gpus_of_replica(what)
    if gpus > where.gpus_per_node:
        raise UserError(
            f"--format {format_name}: {gpus} GPUs do not fit on one node of {where.gpus_per_node} (--gpus-per-node); "
            "use llm-d or ray-serve for a server that spans nodes."
        )
    return gpus


def dump(what: Deployment, *documents: dict[str, Any]) -> str:
    """YAML documents under their heading."""
    notes = "".join(f"# {line}\n" for line in heading(what))
    return notes + "---\n".join(yaml.safe_dump(document, sort_keys=False) for document in documents)
