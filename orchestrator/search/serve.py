"""What a point means for an engine: its configuration, and the command that serves it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.engines import EngineConfig, KnobValue
from orchestrator.engines.serve import serve_arguments
from orchestrator.search.flags import is_environment, is_load, is_nested
from orchestrator.search.knobs import Point
from orchestrator.vllm_plugin import WORKER_KNOBS, PluginSettings

PLUGIN_KNOBS = frozenset(WORKER_KNOBS)
"""Knobs that are settings of our plugin."""

LAB_MODEL = "kernel-lab"
"""What stands for the model where the kernel lab is the engine: layers without one, which nobody can serve."""


def engine_config(base: EngineConfig, engine_values: Point) -> EngineConfig:
    """The engine that serves a group: the common configuration with the group's values put in.

    A value goes where its knob's name says: into an engine argument, into a key of one (``compilation_config.mode``),
    into the environment, or to our plugin. Knobs of the load are left out.
    """
    args, env, plugin = dict(base.args), dict(base.env), base.plugin.model_dump()
    for name, value in engine_values.items():
        if value is None or is_load(name):
            continue
        if name in PLUGIN_KNOBS:
            plugin[name] = value
        elif is_environment(name):
            env[name] = environment_text(value)
        elif is_nested(name):
            argument, *path = name.split(".")
            args[argument] = _with(args.get(argument), path, value)
        else:
            args[name] = value
    return EngineConfig(model=base.model, args=args, env=env, plugin=PluginSettings.model_validate(plugin))


def environment_text(value: KnobValue) -> str:
    """A value as vLLM reads it from the environment: a switch is 1 or 0."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def _with(content: Any, path: Sequence[str], value: KnobValue) -> dict[str, Any]:
    """A copy of a nested mapping with one key set."""
    first, *rest = path
    inner = dict(content or {})
    inner[first] = _with(inner.get(first), rest, value) if rest else value
    return inner


def serve_command(base: EngineConfig, point: Point) -> tuple[list[str], dict[str, str]]:
    """Arguments of ``vllm serve`` and the environment that start an engine at a point; both empty for the kernel lab.

    Live values become the engine arguments or plugin settings of the same effect at start.
    """
    if base.model == LAB_MODEL:
        return [], {}
    config = engine_config(base, point)
    return serve_arguments(config), dict(config.env)
