"""What a log tells beside the wordings of the table: exceptions, words, frames, and whether the engine was well."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import cache

from orchestrator.cluster.failure_log import EXCEPTION, NEAR, FailureLog, Line, Span
from orchestrator.cluster.failure_table import Level
from orchestrator.cluster.failure_table.chinese import in_english
from orchestrator.cluster.failure_table.context import (
    ALIVE,
    BUILDING,
    CAPTURING,
    LOADING,
    ORDERLY,
    PROFILING,
    RUNNING,
    SERVING,
)
from orchestrator.cluster.failure_table.frames import FRAMES
from orchestrator.cluster.failure_table.hints import HINTS

_INSTALLED = re.compile(r"/(?:site|dist)-packages/|/lib\d*/python3\.\d+/|^<frozen ")
"""Paths of what is neither vLLM nor the user's: installed packages and Python's own modules."""

_NEAR_FRAMES = 40
"""Lines above an exception in which its frames are looked for."""

_MOST_LINES_OF_ONE = 3
"""Lines after an exception's first that belong to its message."""

_FRAME = re.compile(r'^\s*File "?(?P<path>[^"]+?)(?:", line |:)\d+, in (?P<name>[^\s(]+)')
_SIGN = re.compile(
    r"error|exception|fatal|traceback|killed|abort|core dumped|assert|nccl warn|fail(?:s|ed|ing|ure)\b|cannot|can't|"
    r"unable to|no module named|segfault|segmentation|\bfault|low on resource|\u6bb5\u9519\u8bef|panic|timed out|"
    r"out.of.memory|\booms?\b|illegal|has no attribute|refused|denied|unauthorized|rejects|not allow|not enough|"
    r"exhausted|bad_alloc|corruption|dead\b|died|crash|version mismatch",
    re.IGNORECASE,
)
_HINT_OF_ONE = re.compile(
    r"not? |unsupported|n't|missing|time-?out|invalid|mismatch|conflict|too |exceed|hang|hung|stuck", re.IGNORECASE
)
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z0-9])(?=[A-Z][a-z])")
_JOINT = re.compile(r"(?<=[a-zA-Z])-(?=[a-zA-Z])")
_NEXT = re.compile(
    r"Traceback |The above |During handling|Process |(?:CUDA|HIP) kernel errors|For debugging|\(|\[|INFO|WARNING|"
    r".*\d+%\|"
)
_LINK = re.compile(
    r"During handling of the above exception|The above exception was|(?:[\w.]+\.)?CancelledError\b|"
    r"(?:\S+\.cc:\d+: )?(?:PC: +)?@ "
)
"""Lines that join others, and tell nothing themselves."""
_NONE_OF = re.compile(r"\bno (?:[^\s:,.]+ ){0,3}?(found|available|valid|supported)\b", re.IGNORECASE)
"""Says the same as `not found`, with other words between."""
_KEY = re.compile(r"^'[\w.]+'$")
"""What is left of a KeyError whose text alone is logged."""
_LIMIT = re.compile(r"timeout[\w()]{0,40}\s*=\s*\S+", re.IGNORECASE)
_UNDERLINE = re.compile(r"[\s^~.]*$")
_WEAK = re.compile(r"cannot|can't|unable to|fail(?!s\b|ed to start)", re.IGNORECASE)
"""Words of those who do without something, too."""

_DEATHS = {"engine_dead", "ray_actor_died"}
"""Classes of those who only noticed: another line may tell why."""

_COUNT_OF_NONE = re.compile(r"(?:failed|errors?|errored|aborted)[\w ()/]{0,40}[:=]\s*0\b", re.IGNORECASE)
_SAYS_OF_ANOTHER = re.compile(r"^\s*cancelled\s*$|Traceback \(most recent call last\):?\s*$")
"""What an exception says whose cause is another one: that it was cancelled, or the other's traceback."""

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
    harmless = log.harmless
    return [
        number
        for number, line in enumerate(log.lines)
        if line.level == Level.ERROR
        and number not in harmless
        and not _LINK.match(line.message)
        and (line.marked or (_SIGN.search(in_english(line.message)) and not _COUNT_OF_NONE.search(line.message)))
    ]


def prose(log: FailureLog) -> list[int]:
    """Lines of a log with an error that may tell it in words: first those that :func:`signs` has, then denials."""
    found = [number for number in signs(log) if log.lines[number].marked or number not in log.advised]
    frames = [number for number, line in enumerate(log.lines) if _FRAME.match(line.message)]
    if not found and not frames:
        return []
    code = (number + 1 for number in frames if number + 1 < len(log.lines) and _is_indented(log.lines[number + 1]))
    passed = {*found, *log.advised, *log.harmless, *frames, *code}
    return found + [
        number
        for number, line in enumerate(log.lines)
        if line.level == Level.ERROR
        and number not in passed
        and _HINT_OF_ONE.search(in_english(line.message))
        and not _UNDERLINE.match(line.message)
    ]


def _is_indented(line: Line) -> bool:
    """Whether a line is set in, as the source under a frame is."""
    return not line.text.endswith(line.message) or line.text.removesuffix(line.message).endswith("  ")


