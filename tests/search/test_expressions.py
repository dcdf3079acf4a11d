from __future__ import annotations

import math
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.search import ExpressionError, parse

FUNCTIONS = {"abs": abs, "gcd": math.gcd, "lcm": math.lcm, "max": max, "min": min}
NAMES = ("a", "b", "c.d")

values_of_names = st.fixed_dictionaries({name: st.integers(-6, 6) for name in NAMES})


def pair(left: st.SearchStrategy[str], operators: str, right: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(left, st.sampled_from(operators.split()), right).map(lambda parts: f"({' '.join(parts)})")


def numbers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        pair(inner, "+ - * / // %", inner),
        inner.map(lambda text: f"-{text}"),
        inner.map(lambda text: f"abs({text})"),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda x: f"{x[0]}({x[1]}, {x[2]})"),
    )


numeric = st.recursive(st.one_of(st.sampled_from(NAMES), st.integers(0, 9).map(str)), numbers, max_leaves=5)
comparisons = st.one_of(
    pair(numeric, "< <= > >= == !=", numeric),
    st.tuples(numeric, numeric, numeric).map(lambda x: f"({x[0]} < {x[1]} <= {x[2]})"),
    st.tuples(numeric, st.sampled_from(["in", "not in"]), numeric, numeric).map(
        lambda x: f"({x[0]} {x[1]} [{x[2]}, {x[3]}])"
    ),
)
conditions = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        pair(inner, "and or", inner),
        inner.map(lambda text: f"(not {text})"),
        st.tuples(inner, inner, inner).map(lambda x: f"({x[0]} if {x[1]} else {x[2]})"),
    ),
    max_leaves=6,
)


def pythons_own(text: str, values: dict[str, int]) -> Any:
    """What Python makes of it, or the error that it ends with."""
    names = {"a": values["a"], "b": values["b"], "c": type("c", (), {"d": values["c.d"]})}
    try:
        return eval(text, {"__builtins__": {}, **FUNCTIONS}, names)
    except (ArithmeticError, ValueError) as error:
        return error


@given(text=st.one_of(conditions, numeric), values=values_of_names)
def test_an_expression_gives_what_python_gives(text: str, values: dict[str, int]) -> None:
    expected = pythons_own(text, values)
    expression = parse(text)
    if isinstance(expected, Exception):
        with pytest.raises(ExpressionError):
            expression.value(values)
    else:
        found = expression.value(values)
        assert found == expected
        assert type(found) is type(expected)
    assert set(expression.names) == {name for name in NAMES if re.search(rf"\b{name}\b", text)}


@given(text=conditions, values=values_of_names, unknown=st.sampled_from(NAMES), stand_in=st.integers(-6, 6))
@example(text="(a < 0 and b < 0)", values={"a": 1, "b": 1, "c.d": 1}, unknown="b", stand_in=-1)
@example(text="(a < 0 or b < 9)", values={"a": 1, "b": 1, "c.d": 1}, unknown="a", stand_in=5)
def test_what_is_decided_without_a_value_holds_whatever_the_value_is(
    text: str, values: dict[str, int], unknown: str, stand_in: int
) -> None:
    known = {name: value for name, value in values.items() if name != unknown}
    try:
        found = parse(text).value(known)
    except ExpressionError:
        return
    expected = pythons_own(text, {**values, unknown: stand_in})
    if found is not None and not isinstance(expected, Exception):
        assert found == expected


@given(text=conditions, values=values_of_names)
def test_an_expression_is_false_exactly_where_one_of_its_conjuncts_is(text: str, values: dict[str, int]) -> None:
    expression = parse(text)
    try:
        whole = expression.value(values)
        parts = [part.value(values) for part in expression.conjuncts()]
    except ExpressionError:
        return
    assert (whole is False) == any(part is False for part in parts)


def test_conjuncts_read_only_their_own_names() -> None:
    parts = parse("a < 1 and (b < 2 and c < 3) and (d < 4 or e < 5)").conjuncts()
    assert [part.names for part in parts] == [("a",), ("b",), ("c",), ("d", "e")]


