"""The search space that a spec describes: its knobs with every value written out, and the rules of its points."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.engines import KnobValue
from orchestrator.errors import UserError, unknown_name
from orchestrator.models import TinyMLAConfig
from orchestrator.planning.models import MODELS, MlaModel
from orchestrator.search import Knob, Rule, Space, parse
from orchestrator.search.planning_rules import constraints_rule, memory_rule, require_known
from orchestrator.search.rules import FIXED_ORDER_WITHOUT_AREA, SEQS_WITHIN_TOKENS, expression_rules
from orchestrator.sweep.load_section import numbers_of

if TYPE_CHECKING:
    from orchestrator.sweep.spec import SweepSpec

TINY_MODEL = "tiny-mla"
"""In place of a model's folder: the model that ``orchestrator.models`` builds."""


def build_space(spec: SweepSpec) -> Space:
    """The space of a spec.

    Raises:
        UserError: A set of constraints or a model is not known, or they need an argument that is not given.
        ValueError: An expression cannot be read.
    """
    start = start_values(spec)
    knobs = tuple(_knob(spec, name, start) for name in spec.space)
    return Space(knobs, tuple(_rules(spec, start)), start)


def start_values(spec: SweepSpec) -> dict[str, KnobValue]:
    """Values at engine start, by the names that rules have for them; what is left to vLLM is not among them."""
    plugin = {name: value for name, value in spec.engine.plugin.model_dump().items() if value is not None}
    found: dict[str, KnobValue] = {**dict(_scalars(spec.start_args())), **plugin}
    found.update((name, _from_text(text)) for name, text in spec.engine.env.items())
    for kind, section in (("workload", spec.workload), ("load", spec.load)):
        found.update(numbers_of(kind, section))
    return {name: value for name, value in found.items() if value is not None}


def _scalars(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, KnobValue]]:
    """Single values, also those inside mappings, by dotted names."""
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _scalars(value, f"{prefix}{key}.")
        elif value is None or isinstance(value, (bool, int, float, str)):
            yield f"{prefix}{key}", value


def _from_text(text: str) -> KnobValue:
    """A number of the environment as a rule reads it."""
    try:
        return int(text)
    except ValueError:
        return text


def _knob(spec: SweepSpec, name: str, start: Mapping[str, KnobValue]) -> Knob:
    section = spec.space[name]
    values = section.all_values()
    if section.multiple_of is not None:
        values = _multiples(values, _divisors(spec, section.multiple_of, start))
    rests = None in values
    if section.when is not None and not rests:
        values = (*values, None)
    when = None if section.when is None else parse(section.when)
    return Knob(name, section.scope, values, when=when, multiple_of=section.multiple_of, rests=rests)


def _divisors(spec: SweepSpec, name: str, start: Mapping[str, KnobValue]) -> list[int] | None:
    """Whole numbers that a knob or an argument may have; None when it may be left to vLLM."""
    given: Collection[KnobValue] = spec.space[name].all_values() if name in spec.space else [None]
    found = [start.get(name) if value is None else value for value in given]
    return None if None in found else [value for value in found if isinstance(value, int) and value > 0]


def _multiples(values: tuple[KnobValue, ...], divisors: list[int] | None) -> tuple[KnobValue, ...]:
    if divisors is None:
        return values
    # A multiple of any of them is one of their greatest common divisor, and that is a quick test for most.
    common = math.gcd(*divisors)
    return tuple(
        value
        for value in values
        if not isinstance(value, int)
        or (common and value % common == 0 and any(value % divisor == 0 for divisor in divisors))
    )


def _rules(spec: SweepSpec, start: Mapping[str, KnobValue]) -> Iterator[Rule]:
    section = spec.constraints
    yield SEQS_WITHIN_TOKENS
    if spec.is_lab and "chunk_order" in {*spec.space, *start}:
        yield FIXED_ORDER_WITHOUT_AREA
    for index, text in enumerate(section.rules):
        yield from expression_rules(f"constraints.rules.{index}", parse(text))
    if section.use or section.memory is not None:
        model = _shape_of_model(spec)
        never_null = [name for name, knob in spec.space.items() if not knob.when and None not in knob.all_values()]
        require_known({*start, *never_null}, where=f"constraints.{'use' if section.use else 'memory'}")
        judged: list[str] = []
        if section.use:
            rule = constraints_rule(section.use, model, spec.space, where="constraints.use")
            judged = [member.name for member in rule.members]
            yield rule
        if section.memory is not None:
            yield memory_rule(
                model,
                section.memory.sizes(),
                spec.space,
                judged=judged,
                flash_attention_2=section.memory.flash_attention_2,
            )


def _shape_of_model(spec: SweepSpec) -> MlaModel:
    name = spec.constraints.model
    if name is None and spec.model == TINY_MODEL:
        tiny = TinyMLAConfig(**spec.tiny_model)
        return MlaModel(
            name=TINY_MODEL,
            attention_layers=tiny.layers,
            heads=tiny.heads,
            kv_lora_rank=tiny.kv_lora_rank,
            qk_rope_head_dim=tiny.qk_rope_head_dim,
            qk_nope_head_dim=tiny.qk_nope_head_dim,
            v_head_dim=tiny.v_head_dim,
            max_model_len=tiny.max_position_embeddings,
        )
    if name is None:
        raise UserError(f"constraints.model: is missing; use and memory need it: one of {', '.join(MODELS)}")
    if name not in MODELS:
        raise unknown_name("model", name, MODELS, where="constraints.model")
    return MODELS[name]
