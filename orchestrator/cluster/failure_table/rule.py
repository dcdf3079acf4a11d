"""What an entry of the table of failures is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """The level that a line was logged at. A line without one may be anything, and counts as an error."""

    INFO = 0
    WARNING = 1
    ERROR = 2


class Strength(IntEnum):
    """How far a wording goes towards the cause. The strongest in a log decides; among equals, the first."""

    REQUEST = 1
    """One request was refused; the engine goes on."""

    DEATH = 2
    """The engine or an actor is gone, and no more is said."""

    CONSEQUENCE = 3
    """Something failed because something else had failed before."""

    LIKELY = 4
    """Mostly the cause, sometimes a consequence of one that is said as well."""

    CAUSE = 5
    """The cause, wherever it stands."""


@dataclass(frozen=True, kw_only=True)
class FailureClass:
    """A class of failures.

    Attributes:
        label: Its name, as records hold it.
        meaning: One sentence on what happened.
        remedy: What to do about it.
        deterministic: Whether the same configuration fails again; None where that is not known.
        retryable: Whether a second try is worth its time.
        retryable_at_start: The same for an engine that never served; None: no different.
        knobs: What a remedy would change: arguments of vLLM, or environment variables.
    """

    label: str
    meaning: str
    remedy: str
    deterministic: bool | None
    retryable: bool
    retryable_at_start: bool | None = None
    knobs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Wordings that stand for one class.

    A phrase is compared without regard to case, spaces, line breaks and quotation marks, so that it is found in a log
    that was wrapped in the middle of a word. ``*`` stands for up to 100 characters, ``<n>`` for a number above zero,
    ``<g>`` for one of at least ten digits;
    ``^`` in front asks for the beginning of a line's message, ``$`` behind for its end.

    Attributes:
        label: The class.
        phrases: Any one of them is enough.
        strength: How far they go.
        source: Who says so: a symbol, a library, the kernel.
        needs: One of these must stand somewhere in the log too.
        unless: None of these may stand in the log.
        near: One of these must stand within 200 characters of the phrase.
        not_near: None of these may stand within 200 characters of the phrase.
        knobs: Those of this wording, where they are not the class's.
        least: The level of a line from which it counts. One below an error counts only if the engine gives no sign of
            life afterwards, or for a refused request.
        wraps: It only wraps what went wrong, so that the words behind it may tell more.
    """

    label: str
    phrases: tuple[str, ...]
    strength: Strength = Strength.CAUSE
    source: str = ""
    needs: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    not_near: tuple[str, ...] = ()
    knobs: tuple[str, ...] = ()
    least: Level = Level.ERROR
    wraps: bool = False
