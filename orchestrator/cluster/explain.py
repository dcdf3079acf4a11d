"""What an engine's log says of its failure, put into the error that the sweep records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from orchestrator.cluster.failures import Failure, classify, trial_fields
from orchestrator.cluster.guard import verdict_of
from orchestrator.engines import EngineError

TAIL_BYTES: Final = 256 * 1024
"""What is read of a log, from its end."""

HANG: Final = "hang"
"""Label of an engine that the watchdog ended, or that did not answer in time."""

VAGUE: Final = frozenset({"engine-dead", "engine-error", "engine-start", HANG, "ray", "ray-actor-died"})
"""Labels that only say when a failure was noticed, and leave the cause to the log."""

_NO_CAUSE: Final = frozenset({"unknown", "none"})
_NO_MORE_THAN_DEAD: Final = frozenset({*_NO_CAUSE, "engine_dead", "ray_actor_died"})


def read_tail(path: Path) -> list[str]:
    """The last lines of a log, ``TAIL_BYTES`` at most; none where it cannot be read."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, log.seek(0, 2) - TAIL_BYTES))
            return log.read(TAIL_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []


def explained(error: EngineError, log: Sequence[str], *, is_start: bool, exception: str) -> EngineError:
    """The failure with the class that its log gives, the lines that decided, and a remedy.

    An error whose label names its cause already stays as it is, and so does one of which the log says no more.

    Args:
        log: The last lines of the engine's log, as far as they can be had.
        exception: What was raised, with its causes; it need not be in the log.
    """
    if error.label not in VAGUE:
        return error
    verdict = verdict_of(log)
    failure = classify(log, phase="start" if is_start else "serve", exception=exception)
    if verdict is None:
        return error if failure.label in _NO_CAUSE else _with(error, _of(failure, error))
    if failure.label in _NO_MORE_THAN_DEAD:
        # That the process is gone is the watchdog's doing.
        return _with(error, EngineError(HANG, verdict, lost=True, log_path=error.log_path))
    return _with(error, _of(failure, error, f"; {HANG}: {verdict}"))


def _of(failure: Failure, error: EngineError, more: str = "") -> EngineError:
    fields = trial_fields(failure)
    lost = fields["outcome"] == "lost"
    return EngineError(fields["failure"], fields["failure_detail"] + more, lost=lost, log_path=error.log_path)


def _with(error: EngineError, better: EngineError) -> EngineError:
    """The better error in place of another, with all else that was known."""
    better.partial = error.partial
    return better
