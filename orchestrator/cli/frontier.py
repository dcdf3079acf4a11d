"""``chunksmith frontier RUN``: throughput against interactivity."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.arguments import AsJson, RunArgument


def frontier(
    run: RunArgument,
    price: Annotated[
        float | None, typer.Option(min=1e-9, help="Price of one GPU for an hour; adds the price of a million tokens.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Show the dominated points, too.")] = False,
    json_: AsJson = False,
) -> None:
    """Print output tokens per second and GPU against tokens per second and user: points that no other beats in both.

    Example: chunksmith frontier runs/cpu-goodput --price 2.5
    """
    from orchestrator.analysis.frontier import frontier as operating_points
    from orchestrator.cli.tables import point_text, show_json, show_table

    found = [one for one in operating_points(run, price_per_gpu_hour=price) if all_ or one.on_frontier]
    if json_:
        show_json(found)
        return
    heads = ["tokens/s/user", "tokens/s/GPU", "TTFT ms", "blocks", "point", "load"]
    rows = [
        [
            f"{one.tokens_per_s_per_user:.1f}",
            f"{one.tokens_per_s_per_gpu:.1f}",
            f"{one.median_ttft_ms:.1f}",
            str(one.blocks),
            point_text(one.point),
            one.load,
        ]
        for one in found
    ]
    if price is not None:
        heads.insert(2, "price/Mtok")
        for row, one in zip(rows, found, strict=True):
            row.insert(2, f"{one.price_per_mtok:.3g}")
    show_table(heads, rows, numbers=heads[:-2])
