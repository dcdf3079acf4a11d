"""The formats by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from orchestrator.analysis.export.deployment import Deployment, Placement
from orchestrator.analysis.export.kubernetes import kubernetes
from orchestrator.analysis.export.llm_d import llm_d
from orchestrator.analysis.export.ray_serve import ray_serve
from orchestrator.analysis.export.vllm_serve import config_file, script
from orchestrator.errors import unknown_name

FORMATS: Mapping[str, Callable[[Deployment, Placement], str]] = {
    "vllm-serve": script,
    "yaml": config_file,
    "kubernetes": kubernetes,
    "ray-serve": ray_serve,
    "llm-d": llm_d,
}
"""What writes each format."""


def write(format_name: str, what: Deployment, where: Placement) -> str:
    """The deployment as the text of one file.

    Raises:
        UserError: Unknown format, or ``where`` lacks what the format needs.
    """
    if format_name not in FORMATS:
        raise unknown_name("format", format_name, FORMATS, where="--format")
    return FORMATS[format_name](what, where)
