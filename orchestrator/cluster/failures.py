"""What a log says of a failure: its class, whether it comes again, and the lines that decided.

The deciding line is seldom the last: it stands before a progress bar, a leak warning or the tracebacks of those who
only noticed. So every wording of the table is looked for, and the one that goes farthest towards the cause decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from orchestrator.cluster.failure_log import FailureLog, Span
from orchestrator.cluster.failure_signs import (
    by_frames,
    by_progress,
    by_words,
    lives_on,
    prose,
    signs,
    unexplained,
    was_told_to_end,
    was_well,
    when_memory_ran_out,
)
from orchestrator.cluster.failure_table import CLASSES, GPU_OOM, RULES, Level, Rule, Strength
from orchestrator.cluster.failure_table.context import ADVICE, DUMPED, DUMPS, HARMLESS, IGNORED, KEPT, PASSED_OVER
from orchestrator.cluster.failure_table.last_hints import LAST_HINTS

MOST_LINES = 5000
"""Lines from the end of a log that are looked at."""

_MOST_EVIDENCE = 4
_MOST_DETAIL = 400
_WRAPPED = {
    "unsupported_backend_or_dcp",
    "quantization_or_kernel_unsupported",
    "version_mismatch",
    "model_or_tokenizer_missing",
    "permission_or_hf_gated",
}
"""Classes that a validation of the configuration may find, beside its own."""

_QUOTED = re.compile(r"\w(?:Error|Exception)\(")
_PHASES = {"start", "profile", "serve", "stop"}
_SEGFAULT, _BUS_ERROR, _KILLED = {-11, 139}, {-7, 135}, {-9, 137}


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A failure with its class.

    Attributes:
        label: Its class: a key of :data:`orchestrator.cluster.failure_table.CLASSES`.
        deterministic: Whether the same configuration fails again; None where that is not known.
        retryable: Whether a second try is worth its time.
        knobs: What a remedy would change, by vLLM's names.
        evidence: The lines that decided, as they were given, in their order; empty where the exit code or nothing did.
        remedy: What to do, in one or two sentences.
    """

    label: str
    deterministic: bool | None
    retryable: bool
    knobs: tuple[str, ...]
    evidence: tuple[str, ...]
    remedy: str

    @property
    def detail(self) -> str:
        """One line for a record: the lines that decided, or the class's meaning."""
        text = " ".join(" ".join(self.evidence).split()) or CLASSES[self.label].meaning
        return text if len(text) <= _MOST_DETAIL else text[: _MOST_DETAIL - 3] + "..."


def recorded_label(label: str) -> str:
    """A class as the records have it: with hyphens, like the labels of all other failures there."""
    return label.replace("_", "-")


def certain_labels() -> frozenset[str]:
    """Classes, as the records have them, of which a second try with the same values is known to end the same."""
    return frozenset(
        recorded_label(kind.label) for kind in CLASSES.values() if kind.deterministic and not kind.retryable
    )


def trial_fields(failure: Failure) -> dict[str, str]:
    """A failure as the fields ``outcome``, ``failure`` and ``failure_detail`` of a trial's record.

    What is worth another try is ``lost``, and a sweep tries it again a bounded number of times; the rest is ``failed``.
    """
    return {
        "outcome": "lost" if failure.retryable else "failed",
        "failure": recorded_label(failure.label),
        "failure_detail": f"{failure.detail} (to do: {failure.remedy})",
    }


@dataclass(frozen=True)
class _Match:
    rule: Rule
    span: Span
    covered: frozenset[int]
    """The lines of all places of the phrase."""


def classify(
    lines: Iterable[str],
    *,
    phase: str | None = None,
    exit_code: int | None = None,
    exception: BaseException | str | None = None,
    rules: Sequence[Rule] = RULES,
) -> Failure:
    """The class of a failure.

    Args:
        lines: The log, with or without line breaks at the ends; its last ``MOST_LINES`` are read.
        phase: ``start``, ``profile``, ``serve`` or ``stop``, where it is known: it tells when GPU memory ran out. Any
            other word counts as not known.
        exit_code: Of the engine's process; negative for a signal, as ``subprocess`` gives it. It decides only where the
            lines do not, since an engine that lost its core may well end with 0.
        exception: What the caller caught, which need not be in the log. It is read like a last line.
        rules: The table; another one only to find out what a part of it is worth.
    """
    phase = phase if phase in _PHASES else None
    log = FailureLog(
        [*[*lines][-MOST_LINES:], *_as_lines(exception)],
        advice=ADVICE,
        harmless=HARMLESS,
        passed_over=PASSED_OVER,
        ignored=IGNORED,
        dumps=DUMPS,
        dumped=DUMPED,
        kept=KEPT,
    )
    found = sorted(_matches(log, rules), key=lambda match: (-match.rule.strength, match.span.start))
    best = found[0] if found else None
    if best is not None and best.rule.strength >= Strength.LIKELY:
        wrapped = by_words(log, _wrapped(log, best)) if best.rule.wraps else None
        if wrapped is not None and wrapped[0] in _WRAPPED:
            return _of_label(wrapped[0], phase, evidence=_texts(log, [wrapped[1]]))
        return _by_match(log, best, phase)
    covered = {number for match in found for number in match.covered}
    raised = unexplained(log, covered)
    suspects = [raised] if raised is not None else prose(log) if best is None else []
    told = (
        by_words(log, suspects)
        or by_frames(log, raised)
        or by_progress(log, raised)
        or by_words(log, suspects, LAST_HINTS)
    )
    if told is None and (best is None or best.rule.strength == Strength.DEATH):
        told = by_words(log, [number for number in prose(log) if number not in covered]) or by_words(
            log, prose(log), deaths=False
        )
    if told is not None:
        label, number = told
        numbers = sorted({number, number if raised is None else raised})
        return _of_label(_at_its_time(label, log, log.span(number), phase), phase, evidence=_texts(log, numbers))
    if best is not None and raised is not None and best.rule.strength == Strength.DEATH:
        return _of_label("unknown", phase, evidence=_texts(log, [raised]))
    if best is not None:
        is_asked_for = phase == "stop" and best.rule.label == "engine_dead" and was_told_to_end(log)
        return _of_label("none", phase) if is_asked_for else _by_match(log, best, phase)
    return _of_label(_without_words(log, exit_code), phase, evidence=_texts(log, signs(log)))


