"""Plans as SVG pictures, one line a request.

Of chunks by area, a frame is a chunk and its surface the chunk's area. Of context chunks, a line is cut where the
request's context goes on in another filling of the workspace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from orchestrator.planning.context import ContextPlan
from orchestrator.planning.plans import ChunkPlan

_BAR: Final = 420
_LINE: Final = 14
_LEFT: Final = 64
_GAP: Final = 10
_COLOURS: Final = {
    "compressed": "#1f5f99",
    "window": "#e08a1e",
    "unused": "#e9edf1",
    "even": "#1f5f99",
    "odd": "#7fb2de",
    "new": "#e08a1e",
}
_AREA_LEGEND: Final = {"compressed": "compressed rows", "window": "window rows", "unused": "spanned, not used"}
_CONTEXT_LEGEND: Final = {"even": "context, one chunk", "odd": "context, the next", "new": "new tokens"}
_MOST_LINES: Final = 24
_NARROWEST: Final = 1.0
_TEXT: Final = 'font-family="sans-serif" font-size="12" fill="#222"'


def plans_svg(
    plans: Mapping[str, ChunkPlan], compressed: Sequence[int], window: Sequence[int], *, heading: Sequence[str] = ()
) -> str:
    """Draw plans of one batch below each other, to the same scale.

    Args:
        plans: A caption for each plan; not empty, and no plan empty.
        compressed: Compressed rows that each request of the batch needs, in batch order.
        window: Window rows that each needs, in batch order.
        heading: Lines on top, at most 110 characters each.

    Returns:
        An SVG document. The same plans always give the same text.
    """
    widest = max(chunk.width for plan in plans.values() for chunk in plan)
    parts, top = _heading(heading)
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
    return _document(parts, top, _AREA_LEGEND)


def context_svg(
    plans: Mapping[str, ContextPlan], contexts: Sequence[int], queries: Sequence[int], *, heading: Sequence[str] = ()
) -> str:
    """Draw plans of one batch's context below each other, to the same scale.

    Pieces that would be narrower than a pixel are drawn together, and requests after the first 24 are only counted.

    Args:
        plans: A caption for each plan; not empty.
        contexts: Cached tokens of each request, in batch order; not all 0.
        queries: New tokens of each, which are attended to without the workspace.
        heading: Lines on top, at most 110 characters each.

    Returns:
        An SVG document. The same plans always give the same text.
    """
    widest = max(context + query for context, query in zip(contexts, queries, strict=True))
    parts, top = _heading(heading)
    shown = min(len(contexts), _MOST_LINES)
    for caption, plan in plans.items():
        rows = plan.table[:, 3]
        most = int(rows.max()) if len(plan) else 0
        title = f"{caption}: {_counted(len(plan), 'chunk')}, {int(rows.sum()):,} rows, at most {most:,} a chunk"
        parts.append(_text(10, top + 12, title, bold=True))
        top += 24
        for request, pieces in enumerate(_pieces(plan, shown, widest)):
            y = top + request * _LINE
            parts.append(_text(10, y + 11, f"request {request}"))
            for start, length, chunk in pieces:
                kind = "odd" if chunk % 2 else "even"
                parts.append(_box(_LEFT + 20 + _scaled(start, widest), y + 1, _scaled(length, widest), kind))
            context, query = contexts[request], queries[request]
            parts.append(_box(_LEFT + 20 + _scaled(context, widest), y + 1, _scaled(query, widest), "new"))
            parts.append(_text(_LEFT + 28 + _BAR, y + 11, f"{context:,} + {query:,} tokens"))
        top += shown * _LINE
        if shown < len(contexts):
            parts.append(_text(10, top + 12, f"and {_counted(len(contexts) - shown, 'request')} more"))
            top += _LINE
        top += 2 * _GAP
    return _document(parts, top, _CONTEXT_LEGEND)


def _pieces(plan: ContextPlan, requests: int, widest: int) -> list[list[tuple[int, int, int]]]:
    """Of each of the first requests, the pieces as (first token, tokens, chunk); very short ones are joined."""
    found: list[list[tuple[int, int, int]]] = [[] for _ in range(requests)]
    for number, chunk in enumerate(plan):
        for place, (start, length) in enumerate(zip(chunk.starts, chunk.lengths, strict=True)):
            request = chunk.request_start + place
            if request >= requests or not length:
                continue
            line = found[request]
            if line and _BAR * line[-1][1] / widest < _NARROWEST:
                start, before, number_before = line.pop()
                line.append((start, before + length, number_before))
            else:
                line.append((start, length, number))
    return found


def _heading(lines: Sequence[str]) -> tuple[list[str], int]:
    """The lines, and where the next thing begins."""
    parts = [_text(10, 22 + place * 16, line) for place, line in enumerate(lines)]
    return parts, 10 + len(lines) * 16 + (_GAP if lines else 0)


def _document(parts: list[str], top: int, legend: Mapping[str, str]) -> str:
    left = 10
    for kind, meaning in legend.items():
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
