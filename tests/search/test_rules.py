from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.search import RuleError, parse
from orchestrator.search.rules import FIXED_ORDER_WITHOUT_AREA, SEQS_WITHIN_TOKENS, expression_rules


def test_a_rule_is_broken_where_it_is_false_and_says_with_which_values() -> None:
    (rule,) = expression_rules("constraints.rules.3", parse("a + 1 < b"))
    assert rule.reads == {"a", "b"}
    assert rule.broken({"a": 1, "b": 3}) is None
    assert rule.broken({"a": 1}) is None
    assert rule.broken({"a": 2, "b": 3}) == "a + 1 < b does not hold: a=2, b=3"


def test_an_and_makes_rules_of_one_name_that_are_judged_apart() -> None:
    rules = expression_rules("r", parse("a < 1 and b < 1"))
    assert [(rule.name, rule.text, set(rule.reads)) for rule in rules] == [("r", "a < 1", {"a"}), ("r", "b < 1", {"b"})]


@pytest.mark.parametrize("text", ["a + b", "'x'", "a if b == 1 else a"])
def test_a_rule_that_is_no_condition_is_an_error(text: str) -> None:
    (rule,) = expression_rules("r", parse(text))
    with pytest.raises(RuleError, match=r"^r: .* a rule is a condition"):
        rule.broken({"a": 1, "b": 1})


@given(tokens=st.one_of(st.none(), st.integers(1, 4096)), seqs=st.one_of(st.none(), st.integers(1, 4096)))
def test_more_requests_than_tokens_in_a_step_are_ruled_out(tokens: int | None, seqs: int | None) -> None:
    reason = SEQS_WITHIN_TOKENS.broken({"max_num_batched_tokens": tokens, "max_num_seqs": seqs})
    if tokens is not None and seqs is not None and seqs > tokens:
        assert reason == f"max_num_seqs {seqs} is above max_num_batched_tokens {tokens}"
    else:
        assert reason is None


@pytest.mark.vllm
@pytest.mark.parametrize(("seqs", "accepted"), [(64, True), (65, False)])
def test_vllm_draws_the_line_at_the_same_place(seqs: int, accepted: bool) -> None:
    from pydantic import ValidationError
    from vllm.config import SchedulerConfig

    point = {"max_num_batched_tokens": 64, "max_num_seqs": seqs}
    assert (SEQS_WITHIN_TOKENS.broken(point) is None) == accepted
    config = {"max_model_len": 64, "is_encoder_decoder": False, "enable_chunked_prefill": True}
    if accepted:
        SchedulerConfig(**point, **config)
    else:
        with pytest.raises(ValidationError, match="must be greater than or equal to max_num_seqs"):
            SchedulerConfig(**point, **config)


@pytest.mark.parametrize(
    ("order", "limit", "broken"),
    [("fixed", 1024, True), ("fixed", None, False), ("batch", 1024, False), (None, 1024, False)],
)
def test_no_area_limits_the_labs_fixed_groups(order: str | None, limit: int | None, broken: bool) -> None:
    reason = FIXED_ORDER_WITHOUT_AREA.broken({"chunk_order": order, "prefill_area_limit": limit})
    assert (reason is not None) == broken
