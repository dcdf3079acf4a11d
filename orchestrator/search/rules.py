"""Rules that a point has to keep: each says, by arithmetic alone, why it rules a point out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.errors import UserError
from orchestrator.search.expressions import Expression, ExpressionError, Values


@dataclass(frozen=True)
class Rule:
    """One rule over the values of a point.

    Attributes:
        name: Where it comes from, for instance ``rules.0``, ``use`` or ``memory``.
        reads: Names that it looks at; of these, the knobs decide when it can be judged.
        broken: Why a point breaks it, in one line; None where it keeps it or where too little is known. Gets a value
            for each name, a knob's None replaced by the value at engine start where that is known.
        text: What it demands, for a list of rules; empty where the name says it.
        members: The rules that this one is made of, where it joins several to judge them in one go.
    """

    name: str
    reads: frozenset[str]
    broken: Callable[[Values], str | None] = field(compare=False, repr=False)
    text: str = ""
    members: tuple[Rule, ...] = field(default=(), repr=False)


class RuleError(UserError):
    """A rule or a condition of the spec that cannot be computed: a number and a text compared, a division by zero.

    Values that are met late, in a space that is not listed, may be the first to show it.
    """


def expression_rules(name: str, expression: Expression) -> list[Rule]:
    """The rule that an expression must not be False; one rule of that name for each part that ``and`` joins.

    Judging one raises ``RuleError`` if it gives no condition or cannot be computed with the values.
    """
    return [_expression_rule(name, part) for part in expression.conjuncts()]


def _expression_rule(name: str, expression: Expression) -> Rule:
    def broken(values: Values) -> str | None:
        try:
            holds = expression.value(values)
        except ExpressionError as error:
            raise RuleError(f"{name}: {error} ({_given(expression, values)})") from error
        if holds is not None and not isinstance(holds, bool):
            raise RuleError(f"{name}: {expression.text!r} gives {holds!r}; a rule is a condition, such as x <= 8")
        return f"{expression.text} does not hold: {_given(expression, values)}" if holds is False else None

    return Rule(name, frozenset(expression.names), broken, expression.text)


def _seqs_within_tokens(values: Values) -> str | None:
    tokens, seqs = values.get("max_num_batched_tokens"), values.get("max_num_seqs")
    if isinstance(tokens, int) and isinstance(seqs, int) and seqs > tokens:
        return f"max_num_seqs {seqs} is above max_num_batched_tokens {tokens}"
    return None


SEQS_WITHIN_TOKENS = Rule(
    "max-num-seqs",
    frozenset({"max_num_batched_tokens", "max_num_seqs"}),
    _seqs_within_tokens,
    "max_num_seqs <= max_num_batched_tokens",
)
"""``SchedulerConfig`` of vLLM 0.32 refuses ``max_num_seqs`` above ``max_num_batched_tokens``."""


def _area_has_effect(values: Values) -> str | None:
    limit = values.get("prefill_area_limit")
    if values.get("chunk_order") == "fixed" and limit is not None:
        return f"prefill_area_limit {limit} limits no chunk of chunk_order fixed"
    return None


FIXED_ORDER_WITHOUT_AREA = Rule(
    "fixed-order-without-area",
    frozenset({"chunk_order", "prefill_area_limit"}),
    _area_has_effect,
    "prefill_area_limit is null with chunk_order fixed",
)
"""The kernel lab's order of fixed groups, that of vLLM 0.20 to 0.23, is limited by no area."""


def _given(expression: Expression, values: Values) -> str:
    return ", ".join(f"{name}={values.get(name)!r}" for name in expression.names) or "it reads no knob"
