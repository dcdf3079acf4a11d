"""The HTML file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
import plotly.io as pio
import plotly.offline
from markupsafe import Markup

from orchestrator.analysis.render import describe_change, describe_starts, format_ratio
from orchestrator.analysis.report.facts import Facts, read_facts, text_of
from orchestrator.analysis.report.figures import Plot, plots

_NUMBER_COLUMNS = ("trial", "ratio", "ratio_low", "ratio_high", "pairs", "workspace_rows", "measuring_s")


def report(run_path: Path | str) -> str:
    """The report of a run as the text of one HTML file, everything inlined.

    A sweep may still be writing to the run. What comes from the run is escaped: a knob's value is text, never markup.

    Raises:
        UserError, ChunksmithError: As ``orchestrator.analysis.best``.
    """
    facts = read_facts(run_path)
    drawn = plots(facts)
    template = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    ).from_string(_asset("template.html"))
    return template.render(
        answer=facts.answer,
        title=f"{facts.answer.study}: {_headline(facts)}",
        headline=_headline(facts),
        sentence=_sentence(facts),
        command=_command(facts),
        finalists=_finalists(facts),
        counts=_counts(facts),
        plots=drawn,
        figures=_script_json({plot.key: _figure(plot) for plot in drawn}),
        table=_table(facts),
        provenance=_provenance(facts.provenance),
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        style=Markup(_asset("style.css")),
        script=Markup(_asset("script.js")),
        plotly=Markup(plotly.offline.get_plotlyjs() if drawn else ""),
    )


def _asset(name: str) -> str:
    return resources.files("orchestrator.analysis.report").joinpath(name).read_text(encoding="utf-8")


def _figure(plot: Plot) -> Any:
    return json.loads(pio.to_json(plot.figure, validate=False))


def _script_json(value: Any) -> Markup:
    """JSON that may stand in a script element: no text in it can end that element."""
    text = json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
    return Markup(text)


def _headline(facts: Facts) -> str:
    answer = facts.answer
    if answer.decision == "winner":
        return f"winner: trial {answer.trial}"
    return answer.decision


def _sentence(facts: Facts) -> str:
    answer = facts.answer
    if answer.ratio is None:
        return f"{answer.reason[:1].upper()}{answer.reason[1:]}."
    low, high = format_ratio(answer.ratio_low or 0.0), format_ratio(answer.ratio_high or math.inf)
    text = (
        f"{format_ratio(answer.ratio)} of the baseline in {answer.metric}: "
        f"{describe_change(answer.metric, answer.ratio)}, {answer.family_level:.0%} interval {low} to {high}, from "
        f"{answer.pairs} pairs with fresh prompts over {describe_starts(answer.starts)}."
    )
    return text if answer.decision == "winner" else f"{text} Not recommended: {answer.reason}."


def _command(facts: Facts) -> str | None:
    answer = facts.answer
    return answer.command() if answer.decision == "winner" and answer.serve_args else None


def _finalists(facts: Facts) -> list[dict[str, str]]:
    rows = []
    for one in facts.answer.finalists:
        ratio, interval = "none", "none"
        if one.ratio is not None and one.ratio_low is not None and one.ratio_high is not None:
            ratio = format_ratio(one.ratio)
            interval = f"{format_ratio(one.ratio_low)} to {format_ratio(one.ratio_high)}"
        won = facts.answer.decision == "winner" and one.trial == facts.answer.trial
        rows.append(
            {
                "trial": str(one.trial),
                "point": ", ".join(f"{knob}={text_of(value)}" for knob, value in one.point.items()),
                "ratio": ratio,
                "interval": interval,
                "best": "unknown" if one.probability_best is None else f"{one.probability_best:.0%}",
                "loss": "unknown" if one.expected_loss is None else f"{one.expected_loss:.1%}",
                "verdict": "winner" if won else one.obstacle or "better than the baseline",
            }
        )
    return rows


def _counts(facts: Facts) -> str:
    counts = ", ".join(f"{number} {outcome}" for outcome, number in facts.answer.counts["trials"].items())
    failures = ", ".join(f"{number} {name}" for name, number in facts.answer.counts["failures"].items())
    return (counts or "no trial recorded yet") + (f"; failures: {failures}" if failures else "")


def _table(facts: Facts) -> dict[str, Any]:
    """All trials as text, and which columns sort as numbers."""
    trials = facts.trials
    knobs = [f"knob.{name}" for name in facts.spec.knobs]
    columns = ["trial", *knobs, "outcome", "failure", "ratio", "ratio_low", "ratio_high", "pairs", "workspace_rows"]
    columns += ["measuring_s", "failure_detail"]
    rows = [[_cell(name, value) for name, value in zip(columns, row, strict=True)] for row in _values(trials, columns)]
    heads = [{"text": name.removeprefix("knob."), "numeric": name in _NUMBER_COLUMNS} for name in columns]
    return {"heads": heads, "rows": rows}


def _values(trials: pd.DataFrame, columns: list[str]) -> list[tuple[Any, ...]]:
    return list(trials[columns].astype(object).itertuples(index=False, name=None))


def _cell(name: str, value: Any) -> str:
    if name.startswith("knob."):
        return text_of(value)
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return ""
    if name.startswith("ratio"):
        return "unbounded" if math.isinf(value) else f"{value:.4f}"
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _provenance(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and values, nested names joined by dots; an engine's resolved configuration is left out, for its length."""
    found: list[tuple[str, str]] = []

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if key != "resolved":
                    walk(f"{prefix}.{key}" if prefix else str(key), inner)
        elif isinstance(value, list) and any(isinstance(inner, Mapping) for inner in value):
            for index, inner in enumerate(value):
                walk(f"{prefix}.{index}", inner)
        else:
            found.append((prefix, value if isinstance(value, str) else json.dumps(value)))

    walk("", provenance)
    return found
