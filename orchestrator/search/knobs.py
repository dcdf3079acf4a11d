"""The knobs that Chunksmith knows, and what a point means for an engine."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from orchestrator.engines import EngineConfig, KnobValue
from orchestrator.vllm_plugin import CONFIG_KEY, WORKER_KNOBS, PluginSettings

Scope = Literal["live", "engine"]
Point = Mapping[str, KnobValue]
"""One value for each knob of a space; None is the value at engine start."""

PLUGIN_KNOBS = frozenset(WORKER_KNOBS)
"""Knobs that are settings of our plugin; all others are vLLM's own engine arguments."""

LAB_MODEL = "kernel-lab"
"""What stands for the model where the kernel lab is the engine: layers without one, which nobody can serve."""

_ON_ONLY = frozenset({"aggregate_engine_logging", "data_parallel_multi_port_external_lb", "disable_log_stats"})
"""Switches of ``vllm serve`` without a ``--no-`` form: off is what they are without the flag."""


@dataclass(frozen=True)
class Knob:
    """A knob of a space: its scope, and its values in their natural order."""

    name: str
    scope: Scope
    values: tuple[KnobValue, ...]


@dataclass(frozen=True)
class Space:
    """A finite space of points."""

    knobs: tuple[Knob, ...]

    @property
    def size(self) -> int:
        """Number of points, valid or not."""
        product = 1
        for knob in self.knobs:
            product *= len(knob.values)
        return product

    def names(self, scope: Scope) -> list[str]:
        """Knobs of one scope, in the order of the space."""
        return [knob.name for knob in self.knobs if knob.scope == scope]

    def groups(self) -> list[Point]:
        """Every combination of engine-scope values; one empty point when there is no such knob."""
        return list(_combinations([knob for knob in self.knobs if knob.scope == "engine"]))

    def live_points(self) -> list[Point]:
        """Every combination of live values; one empty point when there is no such knob."""
        return list(_combinations([knob for knob in self.knobs if knob.scope == "live"]))


def _combinations(knobs: list[Knob]) -> Iterator[Point]:
    names = [knob.name for knob in knobs]
    for values in itertools.product(*(knob.values for knob in knobs)):
        yield dict(zip(names, values, strict=True))


def engine_config(base: EngineConfig, engine_values: Point) -> EngineConfig:
    """The engine that serves a group: the common configuration with the group's values put in."""
    given = {name: value for name, value in engine_values.items() if value is not None}
    plugin = {name: value for name, value in given.items() if name in PLUGIN_KNOBS}
    args = {name: value for name, value in given.items() if name not in PLUGIN_KNOBS}
    return EngineConfig(
        model=base.model,
        args={**base.args, **args},
        env=base.env,
        plugin=PluginSettings.model_validate({**base.plugin.model_dump(), **plugin}),
    )


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
