"""Answers as tables for people and as JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any

import typer


def show_json(value: Any, *, as_line: bool = False) -> None:
    """Print dataclasses, lists and numbers as one JSON document. JSON knows no infinity: it is ``null``."""
    typer.echo(json.dumps(_plain(value), indent=None if as_line else 1, allow_nan=False))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(dataclasses.asdict(value))
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def show_table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()) -> None:
    """Print a table.

    Args:
        numbers: Heads of the columns that are set to the right.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, justify="right" if head in numbers else "left", overflow="fold")
    for row in rows:
        # `Text` and not strings: a value may hold brackets, which rich would read as its markup.
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def interval(low: float, high: float) -> str:
    """The ends of an interval of a ratio."""
    if math.isinf(high):
        return "unknown"
    return f"{low:.3f} to {high:.3f}"


def point_text(point: dict[str, Any]) -> str:
    """A point in one line."""
    return ", ".join(f"{knob}={'default' if value is None else value}" for knob, value in point.items())
