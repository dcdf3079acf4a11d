"""Serve the streams of one block: the event loop decides what a step computes, a thread of its own computes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor

from orchestrator.engines.contract import EngineError
from orchestrator.engines.kernel_lab.model import LabModel
from orchestrator.engines.kernel_lab.scheduler import LabRequest, Limits, StepScheduler
from orchestrator.engines.streaming import RequestFailed, StreamChunk
from orchestrator.workloads import Prompt

_Answer = StreamChunk | EngineError


class Service:
    """The requests of one block.

    Scheduling and the bookkeeping of requests happen on the event loop, between steps; only the computing of a step
    happens on the other thread, so that nothing needs a lock and requests are taken on while a step runs.

    Args:
        executor: Has one thread.
        longest: Tokens of prompt and output that a request may have.
        top2: Whether the gaps between the two best tokens are wanted.
        check: Called before each layer of a step; it raises to end the block.
    """

    def __init__(
        self,
        model: LabModel,
        executor: Executor,
        limits: Limits,
        *,
        longest: int,
        top2: bool,
        check: Callable[[], None],
    ) -> None:
        self._model, self._executor, self._longest, self._top2, self._check = model, executor, longest, top2, check
        self.scheduler = StepScheduler(limits, model.admit)
        self._answers: dict[LabRequest, asyncio.Queue[_Answer]] = {}
        self._given_up: list[LabRequest] = []
        self._wake = asyncio.Event()

    @property
    def in_flight(self) -> int:
        """Requests that were taken on and have not ended."""
        return len(self._answers)

    async def stream(self, index: int, prompt: Prompt) -> AsyncIterator[StreamChunk]:
        """The tokens of one request, one by one."""
        request = LabRequest.of(index, prompt.token_ids, prompt.output_len)
        if request.total_len > self._longest:
            raise RequestFailed(
                f"too-long: {request.prompt_len} tokens of input and {request.output_len} of output, at most "
                f"{self._longest} fit"
            )
        answers = self._answers[request] = asyncio.Queue()
        self.scheduler.add(request)
        self._wake.set()
        try:
            for _ in range(prompt.output_len):
                answer = await answers.get()
                if isinstance(answer, EngineError):
                    raise answer
                yield answer
        finally:
            del self._answers[request]
            # A step that is being computed may still use its blocks.
            self._given_up.append(request)
            self._wake.set()

    async def serve(self) -> None:
        """Run steps until cancelled. What a step raises ends it."""
        loop = asyncio.get_running_loop()
        while True:
            self._check()
            self._drop_given_up()
            granted = self.scheduler.schedule()
            if not granted:
                self._wake.clear()
                await self._wake.wait()
                continue
            for one in await loop.run_in_executor(self._executor, self._model.step, granted, self._check):
                one.request.append(one.token)
                if (answers := self._answers.get(one.request)) is not None:
                    answers.put_nowait(StreamChunk([one.token], [one.gap] if self._top2 else None, 0))
                if one.request.is_finished:
                    self._end(one.request)

    def fail(self, failure: EngineError) -> None:
        """End all requests with an error, which the load generator takes as the end of the block."""
        for answers in self._answers.values():
            answers.put_nowait(failure)

    def wake(self) -> None:
        """Have ``check`` called, also while there is nothing to compute. Only from the event loop's thread."""
        self._wake.set()

    async def close(self) -> None:
        """Wait for the step that is being computed, and take all blocks back."""
        await asyncio.get_running_loop().run_in_executor(self._executor, _nothing)
        self._drop_given_up()

    def _drop_given_up(self) -> None:
        while self._given_up:
            self._end(self._given_up.pop())

    def _end(self, request: LabRequest) -> None:
        """Forget a request; nothing happens when that was done before."""
        self.scheduler.remove(request)
        self._model.release(request)


def _nothing() -> None:
    """Runs after everything that was given to the executor before."""
