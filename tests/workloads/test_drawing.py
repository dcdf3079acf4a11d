from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.workloads import BurstBehindGiant, FixedLength, MultiTurn, RandomTokens, UniformLength, draw_many

RANDOM = RandomTokens(prompts=3, input_len=FixedLength(tokens=8), output_len=FixedLength(tokens=2))
CHATS = MultiTurn(
    conversations=2,
    turns=UniformLength(low=1, high=3),
    first_len=FixedLength(tokens=8),
    next_len=FixedLength(tokens=4),
    output_len=FixedLength(tokens=2),
)


@given(count=st.integers(1, 20), seed=st.integers(0, 100))
def test_there_are_as_many_as_asked_for_and_no_two_alike(count: int, seed: int) -> None:
    requests = draw_many(RANDOM, count, seed=[seed], vocab_size=10_000)
    assert len({tuple(request.prompt.token_ids) for request in requests}) == len(requests) == count
    assert requests == draw_many(RANDOM, count, seed=[seed], vocab_size=10_000)


@given(count=st.integers(1, 20), seed=st.integers(0, 100))
def test_turns_follow_the_turn_before_them(count: int, seed: int) -> None:
    requests = draw_many(CHATS, count, seed=[seed], vocab_size=10_000)
    for index, request in enumerate(requests):
        if request.follows is not None:
            before = requests[request.follows].prompt.token_ids
            assert request.follows == index - 1
            assert list(request.prompt.token_ids[: len(before)]) == list(before)


def test_times_of_their_own_are_left_out() -> None:
    workload = BurstBehindGiant(giant_len=50, shorts=2)
    assert all(request.at_s is None for request in draw_many(workload, 7, seed=[0], vocab_size=100))
