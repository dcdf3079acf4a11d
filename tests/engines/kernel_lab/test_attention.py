"""Tiled attention with log-sum-exp, against the same thing written down directly."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engines.kernel_lab.attention import KEY_STEP, QUERY_STEP, Partial, attend, merge_into
from orchestrator.engines.kernel_lab.errors import LabError
from orchestrator.engines.kernel_lab.workspace import Scratch, round_up
from tests.engines.kernel_lab.labs import TOLERANCE, largest_error

LSE_TOLERANCE = {torch.bfloat16: 0.1, torch.float32: 1e-4}
"""Absolute, base 2."""

DTYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])


class Case:
    """Random queries, keys and values; the padding of the keys holds NaN, so that any use of it shows."""

    def __init__(
        self, heads: int, count: int, length: int, dtype: torch.dtype, *, key: int = 24, value: int = 16, seed: int = 0
    ) -> None:
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=generator).to(dtype)

        padded = round_up(max(length, 1), KEY_STEP)
        self.count, self.length = count, length
        self.queries = torch.zeros(heads, round_up(count, QUERY_STEP), key, dtype=dtype)
        self.queries[:, :count] = normal(heads, count, key)
        self.keys_t = torch.full((heads, key, padded), math.nan, dtype=dtype)
        self.keys_t[:, :, :length] = normal(heads, key, length)
        self.values = torch.zeros(heads, padded, value, dtype=dtype)
        self.values[:, :length] = normal(heads, length, value)

    def attend(self, *, causal: bool = False, hidden: torch.Tensor | None = None) -> Partial:
        result = attend(
            self.queries, self.keys_t, self.values, self.length, scratch=Scratch(), causal=causal, hidden=hidden
        )
        return Partial(result.out[:, : self.count], result.lse[:, : self.count])

    def expected(self, hidden: torch.Tensor | None = None) -> Partial:
        keys, values = self.keys_t[:, :, : self.length].float(), self.values[:, : self.length].float()
        scores = (self.queries[:, : self.count].float() @ keys) * math.log(2.0)
        if hidden is not None:
            scores.masked_fill_(hidden[: self.count], -math.inf)
        lse = torch.logsumexp(scores, -1) / math.log(2.0)
        return Partial(torch.nan_to_num(torch.softmax(scores, -1)) @ values, lse)


def check(got: Partial, expected: Partial, dtype: torch.dtype) -> None:
    assert largest_error(got.out, expected.out) < TOLERANCE[dtype]
    seen = expected.lse > -math.inf
    assert torch.equal(got.lse > -math.inf, seen)
    assert bool(((got.lse - expected.lse)[seen].abs() < LSE_TOLERANCE[dtype]).all())


@DTYPES
@given(heads=st.integers(1, 3), count=st.integers(1, 70), length=st.integers(1, 300), seed=st.integers(0, 9))
def test_all_keys(heads: int, count: int, length: int, seed: int, dtype: torch.dtype) -> None:
    case = Case(heads, count, length, dtype, seed=seed)
    check(case.attend(), case.expected(), dtype)


@DTYPES
@given(heads=st.integers(1, 3), count=st.integers(1, 300))
def test_each_query_sees_the_keys_up_to_itself(heads: int, count: int, dtype: torch.dtype) -> None:
    case = Case(heads, count, count, dtype)
    later = torch.ones(count, count, dtype=torch.bool).triu_(1)
    check(case.attend(causal=True), case.expected(later), dtype)


@DTYPES
@given(count=st.integers(1, 40), length=st.integers(1, 150), share=st.sampled_from([0.0, 0.3, 0.95, 1.0]))
def test_hidden_keys(count: int, length: int, share: float, dtype: torch.dtype) -> None:
    case = Case(2, count, length, dtype)
    generator = torch.Generator().manual_seed(count)
    hidden = torch.rand(case.queries.shape[1], length, generator=generator) < share
    check(case.attend(hidden=hidden), case.expected(hidden), dtype)


@DTYPES
def test_many_tiles(dtype: torch.dtype) -> None:
    """Several tiles of queries, of keys and of heads."""
    case = Case(9, 1100, 2500, dtype)
    check(case.attend(), case.expected(), dtype)
    case = Case(9, 1100, 1100, dtype)
    check(case.attend(causal=True), case.expected(torch.ones(1100, 1100, dtype=torch.bool).triu_(1)), dtype)


@DTYPES
@pytest.mark.parametrize("at", [0, 37, 299])
def test_a_score_beyond_the_range_of_the_sample(dtype: torch.dtype, at: int) -> None:
    """One key is worth 2 to the 150 times the others, and only the second run finds it."""
    case = Case(2, 20, 300, dtype)
    norm = case.queries[:, 5].float().square().sum(1, keepdim=True)
    case.keys_t[:, :, at] = (case.queries[:, 5].float() / norm * 150).to(dtype)
    expected = case.expected()
    check(case.attend(), expected, dtype)
    assert bool((expected.lse[:, 5] > 140).all())


def test_scores_keep_their_precision_where_it_counts() -> None:
    """Scores near 200 are rounded to whole numbers in bf16; less their maximum they are not."""
    case = Case(1, 16, 200, torch.bfloat16)
    case.queries[:, :, 0], case.keys_t[:, 0, :200] = 16.0, 12.5
    check(case.attend(), case.expected(), torch.bfloat16)


@DTYPES
@given(
    lengths=st.lists(st.integers(0, 130), min_size=1, max_size=5).filter(sum),
    seed=st.integers(0, 9),
)
def test_merged_parts_are_the_whole(lengths: list[int], seed: int, dtype: torch.dtype) -> None:
    case = Case(2, 20, sum(lengths), dtype, seed=seed)
    total = Partial(torch.zeros(2, 32, 16), torch.full((2, 32), -math.inf))
    at = 0
    for length in lengths:
        part = Case(2, 20, length, dtype)
        part.queries = case.queries
        part.keys_t[:, :, :length] = case.keys_t[:, :, at : at + length]
        part.values[:, :length] = case.values[:, at : at + length]
        merge_into(total, attend(part.queries, part.keys_t, part.values, length, scratch=Scratch()))
        at += length
    check(Partial(total.out[:, :20], total.lse[:, :20]), case.expected(), dtype)


def test_nothing_merged_with_nothing_is_nothing() -> None:
    total, other = (Partial(torch.zeros(1, 1, 2), torch.full((1, 1), -math.inf)) for _ in range(2))
    merge_into(total, other)
    assert torch.equal(total.out, torch.zeros(1, 1, 2))
    assert total.lse.item() == -math.inf


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda case: setattr(case, "keys_t", case.keys_t[:1]), r"keys_t must have shape \(2, 24, any\), got \(1, 24"),
        (lambda case: setattr(case, "values", case.values[:, :1]), r"values must have shape \(2, 64, any\)"),
    ],
)
def test_wrong_shapes_are_one_line(change: Callable[[Case], None], message: str) -> None:
    case = Case(2, 5, 5, torch.float32)
    change(case)
    with pytest.raises(LabError, match=f"^lab-shape: {message}"):
        case.attend()
