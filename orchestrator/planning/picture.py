"""Chunk plans as an SVG picture: one line a request, one frame a chunk, the frame's surface being the chunk's area."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from orchestrator.planning.plans import ChunkPlan

_BAR: Final = 420
_LINE: Final = 14
_LEFT: Final = 64
_GAP: Final = 10
_COLOURS: Final = {"compressed": "#1f5f99", "window": "#e08a1e", "unused": "#e9edf1"}
_LEGEND: Final = {"compressed": "compressed rows", "window": "window rows", "unused": "spanned, not used"}
_TEXT: Final = 'font-family="sans-serif" font-size="12" fill="#222"'


def plans_svg(plans: Mapping[str, ChunkPlan], compressed: Sequence[int], window: Sequence[int]) -> str:
    """Draw plans of one batch below each other, to the same scale.

    Args:
        plans: A caption for each plan; not empty, and no plan empty.
        compressed: Compressed rows that each request of the batch needs, in batch order.
        window: Window rows that each needs, in batch order.

    Returns:
        An SVG document. The same plans always give the same text.
    """
    widest = max(chunk.width for plan in plans.values() for chunk in plan)
    parts: list[str] = []
    top = 10
    for caption, plan in plans.items():
        title = f"{caption}: {_counted(len(plan), 'chunk')}, {plan.area:,} rows, limit {plan.area_limit:,} a chunk"
        parts.append(_text(10, top + 12, title, bold=True))
        top += 24
        order = range(len(compressed)) if plan.permutation is None else plan.permutation.tolist()
        for chunk in plan:
            frame = _scaled(chunk.width, widest)
            for line, request in enumerate(order[chunk.start : chunk.end]):
                y = top + line * _LINE
                deep = _scaled(compressed[request], widest)
                # Window rows come after the compressed rows of the deepest request, as in vLLM's buffer.
                offset = _scaled(chunk.compressed, widest)
                parts.append(_text(10, y + 11, f"request {request}"))
                parts.append(_box(_LEFT + 20, y + 1, frame, "unused"))
                parts.append(_box(_LEFT + 20, y + 1, deep, "compressed"))
                parts.append(_box(_LEFT + 20 + offset, y + 1, _scaled(window[request], widest), "window"))
            height = chunk.requests * _LINE
            parts.append(
                f'<rect x="{_LEFT + 20}" y="{top}" width="{frame}" height="{height}" fill="none" stroke="#222"/>'
            )
            label = f"{chunk.requests} x {chunk.width:,} = {chunk.area:,}"
            parts.append(_text(_LEFT + 28 + _BAR, top + height / 2 + 4, label))
            top += height + _GAP
        top += _GAP
    left = 10
    for kind, meaning in (
        ("compressed", "compressed rows"),
        ("window", "window rows"),
        ("unused", "spanned, not used"),
    ):
        parts.append(f'<rect x="{left}" y="{top}" width="12" height="12" fill="{_COLOURS[kind]}"/>')
        parts.append(_text(left + 17, top + 11, meaning))
        left += 150
    size = f'width="{_LEFT + _BAR + 210}" height="{top + 24}"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', '<rect width="100%" height="100%" fill="#fff"/>']
    return "\n".join([*lines, *parts, "</svg>"]) + "\n"


def _scaled(rows: int, widest: int) -> float:
    return round(_BAR * rows / widest, 1)


def _box(x: float, y: float, width: float, kind: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{_LINE - 2}" fill="{_COLOURS[kind]}"/>'


def _text(x: float, y: float, text: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" {_TEXT}{weight}>{escape(text)}</text>'


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
