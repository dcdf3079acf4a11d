"""The output token and the gap to the second best."""

from __future__ import annotations

import torch

from orchestrator.engines.kernel_lab.head import TokenHead
from tests.engines.kernel_lab.labs import CPU


def head() -> TokenHead:
    return TokenHead([3 * 24, 3 * 80], 50, 7, CPU)


def outputs(count: int, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(count, 3, size, generator=generator) for size in (24, 80)]


def test_one_token_and_one_gap_for_each_request() -> None:
    tokens, gaps = head().best_two(outputs(400))
    assert len(tokens) == len(gaps) == 400
    assert set(tokens) <= set(range(50))
    assert len(set(tokens)) > 25
    assert min(gaps) >= 0
    # Near ties are the exception: the guard of the accuracy excuses gaps below a tenth.
    assert sum(gap < 0.1 for gap in gaps) < 60
    assert max(gaps) < 20


def test_the_size_of_an_output_does_not_matter_and_a_small_error_changes_little() -> None:
    one = outputs(50)
    tokens, gaps = head().best_two(one)
    assert head().best_two([layer * 1e-3 for layer in one])[0] == tokens
    found, other = head().best_two([layer * (1 + 1e-3 * torch.randn(layer.shape)) for layer in one])
    for token, gap, again, other_gap in zip(tokens, gaps, found, other, strict=True):
        assert token == again or gap < 0.1
        assert token != again or abs(gap - other_gap) < 0.1


def test_every_layer_counts() -> None:
    one, two = outputs(50), outputs(50, seed=1)
    tokens, _ = head().best_two(one)
    for mixed in ([one[0], two[1]], [two[0], one[1]]):
        assert head().best_two(mixed)[0] != tokens


def test_a_gap_is_the_difference_of_two_log_probabilities() -> None:
    """Two requests with one direction each: the logits are its projection, so that the gap is known."""
    made = TokenHead([8], 3, 0, CPU)
    made._projection = torch.eye(8)[:, :3]
    made._signs = [torch.ones(1, 8)]
    output = torch.tensor([[0.0, 2.0, 1.0, 0, 0, 0, 0, 0]])
    tokens, gaps = made.best_two([output])
    logits = output[0, :3] / output.square().mean().sqrt()
    expected = torch.log_softmax(logits, 0).sort(descending=True).values
    assert tokens == [1]
    assert abs(gaps[0] - float(expected[0] - expected[1])) < 1e-6
