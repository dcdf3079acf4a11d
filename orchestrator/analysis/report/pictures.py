"""The plots of a report as PNG files: drawn by kaleido, which draws in an installed Chromium or Chrome."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import plotly.graph_objects as go

from orchestrator.analysis.report.facts import read_facts
from orchestrator.analysis.report.figures import Plot, plots
from orchestrator.errors import ChunksmithError

WIDTH: Final = 960
"""Of a picture, in CSS pixels."""

HEIGHT: Final = 600
"""Of a picture, in CSS pixels."""

SCALE: Final = 2
"""Pixels of the file for one CSS pixel: sharp on a slide and in print."""

_TIMEOUT_S: Final = 90.0
"""For one picture, which takes about a second."""

_INK, _LINE, _GROUND = "#1c1e21", "#cfd4da", "#ffffff"
"""The light colours of ``style.css``."""


def pictures(run_path: Path | str) -> dict[str, bytes]:
    """Each plot of a run's report as a PNG file of ``WIDTH * SCALE`` by ``HEIGHT * SCALE`` pixels.

    They have the light colours of the page, and a title of their own. Nothing is loaded from a network. A sweep may
    still be writing to the run.

    Returns:
        Contents by file name, which says what the plot shows (``response-mla_workspace_rows.png``), in the order of
        the report; empty for a run with nothing to draw.

    Raises:
        ModuleNotFoundError: kaleido is not installed.
        ChunksmithError: There is no browser, or it does not draw; and as ``orchestrator.analysis.best``.
    """
    facts = read_facts(run_path)
    drawn = plots(facts)
    images = _draw([_on_its_own(plot, facts.answer.study) for plot in drawn])
    return {f"{_file_name(plot.key)}.png": image for plot, image in zip(drawn, images, strict=True)}


def _file_name(key: str) -> str:
    """A plot's key as part of a file name: the name of a knob may hold any character."""
    return re.sub(r"[^\w.-]+", "-", key, flags=re.ASCII)


def _on_its_own(plot: Plot, study: str) -> go.Figure:
    """The figure without a page around it: with a title, a ground and the colour of ink."""
    figure = plot.titled(f"{study}: {plot.title}")
    axis = {"gridcolor": _LINE, "zerolinecolor": _LINE, "linecolor": _LINE, "tickcolor": _LINE}
    figure.update_layout(
        font={"color": _INK, "family": "sans-serif", "size": 13},
        margin={"r": 32, "b": 72},
        paper_bgcolor=_GROUND,
        plot_bgcolor=_GROUND,
    )
    figure.update_xaxes(axis)
    figure.update_yaxes(axis)
    return figure


def _draw(figures: Sequence[go.Figure]) -> list[bytes]:
    from kaleido import errors

    if not figures:
        return []
    try:
        return asyncio.run(_in_browser(figures))
    except errors.ChromeNotFoundError as error:
        raise ChunksmithError(
            "pictures need Chromium or Chrome, and none is found here; on Debian: apt-get install chromium. The "
            "variable BROWSER_PATH names one that is elsewhere."
        ) from error
    except (
        errors.BrowserClosedError,
        errors.BrowserFailedError,
        errors.JavascriptError,
        errors.KaleidoError,
        TimeoutError,
    ) as error:
        raise ChunksmithError(f"the browser did not draw the pictures: {error or type(error).__name__}") from error


async def _in_browser(figures: Sequence[go.Figure]) -> list[bytes]:
    from kaleido import Kaleido

    options: dict[str, Any] = {"format": "png", "width": WIDTH, "height": HEIGHT, "scale": SCALE}
    # MathJax would come from a network, and no text of ours has a formula.
    async with Kaleido(mathjax=False, timeout=_TIMEOUT_S) as browser:
        return [await browser.calc_fig(figure, opts=options) for figure in figures]
