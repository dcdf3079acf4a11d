"""The plots of a report.

Colours: Okabe and Ito (2008), which people with any kind of colour blindness can tell apart. Every class has a symbol
of its own as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from orchestrator.analysis.knee import find_knee, front
from orchestrator.analysis.report.facts import Facts, text_of

BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, GREY = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#d55e00",
    "#cc79a7",
    "#56b4e9",
    "#b8a800",
    "#7f7f7f",
)
_OUTCOMES: Mapping[str, tuple[str, str]] = {
    "complete": (BLUE, "circle"),
    "infeasible": (ORANGE, "diamond"),
    "failed": (RED, "x"),
    "lost": (GREY, "cross"),
}
_SYMBOLS = ("x", "diamond", "square", "triangle-up", "star", "hexagon", "bowtie", "cross")


@dataclass(frozen=True)
class Plot:
    """A figure with what stands around it."""

    key: str
    title: str
    caption: str
    figure: go.Figure

    def titled(self, title: str) -> go.Figure:
        """A copy of the figure for where nothing stands around it."""
        figure = go.Figure(self.figure)
        figure.update_layout(title={"text": title, "x": 0.5, "font": {"size": 18}}, margin={"t": 64})
        return figure


def plots(facts: Facts) -> list[Plot]:
    """Every plot that the run has the figures for."""
    makers: list[Callable[[Facts], Plot | None]] = [_pairs, _memory, _regions, _drift, _importance]
    found = [plot for make in makers if (plot := make(facts)) is not None]
    curves = [_response(facts, knob) for knob in facts.knobs] if not facts.complete.empty else []
    return [*found[:1], *curves, *found[1:]] if found and found[0].key == "pairs" else [*curves, *found]


def _ratio_axis(facts: Facts) -> dict[str, Any]:
    better = "lower" if facts.spec.minimize else "higher"
    return {"title": {"text": f"ratio ({better} is better)"}}


def _layout(figure: go.Figure, x: dict[str, Any], y: dict[str, Any], **more: Any) -> go.Figure:
    figure.update_layout(
        margin={"l": 60, "r": 16, "t": 16, "b": 56},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "y": -0.28},
        xaxis={"automargin": True, **x},
        yaxis={"automargin": True, **y},
        template="none",
        **more,
    )
    return figure


def _one(figure: go.Figure) -> None:
    figure.add_hline(y=1.0, line={"color": GREY, "dash": "dash", "width": 1})


def _pairs(facts: Facts) -> Plot | None:
    pairs = facts.pairs
    if pairs.empty:
        return None
    figure = go.Figure()
    for phase, colour, symbol in (("search", SKY, "circle-open"), ("confirm", BLUE, "circle")):
        rows = pairs[pairs["phase"] == phase]
        if not rows.empty:
            figure.add_scatter(
                x=rows["started_at"],
                y=rows["ratio"],
                mode="markers",
                name=phase,
                marker={"color": colour, "symbol": symbol, "size": 8},
                text=[f"trial {trial}, pair {pair}" for trial, pair in zip(rows["trial"], rows["pair"], strict=True)],
                hovertemplate="%{text}<br>ratio %{y:.3f}<extra></extra>",
            )
    _one(figure)
    caption = (
        "Each mark is one pair of short measurements, candidate over baseline, taken in turns: drift of the machine "
        "moves both and cancels. Only pairs of the confirmation, with fresh prompts, count for the answer."
    )
    return Plot("pairs", "Pairs over time", caption, _layout(figure, {"type": "date"}, _ratio_axis(facts)))


def _response(facts: Facts, knob: str) -> Plot:
    rows = facts.complete
    column = rows[f"knob.{knob}"]
    is_number = [isinstance(value, (int, float)) and not isinstance(value, bool) for value in column]
    distinct = list(dict.fromkeys(text_of(value) for value in column))
    numbers = sorted({value for value, number in zip(column, is_number, strict=True) if number})
    order = [text_of(value) for value in numbers] + [text for text in distinct if text not in map(text_of, numbers)]
    figure = go.Figure()
    texts = column.map(text_of)
    figure.add_scatter(
        x=texts,
        y=rows["ratio"],
        mode="markers",
        name="one trial, with its interval",
        marker={"color": SKY, "symbol": "circle-open", "size": 7},
        error_y={
            "type": "data",
            "symmetric": False,
            "array": _finite(rows["ratio_high"] - rows["ratio"]),
            "arrayminus": _finite(rows["ratio"] - rows["ratio_low"]),
            "thickness": 1,
            "width": 2,
        },
        text=[f"trial {trial}" for trial in rows["trial"]],
        hovertemplate="%{text}<br>%{x}: %{y:.3f}<extra></extra>",
    )
    means = np.log(rows["ratio"]).groupby(texts).mean().map(math.exp)
    figure.add_scatter(
        x=order,
        y=[means[text] for text in order],
        mode="lines+markers",
        name="geometric mean",
        marker={"color": BLUE, "symbol": "circle", "size": 8},
        line={"color": BLUE, "width": 2},
        hovertemplate="mean at %{x}: %{y:.3f}<extra></extra>",
    )
    _one(figure)
    axis = {"type": "category", "categoryorder": "array", "categoryarray": order, "title": {"text": knob}}
    caption = "The other knobs vary from mark to mark, and the search went where it hoped for good values."
    return Plot(f"response-{knob}", f"Response to {knob}", caption, _layout(figure, axis, _ratio_axis(facts)))


def _finite(values: pd.Series[Any]) -> list[float | None]:
    return [float(value) if value is not None and math.isfinite(value) else None for value in values]


def _memory(facts: Facts) -> Plot | None:
    rows = facts.complete
    rows = rows[rows["workspace_bytes"].notna()]
    if rows.empty or rows["workspace_bytes"].nunique() < 2:
        return None
    minimize = facts.spec.minimize
    knee, best = find_knee(rows, minimize=minimize), front(rows, minimize=minimize)
    assert knee is not None
    figure = go.Figure()
    mebi = rows["workspace_bytes"].astype(float) / 2**20
    figure.add_scatter(
        x=mebi,
        y=rows["ratio"],
        mode="markers",
        name="trial",
        marker={"color": SKY, "symbol": "circle-open", "size": 8},
        text=[f"trial {trial}" for trial in rows["trial"]],
        hovertemplate="%{text}<br>%{x:.2f} MiB: %{y:.3f}<extra></extra>",
    )
    figure.add_scatter(
        x=best["workspace_bytes"].astype(float) / 2**20,
        y=best["ratio"],
        mode="lines",
        name="Pareto front",
        line={"color": GREEN, "shape": "hv", "width": 2},
        hoverinfo="skip",
    )
    figure.add_scatter(
        x=[knee.workspace_bytes / 2**20],
        y=[knee.ratio],
        mode="markers",
        name="knee",
        marker={"color": RED, "symbol": "star", "size": 14},
        hovertemplate=f"knee: trial {knee.trial}<br>%{{x:.2f}} MiB: %{{y:.3f}}<extra></extra>",
    )
    _one(figure)
    caption = (
        f"The knee, trial {knee.trial} with {knee.workspace_bytes / 2**20:,.2f} MiB, is the smallest workspace within "
        f"2 % of the best ratio (trial {knee.best_trial}, {knee.best_bytes / 2**20:,.2f} MiB). Ratios of the search."
    )
    axis = {"type": "log", "title": {"text": "MLA workspace, MiB"}}
    return Plot("memory", "Memory against time", caption, _layout(figure, axis, _ratio_axis(facts)))


def _regions(facts: Facts) -> Plot | None:
    knobs = list(facts.answer.importance or {}) or facts.knobs
    knobs = [knob for knob in knobs if knob in facts.knobs] or facts.knobs
    if facts.trials.empty or not knobs:
        return None
    first, second = (knobs[0], knobs[1]) if len(knobs) > 1 else (knobs[0], None)
    figure = go.Figure()
    outcome = facts.trials["outcome"].astype(str)
    failure = facts.trials["failure"].astype(object).where(facts.trials["failure"].notna(), None)
    classes = [one if label is None else f"{one}: {label}" for one, label in zip(outcome, failure, strict=True)]
    other = 0
    for name in dict.fromkeys(classes):
        rows = facts.trials[[one == name for one in classes]]
        colour, symbol = _OUTCOMES[name.partition(":")[0]]
        if ":" in name:
            symbol, other = _SYMBOLS[other % len(_SYMBOLS)], other + 1
        figure.add_scatter(
            x=rows[f"knob.{first}"].map(text_of),
            y=rows[f"knob.{second}"].map(text_of) if second else [name.partition(":")[0]] * len(rows),
            mode="markers",
            name=name,
            marker={"color": colour, "symbol": symbol, "size": 10},
            text=[f"trial {trial}" for trial in rows["trial"]],
            hovertemplate="%{text}<br>%{x}, %{y}<extra></extra>",
        )
    axes = [
        {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": _order(facts.trials[f"knob.{knob}"]) if knob else [],
            "title": {"text": knob or "outcome"},
        }
        for knob in (first, second)
    ]
    caption = "Where trials ended well and where not, by class. Points that arithmetic ruled out were never started."
    return Plot("regions", "Feasible and failed points", caption, _layout(figure, axes[0], axes[1]))


def _order(column: pd.Series[Any]) -> list[str]:
    numbers = sorted({value for value in column if isinstance(value, (int, float)) and not isinstance(value, bool)})
    texts = [text_of(value) for value in numbers]
    return texts + [text for text in dict.fromkeys(column.map(text_of)) if text not in texts]


def _drift(facts: Facts) -> Plot | None:
    rows = facts.baseline
    if len(rows) < 3:
        return None
    median = float(rows["value"].median())
    figure = go.Figure()
    figure.add_scatter(
        x=rows["started_at"],
        y=rows["value"],
        mode="markers",
        name="block of the baseline",
        marker={"color": PURPLE, "symbol": "circle-open", "size": 7},
        hovertemplate="%{y:.4g}<extra></extra>",
    )
    figure.add_hline(y=median, line={"color": GREY, "dash": "dash", "width": 1})
    caption = f"The same configuration again and again; the dashed line is the median, {median:.4g}."
    drift = facts.answer.drift
    if drift is not None and drift.is_large:
        caption += f" From the first to the last block it went to {drift.change:.3f} of what it was ({drift.low:.3f} "
        caption += f"to {drift.high:.3f})."
    axis = {"title": {"text": facts.spec.metric}}
    return Plot("drift", "Drift of the baseline", caption, _layout(figure, {"type": "date"}, axis))


def _importance(facts: Facts) -> Plot | None:
    shares = facts.answer.importance
    if not shares:
        return None
    names = list(shares)[::-1]
    figure = go.Figure()
    figure.add_bar(
        x=[shares[name] for name in names],
        y=names,
        orientation="h",
        marker={"color": BLUE},
        hovertemplate="%{y}: %{x:.0%}<extra></extra>",
    )
    caption = "Share of each knob in what sets the best trials apart from all (PED-ANOVA)."
    x = {"tickformat": ".0%", "title": {"text": "importance"}}
    return Plot("importance", "Importance of the knobs", caption, _layout(figure, x, {"type": "category"}))
