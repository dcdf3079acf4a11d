"""Does a point still give the baseline's greedy tokens?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class AccuracyCheck:
    """Outcome of the accuracy guard at one point.

    Attributes:
        passed: Every request gave the baseline's tokens or is excused.
        exact_match: Share of the requests whose tokens are all equal, 0 to 1; ``None`` if none was compared.
        compared: Requests that both sides answered with at least one token.
        excused: Requests that differ first where the baseline's two best tokens were closer than ``tolerance``.
        tolerance: Gap between two log probabilities below which either token is right; no unit.
        reason: Why it did not pass; ``None`` if it did.
    """

    passed: bool
    exact_match: float | None
    compared: int
    excused: int
    tolerance: float
    reason: str | None


def check_accuracy(rows: Sequence[Mapping[str, Any]], tolerance: float) -> AccuracyCheck:
    """Compare the candidate's greedy tokens with the baseline's, request by request.

    Only the first position where two outputs differ counts: from there on the two continue different texts. It is
    excused when the baseline's best two tokens were closer than ``tolerance`` there, since another order of the same
    additions may then pick the other one. An output that stops early without a differing token was cut short, and
    that is never excused: vLLM's output ends with the stop token, so a different end is a different token.

    Args:
        rows: Rows of the requests table, phase ``accuracy``, of one trial.
        tolerance: As in ``AccuracyCheck``.
    """
    sides: dict[str, dict[int, Mapping[str, Any]]] = {"baseline": {}, "candidate": {}}
    faults: list[str] = []
    for row in rows:
        side = sides[row["role"]]
        if row["request"] in side:
            faults.append(f"request {row['request']} of the {row['role']} is recorded twice")
        side[row["request"]] = row
    baseline, candidate = sides["baseline"], sides["candidate"]

    exact = compared = excused = 0
    for request in sorted(baseline.keys() | candidate.keys()):
        if request not in baseline or request not in candidate:
            faults.append(f"request {request} was not sent to the {'candidate' if request in baseline else 'baseline'}")
            continue
        fault = _unusable(baseline[request]) or _unusable(candidate[request])
        if fault:
            faults.append(f"request {request}: {fault}")
            continue
        compared += 1
        position = _first_difference(baseline[request]["output_token_ids"], candidate[request]["output_token_ids"])
        if position is None:
            exact += 1
        elif fault := _difference_fault(baseline[request], candidate[request], position, tolerance):
            faults.append(f"request {request}: {fault}")
        else:
            excused += 1

    if not rows:
        faults.append("no accuracy run is recorded")
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return AccuracyCheck(
        passed=not faults,
        exact_match=exact / compared if compared else None,
        compared=compared,
        excused=excused,
        tolerance=tolerance,
        reason=faults[0] + more if faults else None,
    )


def _unusable(row: Mapping[str, Any]) -> str | None:
    if row["error"] is not None:
        return f"the {row['role']} failed: {row['error']}"
    if not row["output_token_ids"]:
        return f"the {row['role']} gave no token"
    return None


def _first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """First position where the two differ, the end of the shorter included; ``None`` if they are equal."""
    for position, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return position
    return None if len(left) == len(right) else min(len(left), len(right))


def _difference_fault(
    baseline: Mapping[str, Any], candidate: Mapping[str, Any], position: int, tolerance: float
) -> str | None:
    expected, found = baseline["output_token_ids"], candidate["output_token_ids"]
    if position == min(len(expected), len(found)):
        return f"{len(found)} tokens instead of {len(expected)}, equal as far as they go"
    gaps = baseline["top2_gaps"]
    if gaps is None or position >= len(gaps):
        return f"token {position} differs, and the baseline's gap there is not recorded"
    # `not <` and not `>=`: a gap that is no number excuses nothing.
    if not gaps[position] < tolerance:
        return (
            f"token {position} differs, and the baseline's gap there is {gaps[position]:.3g}, not below {tolerance:g}"
        )
    return None
