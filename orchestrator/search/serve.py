"""What a point means for an engine: its configuration, and the command that serves it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.engines import EngineConfig, KnobValue
from orchestrator.search.flags import is_environment, is_load, is_nested
from orchestrator.search.knobs import Point
from orchestrator.vllm_plugin import CONFIG_KEY, WORKER_KNOBS, PluginSettings

PLUGIN_KNOBS = frozenset(WORKER_KNOBS)
"""Knobs that are settings of our plugin."""

LAB_MODEL = "kernel-lab"
"""What stands for the model where the kernel lab is the engine: layers without one, which nobody can serve."""

_ON_ONLY = frozenset({"aggregate_engine_logging", "data_parallel_multi_port_external_lb", "disable_log_stats"})
"""Switches of ``vllm serve`` without a ``--no-`` form: off is what they are without the flag."""


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
    args = dict(config.args)
    additional = {**(args.pop("additional_config", None) or {}), **config.plugin.additional_config()}
    if not additional[CONFIG_KEY]:
        del additional[CONFIG_KEY]
    words = [config.model]
    for name, value in sorted(args.items()):
        words.extend(_flag(name, value))
    if additional:
        words.extend(_flag("additional_config", additional))
    return words, dict(config.env)


def _flag(name: str, value: Any) -> list[str]:
    flag = name.replace("_", "-")
    if value is None:
        return []
    if isinstance(value, bool):
        off = [] if name in _ON_ONLY else [f"--no-{flag}"]
        return [f"--{flag}"] if value else off
    if isinstance(value, Mapping):
        return [f"--{flag}", json.dumps(value, sort_keys=True)]
    if isinstance(value, (list, tuple)):
        return [f"--{flag}", *(str(item) for item in value)]
    return [f"--{flag}", str(value)]
