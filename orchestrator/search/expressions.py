"""Expressions of a spec: parsed once into functions of our own, so that no text of a file is ever run as Python.

    expression = parse("block_size % cp_kv_cache_interleave_size == 0")
    expression.names                                                        # what it reads
    expression.value({"block_size": 64, "cp_kv_cache_interleave_size": 3})  # False

None stands for a value that nobody knows, such as an engine argument that is left to vLLM. What is computed from it is
None again, and logic is three-valued, as in SQL: ``None and False`` is False, ``None or False`` is None. A rule is
broken where it is False, a condition holds where it is True. ``x is None`` and ``default(x, 1)`` ask for it.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

Value = bool | int | float | str | None
Values = Mapping[str, Value]
_Evaluate = Callable[[Values], Value]

ALLOWED: Final = (
    "names, numbers, quoted text, true, false, null, + - * / // %, comparisons, in, is None, and, or, not, "
    "x if c else y, and abs, ceil, default, floor, gcd, lcm, max, min, round"
)
"""For messages: what an expression may be made of."""

_LONGEST: Final = 1000
_DEEPEST: Final = 40
_CONSTANTS: Final[dict[str, Value]] = {"true": True, "false": False, "null": None}
"""As YAML spells them; Python's own spelling is known to the parser."""

_ARITHMETIC: Final[dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
}
_ORDER: Final[dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], bool]]]] = {
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}
_FUNCTIONS: Final[dict[str, tuple[int, int, Callable[..., Any]]]] = {
    "abs": (1, 1, abs),
    "ceil": (1, 1, math.ceil),
    "floor": (1, 1, math.floor),
    "gcd": (2, 8, math.gcd),
    "lcm": (2, 8, math.lcm),
    "max": (2, 8, max),
    "min": (2, 8, min),
    "round": (1, 1, round),
}
"""Fewest and most arguments, and what they do with numbers."""


class ExpressionError(ValueError):
    """An expression that cannot be read, or cannot be computed with the values at hand: one line.

    Attributes:
        column: Where in the text, from 1.
    """

    def __init__(self, text: str, column: int, message: str) -> None:
        super().__init__(f"{text!r}, column {column}: {message}")
        self.column = column


@dataclass(frozen=True)
class Expression:
    """A parsed expression; two of the same text are equal.

    Attributes:
        names: What it reads, each once, in the order of the text; ``workload.input_len`` is one name.
    """

    text: str
    names: tuple[str, ...] = field(compare=False)
    _evaluate: _Evaluate = field(compare=False, repr=False)

    def value(self, values: Values) -> Value:
        """Compute it. A name that ``values`` lacks is None.

        Raises:
            ExpressionError: Values that do not go together: text and a number, a division by zero.
        """
        return self._evaluate(values)

    def conjuncts(self) -> tuple[Expression, ...]:
        """The parts that ``and`` joins; the expression is False exactly where one of them is. Each reads fewer names,
        so that it can be judged earlier."""
        tree = ast.parse(self.text, mode="eval").body
        if not (isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And)):
            return (self,)
        parts = (ast.get_source_segment(self.text, node) for node in tree.values)
        return tuple(inner for part in parts if part for inner in parse(part).conjuncts())


