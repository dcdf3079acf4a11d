"""Which tokens of which requests vLLM's scheduler puts into each step, for requests that are all there at the start.

Source: ``Scheduler.schedule`` of vLLM 0.32 with its default policy, first come first served, and chunked prefill.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from orchestrator.planning._checks import whole


class Share(NamedTuple):
    """What one request gets in one step.

    Attributes:
        request: Its place in the order of arrival, from 0.
        context: Tokens of it that are computed already.
        tokens: Tokens in this step: a piece of the prompt, or one while it decodes.
    """

    request: int
    context: int
    tokens: int


def fcfs_steps(
    lengths: Sequence[tuple[int, int]],
    *,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    long_prefill_token_threshold: int = 0,
) -> Iterator[list[Share]]:
    """The steps from the first request to the last token, in order; the shares of a step are in the scheduler's order.

    Running requests come first and in the order of their arrival, each with as much as the step has left; then waiting
    ones are let in. The KV cache is taken to hold all of them, so that nobody is preempted, and no prefix is shared.

    Args:
        lengths: Prompt and output tokens of each request, in the order of arrival; both at least 1.
        max_num_batched_tokens: Tokens of a step.
        max_num_seqs: Requests that run at a time.
        long_prefill_token_threshold: Most tokens of one request in a step while there are others; 0 is off.

    Raises:
        ValueError: if a length or a limit is out of range.
    """
    budget, seqs = whole("max_num_batched_tokens", max_num_batched_tokens), whole("max_num_seqs", max_num_seqs)
    threshold = whole("long_prefill_token_threshold", long_prefill_token_threshold, least=0)
    for prompt, output in lengths:
        whole("prompt tokens", prompt)
        whole("output tokens", output)
    # The last token of an output is never computed: nothing follows it.
    ends = [prompt + output - 1 for prompt, output in lengths]
    computed = [0] * len(lengths)
    running: list[int] = []
    arrived = 0
    while arrived < len(lengths) or running:
        is_alone = len(running) + len(lengths) - arrived == 1
        most = budget if is_alone or not threshold else threshold
        admitted = list(range(arrived, min(arrived + seqs - len(running), len(lengths))))
        step, left = [], budget
        for request in (*running, *admitted):
            if left == 0:
                break
            tokens = min(max(lengths[request][0] - computed[request], 1), most, left)
            step.append(Share(request, computed[request], tokens))
            left -= tokens
        yield step
        for request, _, tokens in step:
            computed[request] += tokens
            if request >= arrived:
                running.append(request)
                arrived += 1
        running = [request for request in running if computed[request] < ends[request]]
