"""The step scheduler, by hand and by its rules."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engines.kernel_lab.scheduler import Granted, LabRequest, Limits, StepScheduler


def request(index: int, prompt: int, output: int = 1) -> LabRequest:
    return LabRequest.of(index, [7] * prompt, output)


def play(scheduler: StepScheduler) -> list[list[tuple[int, int, int]]]:
    """Run to the end: (request, start, count) of each step."""
    steps = []
    while granted := scheduler.schedule():
        steps.append([(one.request.index, one.start, one.count) for one in granted])
        for one in granted:
            compute(scheduler, one)
    return steps


def compute(scheduler: StepScheduler, one: Granted) -> None:
    one.request.computed += one.count
    if one.request.computed == one.request.known:
        one.request.append(1)
        if one.request.is_finished:
            scheduler.remove(one.request)


def made(limits: Limits, *prompts: int, output: int = 1) -> StepScheduler:
    scheduler = StepScheduler(limits, lambda _: True)
    for index, prompt in enumerate(prompts):
        scheduler.add(request(index, prompt, output))
    return scheduler


def test_a_long_prompt_is_cut_and_the_rest_of_a_step_goes_to_the_next() -> None:
    scheduler = made(Limits(10, 4, 0), 15, 4, 20)
    assert play(scheduler) == [
        [(0, 0, 10)],
        [(0, 10, 5), (1, 0, 4), (2, 0, 1)],
        [(2, 1, 10)],
        [(2, 11, 9)],
    ]
    assert (scheduler.steps, scheduler.max_step_tokens, scheduler.max_running_requests) == (4, 10, 3)


def test_decodes_come_before_new_prefills() -> None:
    assert play(made(Limits(8, 4, 0), 4, 12, output=3)) == [
        [(0, 0, 4), (1, 0, 4)],
        [(0, 4, 1), (1, 4, 7)],
        [(0, 5, 1), (1, 11, 1)],
        [(1, 12, 1)],
        [(1, 13, 1)],
    ]


def test_no_more_requests_run_than_allowed() -> None:
    assert play(made(Limits(100, 2, 0), 5, 5, 5)) == [[(0, 0, 5), (1, 0, 5)], [(2, 0, 5)]]


def test_the_threshold_holds_a_prefill_back_while_another_is_there() -> None:
    scheduler = made(Limits(10, 4, 4), 9, 3)
    assert play(scheduler) == [[(0, 0, 4), (1, 0, 3)], [(0, 4, 5)]]
    assert scheduler.long_prefill_cuts == 1
    alone = made(Limits(10, 4, 4), 9)
    assert play(alone) == [[(0, 0, 9)]]
    assert alone.long_prefill_cuts == 0


def test_a_request_waits_for_its_blocks_and_nobody_overtakes_it() -> None:
    free = {0: True, 1: False, 2: True}
    scheduler = StepScheduler(Limits(10, 4, 0), lambda one: free[one.index])
    for index in range(3):
        scheduler.add(request(index, 2))
    assert [[one.request.index for one in scheduler.schedule()]] == [[0]]
    free[1] = True
    granted = scheduler.schedule()
    assert [one.request.index for one in granted] == [0, 1, 2]


def test_a_request_that_was_given_up_is_forgotten() -> None:
    scheduler = StepScheduler(Limits(10, 1, 0), lambda _: True)
    requests = [request(index, 20) for index in range(3)]
    for one in requests:
        scheduler.add(one)
    scheduler.schedule()
    scheduler.remove(requests[0])
    scheduler.remove(requests[1])
    scheduler.remove(requests[1])
    assert [one.request.index for one in scheduler.schedule()] == [2]


@given(
    prompts=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    output=st.integers(1, 4),
    tokens=st.integers(1, 20),
    seqs=st.integers(1, 5),
    threshold=st.integers(0, 12),
)
def test_every_token_is_computed_once_within_the_limits(
    prompts: list[int], output: int, tokens: int, seqs: int, threshold: int
) -> None:
    steps = play(made(Limits(tokens, seqs, threshold), *prompts, output=output))
    done = dict.fromkeys(range(len(prompts)), 0)
    for step in steps:
        assert sum(count for _, _, count in step) <= tokens
        assert len(step) <= seqs
        for index, start, count in step:
            assert start == done[index]
            done[index] += count
    # The last token of an answer is never computed.
    assert list(done.values()) == [prompt + output - 1 for prompt in prompts]
