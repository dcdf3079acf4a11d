"""``chunksmith validate SPEC``: whether a spec is right, how large its space is, and what a sweep of it will cost."""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.arguments import AsJson, complete_spec
from orchestrator.cli.output import is_quiet

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.search import Knob, Point, Space
    from orchestrator.search.audit import Audit
    from orchestrator.sweep.cost import Cost

_MOST_SHOWN = 6
"""Values of a knob that are printed; of more, the first and the last."""

_WIDTH = 160
"""Columns of a file or a pipe, which have no width of their own."""


def validate(
    spec: Annotated[Path, typer.Argument(help="Sweep spec (YAML).", show_default=False, autocompletion=complete_spec)],
    sample: Annotated[int, typer.Option("--sample", min=0, help="Print so many valid points.")] = 0,
    run: Annotated[
        Path | None, typer.Option(help="Earlier run whose times the estimate takes; runs/<study> if omitted.")
    ] = None,
    start_s: Annotated[float | None, typer.Option(min=0, help="Seconds of an engine start, for the estimate.")] = None,
    block_s: Annotated[float | None, typer.Option(min=0, help="Seconds of a block, for the estimate.")] = None,
    json_: AsJson = False,
) -> None:
    """Check a spec: the size of its space, what each constraint removes, and the estimated cost. Starts no engine.

    Example: chunksmith validate search_spaces/cpu_demo.yaml --sample 5
    """
    from rich.console import Console

    from orchestrator.search.audit import audit
    from orchestrator.sweep import load_spec
    from orchestrator.sweep.cost import cost_of, seconds_of

    found = load_spec(spec)
    space = found.search_space()
    numbers = audit(space, seed=found.seed)
    seconds = seconds_of(found, run, start_s=start_s, block_s=block_s)
    cost = cost_of(found, space, seconds)
    points = _drawn(space, sample, found.seed)
    if json_:
        content = {
            "study": found.study,
            "knobs": {knob.name: {"scope": knob.scope, "values": list(knob.values)} for knob in space.knobs},
            "space": asdict(numbers),
            "groups": len(space.groups()),
            "trials": found.trials,
            "cost": asdict(cost),
            "sample": [dict(point) for point in points],
        }
        typer.echo(json.dumps(content, indent=1))
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH
    console.print(f"{spec} is right: study {found.study}, {found.trials} trials")
    if not is_quiet():
        _show_space(console, space, numbers)
        _show_cost(console, cost)
    if points:
        _show_points(console, points)


def _drawn(space: Space, number: int, seed: int) -> list[Point]:
    """A random choice of valid points, in the order of the space."""
    points = space.valid_points(number, seed=seed) if number else []
    if len(points) <= number:
        return points
    chosen = random.Random(seed).sample(range(len(points)), number)
    return [points[index] for index in sorted(chosen)]


def _show_space(console: Console, space: Space, numbers: Audit) -> None:
    from orchestrator.search.audit import DRAWS

    table = _table("knob", "scope", "values", "only where")
    for knob in space.knobs:
        table.add_row(knob.name, knob.scope, _values(knob), knob.when.text if knob.when else "")
    console.print(table)
    about = "" if numbers.is_exact else "about "
    more = "" if space.all_points is not None else "more than "
    console.print(
        f"space: {numbers.raw:,} combinations, {about}{numbers.distinct:,} different points, "
        f"{about}{numbers.valid:,} of them valid, engine groups: {more}{len(space.groups()):,}"
    )
    if not numbers.is_exact:
        console.print(f"(estimated from {DRAWS:,} random draws)")
    table = _table("constraint", "break it", "it alone", "demands", right=(1, 2))
    idle = []
    for removal in numbers.removals:
        if not removal.share and not removal.text:
            idle.append(removal.name)
            continue
        note = f" (not judged where vLLM chooses {', '.join(removal.unknown)})" if removal.unknown else ""
        counts = [_count(share, numbers) for share in (removal.share, removal.alone)]
        table.add_row(removal.name, *counts, removal.text + note)
    console.print(table)
    if idle:
        console.print(f"Of use, these remove nothing: {', '.join(idle)}")


def _show_cost(console: Console, cost: Cost) -> None:
    starts, blocks, minutes = cost.starts, cost.blocks, cost.minutes
    console.print(
        f"cost: engine starts {_range(*starts)}, blocks {_range(*blocks)}, minutes {_range(*map(round, minutes))}; "
        f"rests on {cost.seconds.source}"
    )


def _show_points(console: Console, points: list[Point]) -> None:
    """One column a point where the names of the knobs would not fit beside each other."""
    rows = [["" if value is None else str(value) for value in point.values()] for point in points]
    names = list(points[0])
    if sum(map(len, names)) + 3 * len(names) <= console.width:
        table = _table(*names)
        for row in rows:
            table.add_row(*row)
    else:
        table = _table("knob", *(str(number) for number in range(1, len(points) + 1)))
        for name, *values in zip(names, *rows, strict=True):
            table.add_row(name, *values)
    console.print(table)


def _table(*columns: str, right: tuple[int, ...] = ()) -> Any:
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(box=SIMPLE, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index in right else "left", overflow="fold")
    return table


def _values(knob: Knob) -> str:
    words = ["null" if value is None else str(value) for value in knob.choices]
    if len(words) > _MOST_SHOWN:
        return f"{words[0]}, {words[1]} ... {words[-1]} ({len(words)})"
    return ", ".join(words)


def _count(share: float, numbers: Audit) -> str:
    return f"{round(share * numbers.distinct):,}" if numbers.is_exact else f"{share:.1%}"


def _range(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
