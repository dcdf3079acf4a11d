"""Checks the space of a spec before any engine starts: its names, what depends on what, and that a point is left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from orchestrator.engines import LIVE_KNOBS
from orchestrator.engines.kernel_lab import LAB_LIVE_KNOBS
from orchestrator.errors import UserError, unknown_name
from orchestrator.search import CycleError, Expression, RuleError, Space, parse
from orchestrator.search.audit import audit, culprits
from orchestrator.search.enumerate import first_point
from orchestrator.search.flags import flag_of, is_environment, is_load, is_nested, same_flag
from orchestrator.search.vllm_names import ANY_KEY, VllmNames, vllm_names
from orchestrator.sweep.space_builder import start_values
from orchestrator.sweep.spec import SweepSpec
from orchestrator.vllm_plugin import CONFIG_KEY, PluginSettings

_MOST_VALUES: Final = 10_000
_BY_VLLM: Final = ("max-num-seqs", "use", "memory")
"""Rules that say what an engine can do at all, not what a user would like to try."""


def check_knobs(path: Path, spec: SweepSpec, arguments: frozenset[str]) -> None:
    """Check the names and the scopes of the knobs, and how many values each has.

    Args:
        arguments: Names of the engine's arguments.

    Raises:
        UserError: One line that names the file, the key, the value and what is allowed.
    """
    if (twice := same_flag(spec.space)) is not None:
        raise UserError(f"{path}: space: {twice[0]} and {twice[1]} set the same thing, {flag_of(twice[0])}: keep one")
    live = {*LIVE_KNOBS, *(LAB_LIVE_KNOBS if spec.is_lab else ())}
    for name in spec.space:
        _check_name(path, spec, name, live, arguments)
    for given in _given_arguments(spec.engine.args):
        for name in spec.space:
            if name != given and flag_of(name) == flag_of(given):
                raise UserError(f"{path}: space.{name}: engine.args.{given} sets the same thing: use one name for both")
    for name, section in spec.space.items():
        allowed = ["load"] if is_load(name) else ["live", "engine"] if name in live else ["engine"]
        if section.scope not in allowed:
            note = f"; live is possible for {', '.join(sorted(live))}" if section.scope == "live" else ""
            raise UserError(f"{path}: space.{name}.scope: must be {' or '.join(allowed)}{note}")
        if (count := section.size()) > _MOST_VALUES:
            raise UserError(
                f"{path}: space.{name}: {count} values, at most {_MOST_VALUES} are allowed: thin it out by step, log2, "
                "powers or count"
            )
    for name in spec.baseline:
        if is_load(name):
            raise UserError(f"{path}: baseline.{name}: belongs to the load, which a pair shares: leave it out")
        if name not in spec.space:
            raise unknown_name("knob", name, spec.space, where=f"{path}: baseline")


def check_space(path: Path, spec: SweepSpec, arguments: frozenset[str]) -> None:
    """Check what depends on what, that every rule can be read, and that a valid point is left.

    Args:
        arguments: Names of the engine's arguments.

    Raises:
        UserError: One line that names the file, the key, the value and what is allowed.
    """
    known = {*spec.space, *arguments, *LIVE_KNOBS, *PluginSettings.model_fields, *start_values(spec)}
    for key, expression in _expressions(spec):
        for name in expression.names:
            _check_read(path, spec, key, name, known)
    for name, section in spec.space.items():
        if section.multiple_of is not None:
            _check_multiple(path, spec, name, section.multiple_of, known)
    try:
        space = spec.search_space()
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    for knob in space.knobs:
        if not knob.choices:
            raise UserError(f"{path}: space.{knob.name}: none of its values is a multiple of {knob.multiple_of}")
    try:
        _require_a_point(path, space)
        for rule in space.rules:
            reason = rule.broken(space.values_at(spec.baseline_point())) if rule.name in _BY_VLLM else None
            if reason is not None:
                raise UserError(f"{path}: baseline: {rule.name}: {reason}")
    except CycleError as error:
        raise UserError(f"{path}: space: the conditions of these knobs go in a circle: {error}") from error
    except RuleError as error:
        raise UserError(f"{path}: {error}") from error


def _check_name(path: Path, spec: SweepSpec, name: str, live: set[str], arguments: frozenset[str]) -> None:
    if name in live or is_load(name):
        return
    if spec.is_lab:
        if name not in arguments:
            raise unknown_name("knob", name, {*live, *arguments}, where=f"{path}: space")
        return
    names = vllm_names()
    if is_environment(name):
        if name.startswith("VLLM_") and name not in names.environment:
            raise unknown_name("environment variable of vLLM", name, names.environment, where=f"{path}: space")
    elif is_nested(name) and name.partition(".")[0] in names.arguments:
        _check_nested(path, name, names)
    elif name in names.short:
        raise UserError(f"{path}: space: unknown knob {name!r}; did you mean {names.short[name]!r}?")
    elif name not in names.arguments:
        raise unknown_name("knob", name, {*live, *names.all_knobs()}, where=f"{path}: space")
    elif name in names.sections:
        raise UserError(f"{path}: space.{name}: is a mapping; its keys can be knobs, as {name}.KEY")


def _check_nested(path: Path, name: str, names: VllmNames) -> None:
    """A key inside an engine argument."""
    argument, _, key = name.partition(".")
    keys = names.sections.get(argument)
    if keys is None:
        raise UserError(f"{path}: space.{name}: {argument} of vLLM {names.version} has no keys of its own")
    first = key.partition(".")[0]
    if ANY_KEY not in keys and first not in keys:
        raise unknown_name(f"key of {argument}", first, keys, where=f"{path}: space")
    if (argument, first) == ("additional_config", CONFIG_KEY):
        raise UserError(f"{path}: space.{name}: settings of the plugin are knobs of their own, without a prefix")


def _check_read(path: Path, spec: SweepSpec, key: str, name: str, known: set[str]) -> None:
    """A name that an expression reads."""
    first = name.partition(".")[0]
    if is_load(name) and first in spec.space and name not in spec.space:
        raise UserError(f"{path}: {key}: {name} is not one value where {first} is a knob; compare {first} itself")
    if name in known or is_environment(name) or (is_nested(name) and first in known):
        return
    raise unknown_name("name", name, known, where=f"{path}: {key}")


def _check_multiple(path: Path, spec: SweepSpec, name: str, other: str, known: set[str]) -> None:
    key = f"{path}: space.{name}.multiple_of"
    if other not in known:
        raise unknown_name("knob", other, {*spec.space, *spec.engine.args}, where=key)
    for knob in (name, other):
        for value in spec.space[knob].all_values() if knob in spec.space else ():
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise UserError(f"{key}: needs whole numbers, got {value!r} of {knob}")


def _require_a_point(path: Path, space: Space) -> None:
    point, is_certain = first_point(space)
    if point is not None:
        return
    names = culprits(space)
    if not names:
        dependent = [knob.name for knob in space.knobs if knob.multiple_of is not None]
        raise UserError(f"{path}: space: no point is left: multiple_of of {_and(dependent)} leaves none")
    texts = {removal.name: removal.text for removal in audit(space).removals}
    told = [f"{name} ({texts[name]})" if texts[name] else name for name in names]
    number = f"all {space.size} points" if is_certain else f"each of {space.size} points, as far as was tried"
    verb = "rules" if len(names) == 1 else "together rule"
    single = "" if len(names) == 1 else "; no one of them does alone"
    raise UserError(f"{path}: space: no point is left: {_and(told)} {verb} out {number}{single}")


def _expressions(spec: SweepSpec) -> Iterator[tuple[str, Expression]]:
    for name, section in spec.space.items():
        if section.when is not None:
            yield f"space.{name}.when", parse(section.when)
    for index, text in enumerate(spec.constraints.rules):
        yield f"constraints.rules.{index}", parse(text)
    if spec.constraints.memory is not None:
        for field, size in spec.constraints.memory.sizes().items():
            if isinstance(size, Expression):
                yield f"constraints.memory.{field.replace('_bytes', '_gib')}", size


def _given_arguments(args: Mapping[str, object]) -> Iterator[str]:
    for name, value in args.items():
        yield name
        if isinstance(value, Mapping):
            yield from (f"{name}.{key}" for key in value)


def _and(names: Iterable[str]) -> str:
    *rest, last = names
    return f"{', '.join(rest)} and {last}" if rest else last