def unexplained(log: FailureLog, covered: Collection[int] = ()) -> int | None:
    """The first line with an exception that is not ``covered`` by a wording; None if there is none."""
    harmless = log.harmless
    for number, line in enumerate(log.lines):
        if number in covered or number in harmless or not EXCEPTION.match(line.message):
            continue
        name, _, said = line.message.partition(":")
        if not any(other in name for other in _CONSEQUENCES) and not _SAYS_OF_ANOTHER.search(said):
            return number
    return None


def by_words(
    log: FailureLog, numbers: Iterable[int], hints: Sequence[tuple[str, ...]] = HINTS, *, deaths: bool = True
) -> tuple[str, int] | None:
    """The class that the words of an error hint at, and its line: the first with a hint, of a cause if there is one.

    Without ``deaths`` a cause is all that counts.
    """
    death = None
    for number in numbers:
        label = _hinted(_whole(log, number), hints)
        if label is not None and label not in _DEATHS:
            return label, number
        if label is not None and death is None:
            death = label, number
    return death if deaths else None


def _hinted(text: str, hints: Sequence[tuple[str, ...]]) -> str | None:
    text = _LIMIT.sub(" ", in_english(text).replace("\u2019", "'").partition("[type=")[0])
    text = _NONE_OF.sub(r"\g<0> not \1 ", _KEY.sub(r"KeyError: \g<0>", text))
    message = f"{text} {_HUMP.sub(' ', text)} {_JOINT.sub(' ', text)}".lower()
    return next((label for label, *groups in hints if all(_holds(message, group) for group in groups)), None)


def _whole(log: FailureLog, number: int) -> str:
    """The message of an exception with the lines that it goes on in, or that of any other line."""
    lines = [log.lines[number].message]
    if EXCEPTION.match(lines[0]) and ":" in lines[0]:
        for following in range(number + 1, min(number + 1 + _MOST_LINES_OF_ONE, len(log.lines))):
            line = log.lines[following]
            message = line.message
            if (
                following in log.harmless
                or line.origin != log.lines[number].origin
                or not message
                or _FRAME.match(message)
                or EXCEPTION.match(message)
                or _NEXT.match(message)
            ):
                break
            lines.append(message)
    return " ".join(lines)


def by_frames(log: FailureLog, raised: int | None) -> tuple[str, int] | None:
    """The class of an exception by the innermost frames above it, and the line of the frame that tells.

    ``raised`` is the exception's line; None: the log ends before it.
    """
    if any(map(log.has, BUILDING)):
        # Whatever a compiler's frames say, it is at work for a package.
        return None
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
        if "/vllm/" in path or not _INSTALLED.search(path):
            return None
    return None


def by_progress(log: FailureLog, raised: int | None) -> tuple[str, int] | None:
    """The class of an exception by what was going on, and its line: a build, or the capture of graphs."""
    if any(map(log.has, BUILDING)):
        frames = [number for number, line in enumerate(log.lines) if _FRAME.match(line.message)]
        at = raised if raised is not None else max(frames, default=None)
        return ("build_error", at) if at is not None else None
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
    if phase in {"serve", "stop"} or (phase is None and _served(log)):
        return "runtime"
    # Frames near the words count more than what was logged long before.
    profiling, loading = log.distance(PROFILING, span), log.distance(LOADING, span)
    if profiling is not None and (loading is None or profiling <= max(loading, NEAR)):
        return "profile"
    if phase is None and loading is None and any(map(log.has, RUNNING)):
        return "runtime"
    return "load"


def _served(log: FailureLog) -> bool:
    """Whether an engine had requests: something in the log says so, or the line of the source that logged it."""
    origins = {line.origin for line in log.lines if line.origin}
    return any(log.has(sign) or any(sign in origin for origin in origins) for sign in SERVING)


def lives_on(log: FailureLog, phrase: str) -> bool:
    """Whether the engine gave a sign of life after the last place of a phrase. One that compiles is silent for minutes,
    and one that waits for its place may get it."""
    last = log.find(phrase)[-1].end
    return any(found and found[-1].start > last for found in map(log.find, ALIVE))


def was_told_to_end(log: FailureLog) -> bool:
    """Whether somebody asked for the end."""
    return any(map(log.has, ORDERLY))


def was_well(log: FailureLog) -> bool:
    """Whether a log without a known wording is that of a healthy engine: it says something, and no error."""
    harmless, bad = log.harmless, signs(log)
    if was_told_to_end(log) and unexplained(log) is None and not any(log.lines[number].marked for number in bad):
        return True
    if not all(_is_weak(log.lines[number]) for number in bad):
        return False
    if not harmless and any(_FRAME.match(line.message) for line in log.lines):
        return False
    return any(line.message.strip() for line in log.lines)


def _is_weak(line: Line) -> bool:
    return not line.marked and not _SIGN.search(_WEAK.sub("", line.message))


def _holds(message: str, group: str) -> bool:
    return not _has_word(message, group[1:]) if group.startswith("!") else _has_word(message, group)


def _has_word(message: str, words: str) -> bool:
    return _words(words).search(message) is not None


@cache
def _words(words: str) -> re.Pattern[str]:
    """Finds one of the words, which bars divide, at the beginning of a word of its own."""
    return re.compile(rf"(?<![a-z])(?:{'|'.join(map(re.escape, words.split('|')))})")
