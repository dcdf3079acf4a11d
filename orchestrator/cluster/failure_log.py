"""A log as the table of failures reads it: prefixes and colours taken off, and one text without spaces.

Terminals and copies wrap lines in the middle of words, and every tool puts another prefix in front. So phrases are
looked for in the whole log with all white space and quotation marks left out, and a match is led back to its lines.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from orchestrator.cluster.failure_table import Level

GAP = 100
"""The most characters that ``*`` stands for in a phrase."""

NEAR = 200
"""Characters around a phrase that count as near it."""

EXCEPTION = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Failure|Interrupt|Timeout)\b(?:\(\w*\))?\s*(?::|$)"
)
"""The line that a traceback ends with."""

_COLOUR = re.compile(r"(?:\x1b|\\x1b|\\u001b|\\033|#033|\^\[|ESC)\[[0-9;?]*[A-Za-z]|\[(?:\d{1,2};)*\d{1,2}m")
_RETURN = re.compile(r"\r|\^M(?=\s|$)|#015")
_RECORD = re.compile(
    r"(?=\([\w .]*pid=\d+[^()]{0,40}\) (?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d )"
    r"|(?<!\) )(?<![A-Z(])(?=(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d)"
)
_STAMP = re.compile(r"(?<!:\d\d )(?<!:\d\d\d )(?<![A-Z] )(?=\[[\w/]+\.py:\d+\] )")
_FRAME = re.compile(r"(?=File \"[^\"]+\", line \d+, in )")
_SQUEEZED_OUT = re.compile(r"[\s'\"`\u2018\u2019\u201c\u201d]+")
_PREFIXES = tuple(
    re.compile(pattern)
    for pattern in (
        r"\s+",
        r">\s",
        # a container's or a pipeline's name: `vllm-1  | `
        r"[\w.-]{1,40}\s*\|\s",
        r"[|\u2502\u2503]\s",
        # syslog and journald: `Feb 04 08:47:08 host vllm[77]: `
        r"[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d \S+ [\w.-]+(?:\[\d+\])?:",
        # pytest's
        r"E   +",
        # how a cloud's log or a list puts one in front of another
        r"(?:INFO|WARNING|ERROR) (?=\d{4}-)",
        r"\[resource[^\]]*\]",
        r"- (?=\d{4}-)",
        # a test's or a launcher's tag
        r"\[[A-Z][A-Z_0-9]+\]\s(?=\d{4}-)",
        # 2025-04-30 08:28:45.810, 2024-06-25T16:32:00,563Z, [2025-04-27 02:52:27,217 E 376235 377651]
        r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?(?: (?P<ray>[DIWEFC])(?: \d+)+)?\]?",
        r"\[DATE\]",
        # SGLang: [2025-05-14 03:58:33 DP0 TP0]
        r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: [A-Z]+\d+)+\]",
        # mpirun's: `[1,0]<stdout>:`, and `host-1: ` of others who start NCCL's processes
        r"\[\d+,\d+\]<std(?:out|err)>:",
        r"[\w.-]+:\s(?=[\w.-]+:\d+:\d+ \[)",
        # host-1:2361:2361 [0] NCCL INFO
        r"[\w.<>-]+:\d+:\d+ \[\d+\] NCCL (?P<nccl>INFO)",
        # (EngineCore_DP0 pid=34), (RayWorkerWrapper pid=1, ip=10.0.0.1), (raylet), (autoscaler +16s)
        r"\((?:[^()]{0,80}\bpid=\w+[^()]{0,80}|raylet[^()]*|autoscaler[^()]*|gcs_server[^()]*)\)",
        r"\([A-Z][A-Za-z]{2,30}\)\s(?=\()",
        r"\[?rank\d+\]:",
        r"\[\d+\](?=\s)",
        # [E626 23:10:17.921506443 ProcessGroupNCCL.cpp:1896], [W socket.cpp:697]
        r"(?:W|(?P<torch>[IEF]))\d{4} [\d:.]+ \d+ [\w./-]+:\d+\](?: \[\d+/\d+\])?",
        r"\[(?:W|(?P<glog>[IEF]))(?:\d{3,4})?(?: [\d:.]+)?(?: \d+)* [\w./]+\.\w+:\d+\]",
        r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)(?= (?:\d\d-\d\d |\[[\w./]+\.py:\d+\]))",
        # Ray and others: `WARNING worker.py:2037 -- `
        r"(?P<python>DEBUG|INFO|WARNING|ERROR|CRITICAL)\s+[\w./]+\.py:\d+ -- ",
        r"(?P<debug>DEBUG)\s",
        r"\[(?P<tag>DEBUG|Debug|INFO|Info|WARN|Warn|WARNING|ERROR|Error)\](?=[\s:])",
        # uvicorn and logging's default: `INFO:     `, `WARNING:root:`
        r"(?P<colon>DEBUG|INFO|WARNING|Warning|ERROR|CRITICAL):(?:[A-Za-z_][\w.]*:(?=\S))?",
        r"(?P<bare>ERROR|CRITICAL|FATAL)(?=\s)",
        r"\d\d-\d\d \d\d:\d\d(?::\d\d)?(?:\.\d+)?",
        # the line of vLLM's source, in brackets or, in old versions, with the closing one alone
        r"\[?(?P<origin>[\w./]+\.py:\d+)\]",
    )
)
_LEVELS = {
    **dict.fromkeys(("DEBUG", "Debug", "INFO", "Info", "I"), Level.INFO),
    **dict.fromkeys(("WARNING", "Warning", "WARN", "Warn", "W"), Level.WARNING),
    **dict.fromkeys(("ERROR", "Error", "CRITICAL", "FATAL", "E", "F", "C"), Level.ERROR),
}


@dataclass(frozen=True)
class Line:
    """One line: as given, its message without prefixes, and its level.

    ``marked``: the level is written, and it is an error's. ``origin``: the line of the source that logged it, if named.
    """

    text: str
    message: str
    level: Level
    marked: bool
    origin: str = ""


@dataclass(frozen=True)
class Span:
    """A stretch of the squeezed text."""

    start: int
    end: int


class FailureLog:
    """A log that can be searched for phrases."""

    def __init__(
        self,
        lines: Iterable[str],
        *,
        advice: Sequence[str] = (),
        harmless: Sequence[str] = (),
        passed_over: Sequence[str] = (),
        ignored: Sequence[str] = (),
        dumps: tuple[str, ...] = (),
        dumped: Sequence[str] = (),
        kept: Sequence[str] = (),
    ) -> None:
        """Both ``advice`` and ``harmless`` are phrases that are taken out before anything is looked for.

        What begins with one of ``passed_over`` is taken out up to the end of its line, unless the line has one of
        ``kept``. Lines with such a phrase or a harmless one are kept in ``harmless``, by number, and those with advice
        in ``advised``. So are lines with one of ``ignored`` and the traceback that each begins, up to its exception.
        Lines that begin with one of ``dumps``, or hold one of ``dumped``, are taken for information, and nothing is
        found in them.
        """
        self.lines = [
            _line(text, part, dumps, dumped)
            for given in lines
            for text in str(given).splitlines() or [""]
            for part in _unglued(text)
        ]
        squeezed = [
            "\0" * len(line.message) if _is_dump(line.message, dumps, dumped) else squeeze(line.message)
            for line in self.lines
        ]
        self._starts, self._ends, position = [], [], 0
        for part in squeezed:
            self._starts.append(position)
            position += len(part)
            self._ends.append(position)
        self._boundaries = {*self._starts, position}
        self._text = "".join(squeezed)
        self._found: dict[str, tuple[Span, ...]] = {}
        self.advised = {number for span in self._blank(advice) for number in self.line_numbers(span)}
        keep = {number for phrase in kept for span in self._search(phrase) for number in self.line_numbers(span)}
        calm = [*self._blank(passed_over, to_end=True, keep=keep), *self._blank(harmless)]
        self.harmless = {number for span in calm for number in self.line_numbers(span)}
        self._pass_over({self.line_numbers(span)[0] for phrase in ignored for span in self._search(phrase)})

    def _blank(self, phrases: Sequence[str], *, to_end: bool = False, keep: Collection[int] = ()) -> list[Span]:
        """Put fillers in the place of phrases, or of the rest of their lines too, and return where they stood.

        Those in the lines of ``keep`` stay.
        """
        spans = [span for phrase in phrases for span in self._search(phrase)]
        spans = [span for span in spans if self.line_numbers(span)[0] not in keep]
        if to_end:
            spans = [Span(span.start, self.span(self.line_numbers(span)[-1]).end) for span in spans]
        parts, done = [], 0
        for span in sorted(spans, key=lambda span: span.start):
            start, end = max(span.start, done), max(span.end, done)
            parts += [self._text[done:start], "\0" * (end - start)]
            done = end
        self._text = "".join([*parts, self._text[done:]])
        return spans

    def _pass_over(self, begins: set[int]) -> None:
        """Take out tracebacks that begin at these lines; one inside another's ends with it.

        Of one without an exception nobody knows where it ends: its lines are harmless, but phrases are found in them.
        """
        texts = [self._text[start:end] for start, end in zip(self._starts, self._ends, strict=True)]
        exceptions = [number for number, line in enumerate(self.lines) if EXCEPTION.match(line.message)]
        for begin in sorted(begins):
            if begin in self.harmless:
                continue
            following = bisect_right(exceptions, begin)
            if following == len(exceptions):
                self.harmless.update(range(begin, len(self.lines)))
                break
            for number in range(begin, exceptions[following] + 1):
                self.harmless.add(number)
                texts[number] = "\0" * len(texts[number])
        self._text = "".join(texts)

    def find(self, phrase: str) -> Sequence[Span]:
        """Where a phrase stands, from the beginning on; see :class:`Rule` for how it is written."""
        if phrase not in self._found:
            self._found[phrase] = tuple(self._search(phrase))
        return self._found[phrase]

    def _search(self, phrase: str) -> Iterator[Span]:
        pattern, longest, at_start, at_end = _compiled(phrase)
        if longest not in self._text:
            return
        for match in pattern.finditer(self._text):
            if at_start and match.start() not in self._boundaries:
                continue
            if at_end and match.end() not in self._boundaries:
                continue
            yield Span(match.start(), match.end())

    def has(self, phrase: str, near: Span | None = None) -> bool:
        """Whether a phrase stands in the log, or no farther than ``NEAR`` characters from a span."""
        found = self.find(phrase)
        first = 0 if near is None else bisect_left(found, near.start - NEAR, key=lambda span: span.end)
        return first < len(found) and (near is None or found[first].start <= near.end + NEAR)

    def distance(self, phrases: Iterable[str], span: Span) -> int | None:
        """Characters between a span and the nearest place of one of the phrases; None if there is none."""
        gaps = (
            max(0, found.start - span.end, span.start - found.end) for phrase in phrases for found in self.find(phrase)
        )
        return min(gaps, default=None)

    def line_numbers(self, span: Span) -> range:
        """The lines that a span stands in."""
        first = bisect_right(self._starts, span.start) - 1
        last = bisect_right(self._starts, max(span.start, span.end - 1)) - 1
        return range(first, last + 1)

    def span(self, number: int) -> Span:
        """Where a line stands."""
        return Span(self._starts[number], self._ends[number])

    def level(self, span: Span) -> Level:
        """The level of the line that a span begins in."""
        return self.lines[self.line_numbers(span)[0]].level


def squeeze(text: str) -> str:
    """Text in lower case without white space and quotation marks."""
    return _SQUEEZED_OUT.sub("", text).lower()


@cache
def _compiled(phrase: str) -> tuple[re.Pattern[str], str, bool, bool]:
    at_start, at_end = phrase.startswith("^"), phrase.endswith("$")
    parts = squeeze(phrase.removeprefix("^").removesuffix("$")).split("*")
    pattern = f".{{0,{GAP}}}?".join(_numbers(re.escape(part)) for part in parts)
    longest = max((piece for part in parts for piece in re.split("<n>|<g>", part)), key=len)
    return re.compile(pattern, re.DOTALL), longest, at_start, at_end


def _numbers(pattern: str) -> str:
    return pattern.replace("<n>", r"[1-9]\d*").replace("<g>", r"[1-9]\d{9,}")


def _unglued(text: str) -> list[str]:
    """The records of a line that was copied without its line breaks."""
    for records in (_RECORD, _STAMP, _FRAME):
        if len(records.findall(text)) > 1:
            return [part for glued in records.split(text) if glued.strip() for part in _unglued(glued)]
    return [text]


def _is_dump(message: str, dumps: tuple[str, ...], dumped: Sequence[str]) -> bool:
    return message.startswith(dumps) or any(mark in message for mark in dumped)


def _line(text: str, part: str, dumps: tuple[str, ...], dumped: Sequence[str]) -> Line:
    text = text.rstrip("\n")
    rest = _RETURN.sub(" ", _COLOUR.sub("", part)).replace("\\n", " ").replace("\\t", " ")
    level = origin = ""
    while rest:
        for prefix in _PREFIXES:
            match = prefix.match(rest)
            if match and match.end():
                named = match.groupdict()
                origin = named.pop("origin", None) or origin
                level = next((value for value in named.values() if value), level)
                rest = rest[match.end() :]
                break
        else:
            break
    if _is_dump(rest, dumps, dumped):
        return Line(text, rest, Level.INFO, marked=False, origin=origin)
    # Launchers log as information whatever their child prints.
    known = Level.ERROR if level and EXCEPTION.match(rest) else _LEVELS.get(level)
    return Line(text, rest, Level.ERROR if known is None else known, marked=known is Level.ERROR, origin=origin)
