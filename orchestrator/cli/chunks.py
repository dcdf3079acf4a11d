"""``chunksmith chunks``: the prefill chunks of a batch, per layer type, drawn."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.arguments import AsJson
from orchestrator.errors import UserError, unknown_name

if TYPE_CHECKING:
    from orchestrator.planning import ChunkPlan

_BAR = 40
_MOST_REQUESTS = 100_000
_LENGTHS = re.compile(r"(\d+)(?:x(\d+))?")


def chunks(
    seq_lens: Annotated[str, typer.Option(help="Tokens of each request with its context: 65536x16,1000.")],
    query_lens: Annotated[str, typer.Option(help="Tokens of each in this step: 512x16,200.")],
    layer: Annotated[list[str] | None, typer.Option(help="swaonly, c4a, c128a, c1a or c2a; repeatable.")] = None,
    order: Annotated[str, typer.Option(help="batch (vLLM's), width or optimal.")] = "batch",
    max_model_len: Annotated[int, typer.Option(help="Tokens.")] = 131_072,
    max_num_batched_tokens: Annotated[int, typer.Option(help="Tokens in a step.")] = 8192,
    window: Annotated[int, typer.Option(help="Tokens of the sliding window.")] = 128,
    prefill_chunk_size: Annotated[int, typer.Option(help="vLLM's class constant.")] = 4,
    area_limit: Annotated[int | None, typer.Option(help="Rows; lower than vLLM's own.")] = None,
    launch_rows: Annotated[int | None, typer.Option(help="Cost of one more chunk in rows, for optimal.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Also write a picture of the plans, in SVG.")] = None,
    as_json: AsJson = False,
) -> None:
    """Plan the DeepSeek-V4 prefill chunks of a batch, and draw how much of the area limit each takes.

    Example: chunksmith chunks --seq-lens 65536x16,1000 --query-lens 512x16,200
    """
    from orchestrator.planning import LAUNCH_ROWS, LAYER_TYPES

    seq, query = _numbers("--seq-lens", seq_lens), _numbers("--query-lens", query_lens)
    names = layer or ["swaonly", "c4a", "c128a"]
    for name in names:
        if name not in LAYER_TYPES:
            raise unknown_name("layer type", name, LAYER_TYPES, where="--layer")
    flags: dict[str, Any] = {
        "max_model_len": max_model_len,
        "max_num_batched_tokens": max_num_batched_tokens,
        "window": window,
        "prefill_chunk_size": prefill_chunk_size,
    }
    price = LAUNCH_ROWS if launch_rows is None else launch_rows
    try:
        planned = {name: _layer(name, seq, query, flags, order=order, cap=area_limit, price=price) for name in names}
    except ValueError as error:
        raise UserError(str(error)) from error
    if svg is not None:
        _draw(svg, {name: plan for name, (plan, _) in planned.items()}, seq, query, window)
    found = {name: described for name, (_, described) in planned.items()}
    if as_json:
        typer.echo(json.dumps({"requests": len(seq), "order": order, **flags, "layers": found}, indent=1))
        return
    for name, described in found.items():
        _show(name, described)


def _numbers(option: str, text: str) -> list[int]:
    numbers: list[int] = []
    for part in text.split(","):
        match = _LENGTHS.fullmatch(part.strip())
        if match is None:
            raise UserError(f"{option}: {part.strip()!r} is no length; write 65536 or, for 16 of them, 65536x16")
        times = int(match[2] or 1)
        if len(numbers) + times > _MOST_REQUESTS:
            raise UserError(f"{option}: more than {_MOST_REQUESTS} requests")
        numbers += [int(match[1])] * times
    return numbers


def _layer(
    name: str, seq: list[int], query: list[int], flags: dict[str, Any], *, order: str, cap: int | None, price: int
) -> tuple[ChunkPlan, dict[str, Any]]:
    from orchestrator.planning import LAYER_TYPES, area_limit, fixed_chunks, plan_prefill_chunks

    kind = LAYER_TYPES[name]
    layer: dict[str, Any] = {"compress_ratio": kind.compress_ratio, "has_compressed": kind.has_compressed}
    limit = area_limit(**layer, **flags)
    if cap is not None:
        limit = min(limit, cap)
    batch: dict[str, Any] = {"window": flags["window"], "area_limit": limit, **layer}
    plan = plan_prefill_chunks(seq, query, order=order, launch_rows=price, **batch)
    greedy = plan_prefill_chunks(seq, query, **batch)
    described = {
        "area_limit_rows": limit,
        "chunks": [_chunk(plan, place) for place in range(len(plan))],
        "area_rows": plan.area,
        "permutation": None if plan.permutation is None else plan.permutation.tolist(),
        "proven_optimal": plan.exact,
        "greedy": {"chunks": len(greedy), "area_rows": greedy.area},
        "fixed": {"chunks": len(fixed_chunks(len(seq), **layer, **flags))},
    }
    return plan, described


def _draw(path: Path, plans: dict[str, ChunkPlan], seq: list[int], query: list[int], window: int) -> None:
    from orchestrator.cli.output import write_output
    from orchestrator.planning import LAYER_TYPES, plans_svg, request_extents

    if len(plans) > 1:
        raise UserError("--svg: draws one layer type; choose it with --layer")
    ((name, plan),) = plans.items()
    kind = LAYER_TYPES[name]
    layer: dict[str, Any] = {"compress_ratio": kind.compress_ratio, "has_compressed": kind.has_compressed}
    deep, wide = request_extents(seq, query, window=window, **layer)
    write_output(path, plans_svg({name: plan}, deep.tolist(), wide.tolist()))


def _chunk(plan: ChunkPlan, place: int) -> dict[str, Any]:
    chunk = plan[place]
    return {**chunk._asdict(), "area_rows": chunk.area, "oversize": chunk.area > plan.area_limit}


def _show(name: str, planned: dict[str, Any]) -> None:
    limit, greedy, found = planned["area_limit_rows"], planned["greedy"], planned["chunks"]
    typer.echo(
        f"{name}: {len(found)} chunks, {planned['area_rows']:,} rows; limit {limit:,} rows a chunk"
        f" (batch order: {greedy['chunks']}, {greedy['area_rows']:,} rows; fixed, up to vLLM 0.23:"
        f" {planned['fixed']['chunks']})"
    )
    for chunk in found:
        requests = chunk["end"] - chunk["start"]
        # The shares of one bar: compressed rows, then those of the window.
        filled = min(_BAR, math.ceil(_BAR * chunk["area_rows"] / limit))
        deep = round(filled * chunk["compressed"] / chunk["width"])
        bar = "#" * deep + "=" * (filled - deep)
        note = "  alone: wider than the limit" if chunk["oversize"] else ""
        span = f"{chunk['start']}-{chunk['end'] - 1}"
        typer.echo(
            f"  {span:>11}  {requests:>4} x {chunk['width']:>9,} = {chunk['area_rows']:>11,}"
            f"  |{bar:<{_BAR}}| {100 * chunk['area_rows'] / limit:5.1f} %{note}"
        )
    if planned["permutation"] is not None:
        order = planned["permutation"]
        shown = " ".join(map(str, order[:24])) + (" ..." if len(order) > 24 else "")
        typer.echo(f"  order of the requests: {shown}")
    typer.echo("  # compressed rows   = window rows\n")
