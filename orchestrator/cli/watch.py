"""``chunksmith watch RUN``: follow a sweep from another terminal."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer

from orchestrator.cli.arguments import RunFolderArgument
from orchestrator.cli.output import is_quiet, note


def watch(
    run: RunFolderArgument,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print what there is, and end.")] = False,
    json_: Annotated[
        bool, typer.Option("--json", help="Print one JSON document a line: each trial, and the answer at last.")
    ] = False,
) -> None:
    """Print each trial of a running sweep as it ends, and the answer when the sweep has ended. Ctrl-C ends it sooner.

    Example: chunksmith watch runs/cpu-demo
    """
    from rich.console import Console

    from orchestrator.analysis import best
    from orchestrator.analysis.render import render
    from orchestrator.analysis.watch import Watch
    from orchestrator.cli.tables import show_json

    following = Watch(run)
    while True:
        # Asked before the look: what is written between the two is then seen by it.
        is_running = following.is_running
        for news in following.news():
            if is_quiet():
                continue
            if json_:
                show_json(news, as_line=True)
            else:
                typer.echo(_line(news, following.trials))
        if once or not is_running:
            break
        time.sleep(every)
    answer = best(run)
    if json_:
        show_json(json.loads(answer.to_json()), as_line=True)
        return
    if is_running:
        note(f"running: {following.done} of {following.trials or 'unknown'} trials")
    render(answer, Console(highlight=False))


def _line(news: object, trials: int | None) -> str:
    from orchestrator.analysis.watch import TrialNews
    from orchestrator.cli.tables import interval, point_text

    assert isinstance(news, TrialNews)
    count = f"{news.done} of {trials}" if trials else str(news.done)
    text = f"trial {news.number} ({count}): {point_text(news.point)}: "
    if news.ratio is None or news.low is None or news.high is None:
        text += news.outcome + (f": {news.failure}" if news.failure else "")
    else:
        text += f"{news.ratio:.3f} ({interval(news.low, news.high)}) of the baseline, {news.pairs} pairs"
    return f"{text}; best so far" if news.is_best else text