def parse(text: str) -> Expression:
    """Read an expression.

    Raises:
        ExpressionError: It is no expression, or has a part that is not allowed.
    """
    if len(text) > _LONGEST:
        raise ExpressionError(f"{text[:40]}...", _LONGEST, f"is longer than {_LONGEST} characters")
    stripped = text.strip()
    if not stripped:
        raise ExpressionError(text, 1, f"is empty; allowed: {ALLOWED}")
    try:
        tree = ast.parse(stripped, mode="eval")
    except SyntaxError as error:
        # Python gives no place where the text ends before the expression does.
        reason = "ends too early" if error.offset == 0 else f"is no expression ({error.msg})"
        raise ExpressionError(stripped, error.offset or len(stripped) + 1, f"{reason}; allowed: {ALLOWED}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(stripped, 1, f"is no expression ({error}); allowed: {ALLOWED}") from None
    parser = _Parser(stripped)
    evaluate = parser.build(tree.body, 0)
    return Expression(stripped, tuple(dict.fromkeys(parser.names)), evaluate)


class _Parser:
    """Turns nodes of Python's grammar into functions; a node that is not listed here is refused."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: list[str] = []

    def build(self, node: ast.expr, depth: int) -> _Evaluate:
        if depth > _DEEPEST:
            raise self._error(node, f"is nested deeper than {_DEEPEST}")
        builder = getattr(self, f"_{type(node).__name__.lower()}", None)
        if builder is None:
            part = ast.get_source_segment(self.text, node) or type(node).__name__
            raise self._error(node, f"{part!r} is not allowed; allowed: {ALLOWED}")
        evaluate: _Evaluate = builder(node, depth + 1)
        return evaluate

    def _error(self, node: ast.expr, message: str) -> ExpressionError:
        column = len(self.text.encode()[: node.col_offset].decode(errors="replace")) + 1
        return ExpressionError(self.text, column, message)

    def _constant(self, node: ast.Constant, _depth: int) -> _Evaluate:
        value = node.value
        if value is not None and not isinstance(value, (bool, int, float, str)):
            raise self._error(node, f"{value!r} is not allowed; allowed: {ALLOWED}")
        return lambda _: value

    def _name(self, node: ast.Name, _depth: int) -> _Evaluate:
        name = node.id
        if name in _CONSTANTS:
            constant = _CONSTANTS[name]
            return lambda _: constant
        self.names.append(name)
        return lambda values: values.get(name)

    def _attribute(self, node: ast.Attribute, _depth: int) -> _Evaluate:
        parts = [node.attr]
        inner = node.value
        while isinstance(inner, ast.Attribute):
            parts.append(inner.attr)
            inner = inner.value
        if not isinstance(inner, ast.Name):
            raise self._error(node, f"a dot belongs to a name such as workload.input_len; allowed: {ALLOWED}")
        name = ".".join([inner.id, *reversed(parts)])
        self.names.append(name)
        return lambda values: values.get(name)

    def _unaryop(self, node: ast.UnaryOp, depth: int) -> _Evaluate:
        inner = self.build(node.operand, depth)
        if isinstance(node.op, ast.Not):

            def negate(values: Values) -> Value:
                value = self._truth(node.operand, inner(values))
                return None if value is None else not value

            return negate
        if not isinstance(node.op, (ast.USub, ast.UAdd)):
            raise self._error(node, f"this operator is not allowed; allowed: {ALLOWED}")
        sign = -1 if isinstance(node.op, ast.USub) else 1
        return lambda values: self._computed(node, "+" if sign > 0 else "-", lambda x: sign * x, [inner(values)])

    def _binop(self, node: ast.BinOp, depth: int) -> _Evaluate:
        if type(node.op) not in _ARITHMETIC:
            raise self._error(node, f"this operator is not allowed; allowed: {ALLOWED}")
        symbol, compute = _ARITHMETIC[type(node.op)]
        left, right = self.build(node.left, depth), self.build(node.right, depth)
        return lambda values: self._computed(node, symbol, compute, [left(values), right(values)])

    def _boolop(self, node: ast.BoolOp, depth: int) -> _Evaluate:
        parts = [(part, self.build(part, depth)) for part in node.values]
        ends_at = isinstance(node.op, ast.Or)

        def join(values: Values) -> Value:
            unknown = False
            for part, evaluate in parts:
                value = self._truth(part, evaluate(values))
                if value is ends_at:
                    return ends_at
                unknown = unknown or value is None
            return None if unknown else not ends_at

        return join

    def _ifexp(self, node: ast.IfExp, depth: int) -> _Evaluate:
        test, then, other = (self.build(part, depth) for part in (node.test, node.body, node.orelse))

        def choose(values: Values) -> Value:
            holds = self._truth(node.test, test(values))
            return None if holds is None else (then if holds else other)(values)

        return choose

    def _call(self, node: ast.Call, depth: int) -> _Evaluate:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if (name not in _FUNCTIONS and name != "default") or node.keywords:
            raise self._error(node, f"this call is not allowed; allowed: {ALLOWED}")
        least, most, compute = _FUNCTIONS.get(name, (2, 2, max))
        if not least <= len(node.args) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise self._error(node, f"{name} takes {wanted} values, got {len(node.args)}")
        parts = [self.build(part, depth) for part in node.args]
        if name == "default":
            first, second = parts

            def known(values: Values) -> Value:
                value = first(values)
                return second(values) if value is None else value

            return known
        return lambda values: self._computed(node, name, compute, [part(values) for part in parts])

    def _compare(self, node: ast.Compare, depth: int) -> _Evaluate:
        links: list[_Evaluate] = []
        operands = [node.left, *node.comparators]
        for index, kind in enumerate(node.ops):
            links.append(self._link(operands[index], kind, operands[index + 1], depth))
        if len(links) == 1:
            return links[0]

        def chain(values: Values) -> Value:
            unknown = False
            for link in links:
                value = link(values)
                if value is False:
                    return False
                unknown = unknown or value is None
            return None if unknown else True

        return chain

    def _link(self, left_node: ast.expr, kind: ast.cmpop, right_node: ast.expr, depth: int) -> _Evaluate:
        """One comparison of two neighbours."""
        left = self.build(left_node, depth)
        if isinstance(kind, (ast.In, ast.NotIn)):
            return self._membership(left, isinstance(kind, ast.In), right_node, depth)
        right = self.build(right_node, depth)
        asks_null = _is_null(left_node) or _is_null(right_node)
        if isinstance(kind, (ast.Is, ast.IsNot)) and not asks_null:
            raise self._error(right_node, f"'is' compares with None alone; allowed: {ALLOWED}")
        if isinstance(kind, (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)):
            wanted = isinstance(kind, (ast.Is, ast.Eq))

            def equal(values: Values) -> Value:
                found = left(values), right(values)
                if None in found and not asks_null:
                    return None
                return (found[0] == found[1]) is wanted

            return equal
        symbol, compare = _ORDER[type(kind)]

        def ordered(values: Values) -> Value:
            found = left(values), right(values)
            if None in found:
                return None
            if not all(isinstance(value, str) for value in found) and not all(map(_is_number, found)):
                raise self._error(left_node, f"{found[0]!r} {symbol} {found[1]!r} compares a number with another kind")
            return compare(*found)

        return ordered

    def _membership(self, left: _Evaluate, wanted: bool, node: ast.expr, depth: int) -> _Evaluate:
        if not isinstance(node, (ast.Tuple, ast.List)) or not node.elts:
            raise self._error(node, f"'in' needs a list, as in x in [1, 2]; allowed: {ALLOWED}")
        elements = [(_is_null(part), self.build(part, depth)) for part in node.elts]

        def member(values: Values) -> Value:
            value, unknown = left(values), False
            for is_null, evaluate in elements:
                element = evaluate(values)
                if is_null:
                    if value is None:
                        return wanted
                elif value is None or element is None:
                    unknown = True
                elif value == element:
                    return wanted
            return None if unknown else not wanted

        return member

    def _truth(self, node: ast.expr, value: Value) -> bool | None:
        if value is None or isinstance(value, bool):
            return value
        raise self._error(node, f"and, or, not and if need a condition, got {value!r}")

    def _computed(self, node: ast.expr, symbol: str, compute: Callable[..., Any], operands: Sequence[Value]) -> Value:
        if any(operand is None for operand in operands):
            return None
        if not all(map(_is_number, operands)):
            other = next(operand for operand in operands if not _is_number(operand))
            raise self._error(node, f"{symbol} needs numbers, got {other!r}")
        try:
            result: Value = compute(*operands)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise self._error(node, f"{symbol} of {', '.join(map(repr, operands))}: {error}") from None
        return result


def _is_null(node: ast.expr) -> bool:
    """Whether None itself stands there."""
    return (isinstance(node, ast.Constant) and node.value is None) or (isinstance(node, ast.Name) and node.id == "null")


def _is_number(value: Value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
