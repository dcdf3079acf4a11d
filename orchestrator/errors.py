"""The errors that reach a user: each is one line that says what is wrong and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MOST_NAMES = 30
"""A message does not list more names than this: vLLM alone has 270 engine arguments."""


class ChunksmithError(Exception):
    """Something went wrong that the user did not cause. The command ends with ``exit_code``."""

    exit_code = 1


class UserError(ChunksmithError):
    """The input is wrong: a file, a key or a value that the user can mend."""

    exit_code = 2


def unknown_name(kind: str, name: str, allowed: Iterable[str], *, where: str = "") -> UserError:
    """Error for a name that is not known, with the nearest that is, and the others if they fit into a line.

    Args:
        kind: What the name should have been, for instance ``"knob"``.
        name: What was given.
        allowed: The names that are known.
        where: File and key, for instance ``"cpu_demo.yaml: space"``; put in front of the message.
    """
    names = sorted(allowed)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    place = f"{where}: " if where else ""
    if len(names) <= _MOST_NAMES:
        rest = f"Allowed: {', '.join(names)}."
    else:
        rest = f"Nearest of {len(names)}: {', '.join(difflib.get_close_matches(name, names, n=5, cutoff=0.0))}."
    return UserError(f"{place}unknown {kind} {name!r}{hint} {rest}")
