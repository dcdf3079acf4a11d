"""The compiled pass over scores, against torch's elementwise operations."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engines.kernel_lab import team
from orchestrator.engines.kernel_lab.softmax_loop import can_weigh, largest_of_first, weigh

THREADS = (1, 2, 3)


@pytest.fixture(params=THREADS)
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def random_scores(heads: int, count: int, width: int, *, seed: int = 0, scale: float = 6.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(heads, count, width, generator=generator)).to(torch.bfloat16)


def weighed(
    scores: torch.Tensor, visible: int | None = None, diagonal: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    weights, sums = scores.clone(), torch.full(scores.shape[:2], -1.0)
    weigh(weights, sums, visible=scores.shape[2] if visible is None else visible, diagonal=diagonal)
    return weights, sums


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.int16).long()


@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 70)),
    visible=st.integers(0, 70),
    diagonal=st.none() | st.integers(0, 70),
    seed=st.integers(0, 99),
)
def test_weights_are_powers_of_what_is_seen_and_zero_elsewhere(
    shape: tuple[int, int, int], visible: int, diagonal: int | None, seed: int
) -> None:
    scores = random_scores(*shape, seed=seed)
    visible = min(visible, shape[2])
    weights, sums = weighed(scores, visible, diagonal)
    expected = torch.exp2(scores)
    expected[:, :, visible:] = 0
    if diagonal is not None:
        expected.tril_(diagonal)
    assert int((bits(weights) - bits(expected)).abs().max()) <= 1
    assert torch.allclose(sums, weights.double().sum(-1).float(), rtol=1e-6, atol=0)


def test_every_score_is_at_most_one_step_off() -> None:
    """All numbers of bf16 in the range where weights are normal numbers."""
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    scores = every[every.abs() <= 126].view(1, 1, -1)
    steps = (bits(weighed(scores)[0]) - bits(torch.exp2(scores.double()).to(torch.bfloat16))).abs()
    assert int(steps.max()) <= 1
    assert float((steps > 0).double().mean()) < 0.01


def test_what_is_beyond_the_range() -> None:
    scores = torch.tensor([-torch.inf, -1e30, -127.0, 127.0, 300.0, torch.inf], dtype=torch.bfloat16).view(1, 1, -1)
    weights, sums = weighed(scores)
    assert weights[0, 0, :3].tolist() == [0.0, 0.0, 0.0]
    assert bool((weights[0, 0, 3:] >= 2.0**126).all())
    assert float(sums) >= 2.0**100


def test_nan_is_neither_hidden_nor_spread() -> None:
    scores = torch.zeros(1, 2, 40, dtype=torch.bfloat16)
    scores[0, 0, 17] = torch.nan
    weights, sums = weighed(scores)
    assert weights.isnan().nonzero().tolist() == [[0, 0, 17]]
    assert sums.isnan().tolist() == [[True, False]]


def test_threads_share_the_rows(threads: int) -> None:
    """More rows than a share, and the same bits whoever computes them."""
    scores = random_scores(3, 1001, 64)
    weights, sums = weighed(scores, 60, 5)
    alone = [weighed(scores[:, row : row + 1].contiguous(), min(60, row + 6)) for row in (0, 31, 32, 1000)]
    for row, (one, total) in zip((0, 31, 32, 1000), alone, strict=True):
        assert torch.equal(weights[:, row], one[:, 0])
        assert torch.equal(sums[:, row], total[:, 0])
    assert threads == torch.get_num_threads()


def test_another_openmp_leaves_one_thread(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    scores = random_scores(2, 100, 64)
    expected = weighed(scores)
    monkeypatch.setattr(team, "_OPENMP", "libgomp-of-nobody.so")
    team._team.cache_clear()
    try:
        for got, before in zip(weighed(scores), expected, strict=True):
            assert torch.equal(got, before)
    finally:
        team._team.cache_clear()
    assert threads == torch.get_num_threads()


@given(shape=st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 40)), seed=st.integers(0, 99))
def test_the_largest_of_the_first(shape: tuple[int, int, int], seed: int) -> None:
    scores = random_scores(*shape, seed=seed, scale=50.0)
    counts = torch.randint(1, shape[2] + 1, (shape[1],), generator=torch.Generator().manual_seed(seed))
    expected = [scores[:, row, : int(count)].amax(-1) for row, count in enumerate(counts)]
    assert torch.equal(largest_of_first(scores, counts), torch.stack(expected, 1))


def test_other_scores_are_left_to_torch() -> None:
    assert can_weigh(torch.zeros(1, 2, 3, dtype=torch.bfloat16))
    assert not can_weigh(torch.zeros(1, 2, 3))
    assert not can_weigh(torch.zeros(1, 3, 2, dtype=torch.bfloat16).transpose(1, 2))
    assert not can_weigh(torch.zeros(1, 2, 3, dtype=torch.bfloat16, device="meta"))
