"""A shell script, and the file that ``vllm serve --config`` reads."""

from __future__ import annotations

import shlex
from typing import Any

import yaml

from orchestrator.analysis.export.deployment import Deployment, Placement
from orchestrator.analysis.export.manifest import heading

_NEEDS_PLUGIN = (
    "Needs Chunksmith installed beside vLLM: its plugin sets additional_config.chunksmith, vLLM alone ignores it."
)


def script(what: Deployment, where: Placement) -> str:
    """A POSIX shell script that becomes ``vllm serve``; further arguments go on to it."""
    lines = ["#!/bin/sh", *_notes(what), "set -eu"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in sorted(what.env.items())]
    words = [shlex.quote(word) for word in (where.model or what.model, *what.words)]
    lines.append(f'exec vllm serve {" ".join(words)} --port {where.port} "$@"')
    return "\n".join(lines) + "\n"


def config_file(what: Deployment, where: Placement) -> str:
    """What ``vllm serve --config FILE`` reads. The environment is no part of such a file: it stands in its head.

    Source: ``vllm.utils.argparse_utils.FlexibleArgumentParser.load_config_file`` of vLLM 0.32: keys are flags
    without their dashes; true stands for the flag alone, false for nothing.
    """
    notes = _notes(what)
    env = " ".join(f"{name}={shlex.quote(value)}" for name, value in sorted(what.env.items()))
    start = f"{env} vllm serve --config FILE".strip()
    values: dict[str, Any] = {"model": where.model or what.model, "port": where.port}
    for name, value in what.engine_args.items():
        flag = name.replace("_", "-")
        if value is False:
            values[f"no-{flag}"] = True
        else:
            values[flag] = value
    return "\n".join([*notes, f"# Start: {start}", yaml.safe_dump(values, sort_keys=False)])


def _notes(what: Deployment) -> list[str]:
    return [f"# {line}" for line in heading(what)]