def _wrapped(log: FailureLog, match: _Match) -> range:
    """The lines of what wraps a message, and the one after it."""
    numbers = log.line_numbers(match.span)
    return range(numbers[0], min(numbers[-1] + 2, len(log.lines)))


def _as_lines(exception: BaseException | str | None) -> Iterator[str]:
    """An exception and its causes, the first cause first, as a traceback would end."""
    if exception is None:
        return
    if isinstance(exception, str):
        yield from exception.splitlines()
        return
    yield from _as_lines(exception.__cause__ or exception.__context__)
    kind = type(exception)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    yield from f"{name}: {exception}".splitlines()


def _matches(log: FailureLog, rules: Sequence[Rule]) -> Iterator[_Match]:
    """The first place of every phrase that holds."""
    for rule in rules:
        if (rule.needs and not any(map(log.has, rule.needs))) or any(map(log.has, rule.unless)):
            continue
        for phrase in rule.phrases:
            spans = (
                span
                for span in log.find(phrase)
                if not any(log.has(other, span) for other in rule.not_near)
                and (not rule.near or any(log.has(other, span) for other in rule.near))
                and _counts(log, span, phrase, rule)
            )
            for span in islice(spans, 1):
                covered = frozenset(number for place in log.find(phrase) for number in log.line_numbers(place))
                yield _Match(rule, span, covered)


def _counts(log: FailureLog, span: Span, phrase: str, rule: Rule) -> bool:
    """Whether a phrase counts at the level of its line. A warning that quotes an exception is as good as an error."""
    level = log.level(span)
    if level == Level.ERROR:
        return True
    quoted = any(_QUOTED.search(log.lines[number].message) for number in log.line_numbers(span))
    # A refused request is one although the engine goes on.
    return (level >= rule.least or quoted) and (rule.strength == Strength.REQUEST or not lives_on(log, phrase))


def _by_match(log: FailureLog, best: _Match, phase: str | None) -> Failure:
    numbers = log.line_numbers(best.span)
    label, knobs = _at_its_time(best.rule.label, log, best.span, phase), best.rule.knobs
    if label == "bad_argument":
        named = re.findall(r"--?([A-Za-z][\w-]*)", " ".join(log.lines[number].message for number in numbers))
        knobs = tuple(dict.fromkeys(name.replace("-", "_") for name in named)) or knobs
    return _of_label(label, phase, knobs=knobs, evidence=_texts(log, numbers))


def _at_its_time(label: str, log: FailureLog, span: Span, phase: str | None) -> str:
    return f"gpu_oom_{when_memory_ran_out(log, span, phase)}" if label == GPU_OOM else label


def _without_words(log: FailureLog, exit_code: int | None) -> str:
    """The class of a log that no word of the table is in."""
    if any(line.origin.startswith("dump_input.py") for line in log.lines):
        # vLLM writes what it was at only when a step has failed.
        return "engine_dead"
    if exit_code is None or exit_code == 0:
        is_silent = not any(line.message.strip() for line in log.lines)
        return "none" if was_well(log) or (is_silent and exit_code == 0) else "unknown"
    if exit_code in _SEGFAULT:
        return "worker_segfault"
    if exit_code in _BUS_ERROR:
        return "shm_too_small"
    return "engine_dead" if exit_code in _KILLED or (exit_code < 0 and not signs(log)) else "unknown"


def _of_label(label: str, phase: str | None, *, knobs: tuple[str, ...] = (), evidence: tuple[str, ...] = ()) -> Failure:
    kind = CLASSES[label]
    retryable = kind.retryable
    if kind.retryable_at_start is not None and phase in {"start", "profile"}:
        retryable = kind.retryable_at_start
    return Failure(
        label=label,
        deterministic=kind.deterministic,
        retryable=retryable,
        knobs=knobs or kind.knobs,
        evidence=evidence,
        remedy=kind.remedy,
    )


def _texts(log: FailureLog, numbers: Iterable[int]) -> tuple[str, ...]:
    return tuple(islice(dict.fromkeys(log.lines[number].text for number in numbers), _MOST_EVIDENCE))