@pytest.mark.parametrize(
    ("text", "values", "found"),
    [
        ("a is None", {}, True),
        ("a is not None", {}, False),
        ("a == null", {"a": 0}, False),
        ("null != a", {"a": 0}, True),
        ("a in (null, 3)", {}, True),
        ("a not in [3, null]", {"a": 3}, False),
        ("a in [1, 2]", {}, None),
        ("a in [1, b]", {"a": 1}, True),
        ("a in [1, b]", {"a": 2}, None),
        ("default(a, 5) > 4", {}, True),
        ("default(a, 5) > 4", {"a": 1}, False),
        ("a + 1", {}, None),
        ("a == b", {"a": 1}, None),
        ("not a == b", {"a": 1}, None),
        ("a == 1 and b == 2", {"b": 3}, False),
        ("a == 1 or b == 2", {"b": 2}, True),
        ("1 < a < b", {"a": 0}, False),
        ("x if a == 1 else 3", {}, None),
        ("dtype == 'fp8'", {"dtype": "fp8"}, True),
        ("dtype < 'g'", {"dtype": "fp8"}, True),
        ("flag == true", {"flag": True}, True),
        ("workload.input_len >= 2 ** 1 if false else true", {}, None),
    ],
)
def test_none_is_a_value_that_nobody_knows(text: str, values: dict[str, Any], found: Any) -> None:
    if "**" in text:
        with pytest.raises(ExpressionError):
            parse(text)
    else:
        assert parse(text).value(values) is found


@pytest.mark.parametrize(
    ("text", "column", "part"),
    [
        ("", 1, "is empty; allowed: names, numbers, "),
        ("  ", 1, "is empty"),
        ("a <", 4, "ends too early; allowed: "),
        ("a b", 1, "is no expression (invalid syntax"),
        ("a = 1", 1, "is no expression"),
        ("a ** 2", 1, "this operator is not allowed; allowed: "),
        ("a & 2", 1, "this operator is not allowed"),
        ("~a", 1, "this operator is not allowed"),
        ("x + lambda: 1", 3, "is no expression"),
        ("open('f')", 1, "this call is not allowed"),
        ("a.b()", 1, "this call is not allowed"),
        ("max(a)", 1, "max takes 2 to 8 values, got 1"),
        ("abs(a, key=b)", 1, "this call is not allowed"),
        ("default(a)", 1, "default takes 2 values, got 1"),
        ("1 + a[0]", 5, "'a[0]' is not allowed"),
        ("(1).real", 1, "a dot belongs to a name"),
        ("'x'.upper", 1, "a dot belongs to a name"),
        ("[a for a in b]", 1, "'[a for a in b]' is not allowed"),
        ("a in b", 6, "'in' needs a list"),
        ("a in []", 6, "'in' needs a list"),
        ("a is b", 6, "'is' compares with None alone"),
        ("f'{a}'", 1, "is not allowed"),
        ("1j", 1, "1j is not allowed"),
        ("...", 1, "Ellipsis is not allowed"),
        ("é == b'x'", 6, "is not allowed"),
        ("-" * 60 + "1", 42, "is nested deeper than 40"),
        ("(" * 300 + "1" + ")" * 300, 1, "is no expression"),
        ("1" + "+1" * 600, 1000, "is longer than 1000 characters"),
        ("a\x00", 1, "is no expression"),
    ],
)
def test_what_is_no_expression_is_refused_with_its_place(text: str, column: int, part: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    message = str(caught.value)
    assert part in message
    assert "\n" not in message
    if "no expression" not in part:
        assert caught.value.column == column


@pytest.mark.parametrize(
    ("text", "values", "part"),
    [
        ("a < 1", {"a": "fp8"}, "'fp8' < 1 compares a number with another kind"),
        ("a < true", {"a": 1}, "1 < True compares a number with another kind"),
        ("a + 1", {"a": "x"}, "+ needs numbers, got 'x'"),
        ("-a", {"a": True}, "- needs numbers, got True"),
        ("a and b == 1", {"a": 8}, "and, or, not and if need a condition, got 8"),
        ("1 / a", {"a": 0}, "/ of 1, 0: division by zero"),
        ("lcm(a, 2)", {"a": 0.5}, "lcm of 0.5, 2: "),
    ],
)
def test_values_that_do_not_go_together_are_an_error(text: str, values: dict[str, Any], part: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text).value(values)
    assert part in str(caught.value)
