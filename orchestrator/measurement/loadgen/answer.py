"""Read the streamed answer to one request, and keep what the timeline needs."""

from __future__ import annotations

import json
from typing import Any

from orchestrator.engines import RequestTimeline
from orchestrator.workloads import Prompt

_DONE = b"[DONE]"


class Answer:
    """One request under way. Times are of ``timer.clock``, in seconds.

    Attributes:
        send: When its first byte was handed to the socket; None before.
        error: ``class: detail`` once it has failed, for instance ``timeout: ...``.
        end: When it ended, well or not; None before.
    """

    __slots__ = ("_buffer", "_cached", "_completed", "_done", "_ids", "_prompted", "_times", "arrival", "end", "error",
                 "index", "prompt", "send", "wire")  # fmt: skip

    def __init__(self, index: int, prompt: Prompt, wire: bytes) -> None:
        self.index, self.prompt, self.wire = index, prompt, wire
        self.arrival = 0.0
        self.send: float | None = None
        self.end: float | None = None
        self.error: str | None = None
        self._buffer = b""
        self._times: list[float] = []
        self._ids: list[int] = []
        self._prompted, self._cached = len(prompt.token_ids), 0
        self._completed: int | None = None
        self._done = False

    def feed(self, data: bytes, now: float) -> None:
        """Take a piece of the event stream that was read at ``now``."""
        buffer = self._buffer + data if self._buffer else data
        *lines, self._buffer = buffer.split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip(), now)

    def fail(self, label: str, detail: str) -> None:
        """Note the first thing that went wrong."""
        if self.error is None:
            self.error = f"{label}: {detail}"

    def finish(self) -> None:
        """The answer is complete as HTTP; is it as a completion?"""
        if self.error is not None:
            return
        if not self._done:
            self.fail("bad_answer", "the stream ended without [DONE]")
        elif self._completed is None and not self._ids:
            # The number of chunks is not the number of tokens.
            self.fail("bad_answer", "no usage and no token ids in the stream, so its tokens cannot be counted")
        elif self._tokens() < self.prompt.output_len:
            self.fail("short", f"{self._tokens()} of {self.prompt.output_len} tokens")

    def timeline(self, begin: float) -> RequestTimeline:
        """Times in seconds from ``begin``. A request that was never sent has its send at its arrival."""
        times = [time - begin for time in self._times]
        send = self.arrival if self.send is None else self.send
        return RequestTimeline(
            index=self.index,
            prompt_tokens=self._prompted,
            output_tokens=self._tokens(),
            cached_tokens=self._cached,
            arrival_s=self.arrival - begin,
            send_s=send - begin,
            first_token_s=times[0] if times else None,
            end_s=times[-1] if times and self.error is None else None,
            token_times_s=times,
            output_token_ids=self._ids,
            error=self.error,
        )

    @property
    def first(self) -> float | None:
        """When its first token came; None before."""
        return self._times[0] if self._times else None

    def _tokens(self) -> int:
        return len(self._ids) if self._completed is None else self._completed

    def _event(self, data: bytes, now: float) -> None:
        if data == _DONE:
            self._done = True
            return
        try:
            self._take(json.loads(data), now)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            self.fail("bad_answer", f"not a completion chunk: {data[:100]!r}")

    def _take(self, chunk: dict[str, Any], now: float) -> None:
        if "error" in chunk:
            error = chunk["error"]
            self.fail("server_error", str(error.get("message", error) if isinstance(error, dict) else error))
            return
        if choices := chunk["choices"]:
            choice = choices[0]
            ids = choice.get("token_ids")
            # Some servers send the reason of the end in a chunk of its own, which brings no token.
            if ids or choice["text"] or not choice.get("finish_reason"):
                self._times.append(now)
            if ids:
                self._ids.extend(ids)
        if usage := chunk.get("usage"):
            self._completed = int(usage["completion_tokens"])
            self._prompted = int(usage["prompt_tokens"])
            self._cached = int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
