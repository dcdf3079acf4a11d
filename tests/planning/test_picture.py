"""Plans as pictures: what is drawn is the plan."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.planning import context_svg, plan_context_chunks, plan_prefill_chunks, plans_svg, request_extents

SVG = "{http://www.w3.org/2000/svg}"
EVEN, ODD, NEW = "#1f5f99", "#7fb2de", "#e08a1e"
WIDEST = 420.0
"""Of what is drawn."""


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def bars(svg: str, *colours: str) -> dict[float, list[tuple[float, float]]]:
    """Left ends and widths of the bars of some colours, by line; the squares of the legend left out."""
    found: dict[float, list[tuple[float, float]]] = {}
    for box in ElementTree.fromstring(svg).iter(f"{SVG}rect"):
        if box.get("fill") in colours and box.get("width") != "12":
            found.setdefault(float(box.attrib["y"]), []).append((float(box.attrib["x"]), float(box.attrib["width"])))
    return found


def test_a_context_is_cut_where_another_chunk_begins() -> None:
    contexts, queries = [7168, 0], [1024, 100]
    plan = plan_context_chunks(contexts, workspace_rows=2048, block_size=16)
    svg = context_svg({"here": plan}, contexts, queries, heading=["Trial 4 & others"])
    assert texts(svg)[0] == "Trial 4 & others"
    assert "here: 4 chunks, 7,168 rows, at most 2,048 a chunk" in texts(svg)
    (pieces,) = bars(svg, EVEN, ODD).values()
    assert [round(width) for _, width in pieces] == [round(WIDEST * 2048 / 8192)] * 3 + [round(WIDEST * 1024 / 8192)]
    assert [len(bars(svg, colour).popitem()[1]) for colour in (EVEN, ODD)] == [2, 2]
    first, second = bars(svg, NEW).values()
    assert first == [(84 + WIDEST * 7168 / 8192, WIDEST * 1024 / 8192)]
    assert second == [(84, round(WIDEST * 100 / 8192, 1))]


def test_a_step_without_context_says_so() -> None:
    svg = context_svg({"here": plan_context_chunks([0], workspace_rows=64, block_size=16)}, [0], [10])
    assert "here: 0 chunks, 0 rows, at most 0 a chunk" in texts(svg)


@settings(max_examples=30)
@given(
    contexts=st.lists(st.integers(0, 60_000), min_size=1, max_size=40).filter(any),
    rows=st.sampled_from([16, 64, 512, 65_536]),
)
def test_every_context_is_drawn_once_and_whole(contexts: list[int], rows: int) -> None:
    plan = plan_context_chunks(contexts, workspace_rows=rows, block_size=16)
    svg = context_svg({"here": plan}, contexts, [1] * len(contexts))
    scale = WIDEST / (max(contexts) + 1)
    drawn = list(bars(svg, EVEN, ODD).values())
    shown = [context for context in contexts[:24] if context]
    # Each bar is rounded to a tenth, and a line has at most 421.
    assert [sum(width for _, width in line) for line in drawn] == pytest.approx(
        [context * scale for context in shown], abs=0.05 * 421
    )
    assert max((len(line) for line in drawn), default=0) <= WIDEST + 1
    assert any("more" in text for text in texts(svg)) == (len(contexts) > 24)


def test_chunks_by_area_can_have_a_heading_too() -> None:
    batch: dict[str, Any] = {"compress_ratio": 4, "window": 128}
    plan = plan_prefill_chunks([9000, 50], [50, 50], area_limit=3000, **batch)
    deep, wide = request_extents([9000, 50], [50, 50], **batch)
    with_heading = plans_svg({"here": plan}, deep.tolist(), wide.tolist(), heading=["One", "Two"])
    assert texts(with_heading)[:2] == ["One", "Two"]
    without = plans_svg({"here": plan}, deep.tolist(), wide.tolist())
    assert texts(without) == texts(with_heading)[2:]
