"""What the records add to a study, in the attributes that Optuna's dashboard 0.21 shows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from orchestrator.analysis.dashboard.artifacts import metas
from orchestrator.analysis.dashboard.plan_picture import has_plan
from orchestrator.analysis.report.facts import Facts, read_facts
from orchestrator.analysis.report.figures import plots
from orchestrator.errors import ChunksmithError
from orchestrator.records import RunFolder

CONSTRAINTS = "constraints"
"""System attribute of Optuna 4, the only one from which the dashboard 0.21 reads whether a trial is feasible."""

_LENGTH = 2045
"""Longest part of a note or a plot in one attribute: the width of Optuna's column in an RDB."""

_PLOTS = ("pairs", "memory", "regions", "drift", "importance")


@dataclass(frozen=True)
class Overlay:
    """Attributes by their owner.

    Attributes:
        study: System attributes of the study: the note with the present answer, plots, notes of trials.
        user: User attributes of a trial, by its number.
        system: System attributes of a trial, by its number.
    """

    study: Mapping[str, Any]
    user: Mapping[int, Mapping[str, Any]]
    system: Mapping[int, Mapping[str, Any]]


EMPTY = Overlay({}, {}, {})


def read_overlay(run: RunFolder, trial_ids: Mapping[int, int]) -> Overlay:
    """Read the records of a run.

    Args:
        trial_ids: Optuna's identifier of a trial by its number.
    """
    try:
        facts = read_facts(run.path)
    except ChunksmithError as error:
        # Shown in place of the answer: the study itself can still be looked at.
        return Overlay(_note("dashboard:", f"The records cannot be read: {error}"), {}, {})
    study = _note("dashboard:", _answer(facts))
    user: dict[int, dict[str, Any]] = {}
    system: dict[int, dict[str, Any]] = {}
    for row in facts.trials.astype(object).where(facts.trials.notna(), None).to_dict("records"):
        number = int(row["trial"])
        user[number] = _attributes(row)
        system[number] = {CONSTRAINTS: [0.0 if row["outcome"] == "complete" else 1.0]}
        system[number] |= metas(number, row, with_plan=has_plan(facts.spec, facts.provenance, row))
        if row["outcome"] == "lost":
            # The infrastructure's fault says nothing of the point.
            del system[number][CONSTRAINTS]
        if number in trial_ids:
            study |= _note(f"dashboard:{trial_ids[number]}:", _of_trial(facts, row))
    for plot in plots(facts):
        if plot.key in _PLOTS:
            study |= _parts(f"dashboard:plot_data:{plot.title.replace(' ', '_')}:", plot.titled(plot.title).to_json())
    return Overlay(study, user, system)


def _attributes(row: Mapping[Any, Any]) -> dict[str, Any]:
    kept = ("outcome", "failure", "ratio_low", "ratio_high", "pairs", "engine_group", "engine_id", "workspace_rows")
    found = {name: row[name] for name in kept if row[name] is not None and row[name] is not pd.NA}
    return {name: value if isinstance(value, str) else float(value) for name, value in found.items()}


def _answer(facts: Facts) -> str:
    answer = facts.answer
    lines = [f"## {answer.decision.capitalize()}", "", answer.reason]
    if answer.ratio is not None and answer.ratio_low is not None and answer.ratio_high is not None:
        lines += [
            "",
            f"**{answer.ratio:.3f}** ({answer.ratio_low:.3f} to {answer.ratio_high:.3f}) of the baseline in "
            f"`{answer.metric}`, {answer.pairs} pairs with fresh prompts, trial {answer.trial}.",
        ]
    if answer.decision == "winner" and answer.serve_args:
        lines += ["", "```", answer.command(), "```"]
    return "\n".join(lines)


def _of_trial(facts: Facts, row: Mapping[Any, Any]) -> str:
    number = int(row["trial"])
    lines = [f"**{row['outcome']}**"]
    if row["failure"] is not None:
        lines.append(f"{row['failure']}: {row['failure_detail']}")
    if row["ratio"] is not None:
        lines.append(f"ratio {row['ratio']:.4f}, {row['pairs']} pairs")
    if row["ratio_low"] is not None and row["ratio_high"] is not None:
        lines.append(f"interval {row['ratio_low']:.4f} to {row['ratio_high']:.4f}")
    tables = ("trials", "blocks", "requests")
    lines += [f"{table}: `{facts.run.table(table)}`, column `trial` = {number}" for table in tables]
    if row["engine_log"] is not None:
        lines.append(f"engine log: `{row['engine_log']}`")
    return "\n\n".join(lines)


def _note(prefix: str, body: str) -> dict[str, Any]:
    return {f"{prefix}note_ver": 1, **_parts(f"{prefix}note_str:", body)}


def _parts(prefix: str, text: str) -> dict[str, str]:
    return {
        f"{prefix}{index}": text[start : start + _LENGTH] for index, start in enumerate(range(0, len(text), _LENGTH))
    }


def version(run: RunFolder) -> str:
    """Changes whenever a table of the run gets a file: a write renames one into its folder."""
    return json.dumps([run.table(name).stat().st_mtime_ns for name in ("trials", "blocks") if run.table(name).exists()])
