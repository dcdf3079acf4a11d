"""What a log tells beside the wordings of the table: exceptions, words, frames, and whether the engine was well."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from orchestrator.cluster.failure_log import FailureLog, Span
from orchestrator.cluster.failure_table import Level
from orchestrator.cluster.failure_table.context import ALIVE, CAPTURING, IGNORED, LOADING, ORDERLY, PROFILING, SERVING
from orchestrator.cluster.failure_table.frames import FRAMES
from orchestrator.cluster.failure_table.hints import HINTS

_NEAR_FRAMES = 40
"""Lines above an exception in which its frames are looked for."""

_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Failure|Interrupt|Timeout)\b(?:\(\w*\))?\s*(?::|$)"
)
_FRAME = re.compile(r'^\s*File "(?P<path>[^"]+)", line \d+, in (?P<name>\S+)')
_SIGN = re.compile(
    r"error|exception|fatal|traceback|killed|abort|core dumped|failed|cannot|panic|timed out|dead\b|died", re.IGNORECASE
)
_COUNT_OF_NONE = re.compile(r"(?:failed|errors?|errored|aborted)[\w ()/]*[:=]\s*0\b", re.IGNORECASE)
_CHATTER = re.compile(r"\b(?:info|warning|debug)\b|it/s\]|s/it\]|200 OK", re.IGNORECASE)
_CONSEQUENCES = (
    "RayTaskError",
    "KeyboardInterrupt",
    "CancelledError",
    "EOFError",
    "BrokenPipeError",
    "ConnectionResetError",
    "ConnectionRefusedError",
    "ConnectionAbortedError",
    "ChildProcessError",
    "ClientConnectorError",
    "ZMQError",
    "EngineGenerateError",
)
"""Exceptions of those who only noticed that another process was gone."""


def signs(log: FailureLog) -> list[int]:
    """Lines that look like an error, and are not known to be harmless."""
    harmless = _harmless(log)
    return [
        number
        for number, line in enumerate(log.lines)
        if line.level == Level.ERROR
        and number not in harmless
        and (line.marked or (_SIGN.search(line.message) and not _COUNT_OF_NONE.search(line.message)))
    ]


def unexplained(log: FailureLog, covered: Collection[int] = ()) -> int | None:
    """The first line with an exception that is not ``covered`` by a wording; None if there is none."""
    harmless = _harmless(log)
    for number, line in enumerate(log.lines):
        if number in covered or number in harmless or not _EXCEPTION.match(line.message):
            continue
        if not any(name in line.message.split(":")[0] for name in _CONSEQUENCES):
            return number
    return None


def by_words(log: FailureLog, numbers: Iterable[int]) -> tuple[str, int] | None:
    """The class that the words of an error hint at, by the first of the lines that has a hint, and that line."""
    for number in numbers:
        message = log.lines[number].message.lower().replace("\u2019", "'")
        for label, *groups in HINTS:
            if all(_has_word(message, group) for group in groups):
                return label, number
    return None


def by_frames(log: FailureLog, raised: int | None) -> tuple[str, int] | None:
    """The class of an exception by the innermost frames above it, and the line of the frame that tells.

    ``raised`` is the exception's line; None: the log ends before it.
    """
    end = len(log.lines) if raised is None else raised
    for number in range(end - 1, max(-1, end - _NEAR_FRAMES), -1):
        message = log.lines[number].message
        if message.startswith("Traceback (most recent call last)"):
            return None
        frame = _FRAME.match(message)
        if frame is None:
            continue
        path = frame["path"].replace("\\", "/")
        for fragment, label in FRAMES:
            if fragment in path or fragment == frame["name"]:
                return label, number
        if "/vllm/" in path or "/site-packages/" not in path:
            return None
    return None


def by_progress(log: FailureLog, raised: int | None) -> tuple[str, int] | None:
    """The class of an exception by what was going on, and its line: so far only the capture of graphs is told."""
    if raised is None:
        return None
    begun = [span for words in CAPTURING for span in log.find(words) if log.line_numbers(span)[0] < raised]
    if not begun or any(span.start > begun[0].start for sign in ALIVE for span in log.find(sign)):
        return None
    return "cudagraph_capture_failed", raised


def when_memory_ran_out(log: FailureLog, span: Span, phase: str | None) -> str:
    """``load``, ``profile`` or ``runtime``, for words on the GPU's memory at ``span``."""
    if phase == "profile":
        return "profile"
    if phase in {"serve", "stop"} or (phase is None and any(map(log.has, SERVING))):
        return "runtime"
    # Frames near the words count more than what was logged long before.
    for words, when in ((PROFILING, "profile"), (LOADING, "load")):
        if any(log.has(word, span) for word in words):
            return when
    if any(map(log.has, PROFILING)):
        return "profile"
    if phase is None and not any(map(log.has, LOADING)) and log.has("allocated in private pools"):
        return "runtime"
    return "load"


def lives_on(log: FailureLog, phrase: str) -> bool:
    """Whether the engine gave a sign of life after the last place of a phrase. One that compiles is silent for minutes,
    and one that waits for its place may get it."""
    last = max(span.end for span in log.find(phrase))
    return any(span.start > last for sign in ALIVE for span in log.find(sign))


def was_well(log: FailureLog) -> bool:
    """Whether a log without a known wording is that of a healthy engine: it says something, and no error."""
    if any(map(log.has, ORDERLY)) and unexplained(log) is None:
        return True
    harmless = _harmless(log)
    if signs(log) or (not harmless and any(_FRAME.match(line.message) for line in log.lines)):
        return False
    return bool(harmless) or any(line.level < Level.ERROR or _CHATTER.search(line.text) for line in log.lines)


def _has_word(message: str, words: str) -> bool:
    """Whether a message has one of the words, which bars divide, at the beginning of a word of its own."""
    return any(re.search(rf"(?<![a-z]){re.escape(word)}", message) for word in words.split("|"))


def _harmless(log: FailureLog) -> set[int]:
    """Lines that are known to be harmless, with the tracebacks that Python passes over, up to their exceptions."""
    found = set(log.harmless)
    for begin in {log.line_numbers(span)[0] for phrase in IGNORED for span in log.find(phrase)}:
        for number in range(begin, len(log.lines)):
            found.add(number)
            if number > begin and _EXCEPTION.match(log.lines[number].message):
                break
    return found
