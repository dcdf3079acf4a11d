"""``chunksmith sweep --dry-run``: the engines that a sweep may start, as commands, and nothing is started."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.search import Point
    from orchestrator.sweep import SweepSpec

MOST_SHOWN = 20
"""Engines that are printed."""

SOCKET = "vllm.sock"
"""In place of the socket's path, which is new for every server."""


def engine_lines(spec: SweepSpec) -> Iterator[str]:
    """Lines on every engine of a study, the baseline's first: its values, and the command with all of the environment
    that is set for it.

    With ``engine.kind: vllm_serve`` that is what the sweep runs, on a socket whose folder is made then; with ``vllm``
    it starts the same engine in a Ray actor, without the HTTP server.
    """
    from orchestrator.engines.serve import serve_arguments, server_command
    from orchestrator.engines.vllm import engine_environment
    from orchestrator.search.serve import engine_config

    base, groups, has = spec.engine_config(), _groups(spec), spec.resources
    engines = "1 engine" if len(groups) == 1 else f"{len(groups)} engines, each"
    yield f"study {spec.study}: {engines} with {has.cpus:g} CPUs and {has.gpus:g} GPUs from Ray"
    for number, group in enumerate(groups[:MOST_SHOWN], 1):
        values = ", ".join(f"{name}={value}" for name, value in group.items())
        yield ""
        yield f"# engine {number}{' (the baseline)' if number == 1 else ''}: {values or 'the same for every point'}"
        config = engine_config(base, group)
        if spec.is_lab:
            args = [f"{name}={value}" for name, value in sorted(config.args.items()) if value is not None]
            yield " ".join([*_assignments(config.env), "kernel-lab", shlex.join(args)])
        else:
            is_server = spec.engine.kind == "vllm_serve"
            words = server_command(config, SOCKET) if is_server else ["vllm", "serve", *serve_arguments(config)]
            yield " ".join([*_assignments(engine_environment(config)), shlex.join(words)])
    if len(groups) > MOST_SHOWN:
        yield ""
        yield f"# and {len(groups) - MOST_SHOWN} more"


def _groups(spec: SweepSpec) -> list[Point]:
    """The engine-scope values of every engine, the baseline's first."""
    space, baseline = spec.search_space(), spec.baseline_point()
    first = {name: baseline[name] for name in space.names("engine")}
    return [first, *(group for group in space.groups() if group != first)]


def _assignments(env: Mapping[str, str]) -> list[str]:
    return [f"{name}={shlex.quote(value)}" for name, value in sorted(env.items())]
