"""The chunk planners against those of the installed vLLM: time per call, per engine step, and what reordering saves.

The two sides take turns in one process, so that a change of clock speed meets both. A figure is the median over the
turns; the spread is from the 10th to the 90th percentile. The last line is one JSON object.

    python -m benchmarks.planner [--turns 15]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from vllm.model_executor.layers.attention.mla_attention import plan_mla_context_chunks
from vllm.v1.attention.backends.mla.sparse_swa import DeepseekSparseSWAMetadata

from benchmarks._mixes import LENGTH, STEP_TOKENS, mix_lengths
from orchestrator.planning import (
    LAUNCH_ROWS,
    LAYER_TYPES,
    area_limit,
    fixed_chunks,
    plan_context_chunks,
    plan_prefill_array,
    plan_prefill_chunks,
    plan_prefill_tuples,
    planner_of,
    warm_up,
)

WINDOW = 128
#: DeepSeek-V4-Pro: C128A in the first two layers, then C4A and C128A in turn.
LAYERS = [128, 128, *[4, 128] * 29, 4]
CALL_BOUNDS = {16: 30, 64: 80, 256: 150}
STEP_BOUND, CONTEXT_BOUND = 1000, 10
_TURN_SECONDS = 0.03

Call = Callable[[], object]


@dataclass
class Pair:
    """Microseconds per call of the two sides, one entry a turn."""

    theirs: list[float]
    ours: list[float]

    @property
    def ratio(self) -> float:
        """Median over the turns of how many times faster ours is."""
        return float(np.median(np.array(self.theirs) / np.array(self.ours)))


def seconds_per_call(call: Call, calls: int) -> float:
    """Mean over ``calls`` calls."""
    started = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - started) / calls


def alternate(theirs: Call, ours: Call, turns: int) -> Pair:
    """Let the two sides take turns of equal time."""
    counts = []
    for call in (theirs, ours):
        call()
        counts.append(max(1, int(_TURN_SECONDS / seconds_per_call(call, 5))))
    pair = Pair([], [])
    for _ in range(turns):
        pair.theirs.append(1e6 * seconds_per_call(theirs, counts[0]))
        pair.ours.append(1e6 * seconds_per_call(ours, counts[1]))
    return pair


def row(name: str, pair: Pair, bound: float | None) -> str:
    """One line of the table."""
    cells = []
    for side in (pair.theirs, pair.ours):
        low, middle, high = np.percentile(side, [10, 50, 90])
        cells.append(f"{middle:>10.2f} ({low:.2f} to {high:.2f})".ljust(34))
    limit = "" if bound is None else f"at least {bound:g}"
    return f"{name:<44}{cells[0]}{cells[1]}{pair.ratio:>8.1f} x   {limit}"


def batch(count: int, seed: int = 0) -> tuple[Any, Any]:
    """Lengths of ``count`` prefills that share one step of ``STEP_TOKENS`` tokens."""
    rng = np.random.default_rng(seed)
    seq = rng.integers(512, 65_536, count).astype(np.int32)
    return seq, np.full(count, min(STEP_TOKENS // count, 512), np.int32)


def metadata_of(seq: Any, query: Any) -> Any:
    """Metadata of one step, as vLLM's builder makes it."""
    return DeepseekSparseSWAMetadata(
        block_table=torch.empty(0),
        slot_mapping=torch.empty(0),
        block_size=64,
        num_prefills=len(seq),
        prefill_seq_lens_cpu=torch.from_numpy(seq),
        prefill_query_lens_cpu=torch.from_numpy(query),
        prefill_window_size=WINDOW,
        prefill_max_model_len=LENGTH,
        prefill_max_num_batched_tokens=STEP_TOKENS,
    )


class Installed(DeepseekSparseSWAMetadata):  # type: ignore[misc]
    """vLLM's metadata with the planner that the plugin puts in."""

    def get_prefill_chunk_plan(
        self, compress_ratio: int, prefill_chunk_size: int, has_compressed: bool | None = None
    ) -> Any:
        """Plan for the first layer of a step; later layers call the step's planner itself."""
        planner = self.get_prefill_chunk_plan = planner_of(self)  # type: ignore[method-assign]
        return planner(compress_ratio, prefill_chunk_size, has_compressed)


class Empty:
    """Does nothing, to time the calls themselves."""

    def get_prefill_chunk_plan(self, compress_ratio: int, prefill_chunk_size: int) -> None:
        """Return at once."""


def step(metadata: Any) -> None:
    """Ask for a plan as the forward passes of all layers do."""
    for ratio in LAYERS:
        metadata.get_prefill_chunk_plan(compress_ratio=ratio, prefill_chunk_size=4)


def time_prefill(turns: int) -> dict[str, tuple[Pair, float | None]]:
    """One call for a C4A layer, in each form that we offer."""
    found: dict[str, tuple[Pair, float | None]] = {}
    layer: dict[str, Any] = {"compress_ratio": 4, "window": WINDOW}
    limit = area_limit(
        prefill_chunk_size=4, compress_ratio=4, max_model_len=LENGTH, window=WINDOW, max_num_batched_tokens=STEP_TOKENS
    )
    for count, bound in CALL_BOUNDS.items():
        seq, query = batch(count)
        lists = seq.tolist(), query.tolist()
        metadata = metadata_of(seq, query)
        theirs: Callable[[], Any] = lambda: metadata.get_prefill_chunk_plan(4, 4)  # noqa: B023, E731
        # Each of these runs before the loop goes on.
        forms: dict[str, tuple[Callable[[], Any], float | None]] = {
            "as vLLM's tuples": (lambda: plan_prefill_tuples(seq, query, 4, True, WINDOW, limit), bound),  # noqa: B023
            "as one array": (lambda: plan_prefill_array(seq, query, area_limit=limit, **layer), bound),  # noqa: B023
            "as a ChunkPlan": (lambda: plan_prefill_chunks(seq, query, area_limit=limit, **layer), None),  # noqa: B023
            "as a ChunkPlan, from lists": (lambda: plan_prefill_chunks(*lists, area_limit=limit, **layer), None),  # noqa: B023
        }
        for form, (ours, least) in forms.items():
            assert [list(chunk) for chunk in ours()] == [list(chunk) for chunk in theirs()]
            found[f"{count} prefills, {form}"] = (alternate(theirs, ours, turns), least)
    return found


def time_step(turns: int) -> dict[str, tuple[Pair, float | None]]:
    """All 61 layers of one engine step, through the metadata class, and without the 61 calls."""
    found: dict[str, tuple[Pair, float | None]] = {}
    for count in CALL_BOUNDS:
        metadata = metadata_of(*batch(count))
        fields = dict(vars(metadata))

        def ours() -> None:
            # Making the metadata is vLLM's own work, which this side does as well and the other does not.
            installed = Installed.__new__(Installed)
            installed.__dict__.update(fields)  # noqa: B023
            step(installed)

        found[f"61 layers, {count} prefills"] = (alternate(lambda: step(metadata), ours, turns), STEP_BOUND)  # noqa: B023
        planned = alternate(lambda: step(metadata), lambda: plan_both(metadata), turns)  # noqa: B023
        found[f"61 layers, {count} prefills, plans alone"] = (planned, None)
    return found


def plan_both(metadata: Any) -> None:
    """The plans of a step, one a layer type, without the calls of the layers."""
    planner = planner_of(metadata)
    planner(128, 4)
    planner(4, 4)


def time_context(turns: int) -> dict[str, tuple[Pair, float | None]]:
    """The context planner. vLLM takes a list and returns lists."""
    rng = np.random.default_rng(1)
    array = rng.integers(1, 8192, 256).astype(np.int32)
    listed = array.tolist()
    sizes: dict[str, Any] = {"workspace_rows": 65_536, "block_size": 64}

    def theirs() -> Any:
        return plan_mla_context_chunks(listed, 65_536, 65_536, 64, lambda rows: rows)

    forms: dict[str, Callable[[], Any]] = {
        "from an array": lambda: plan_context_chunks(array, **sizes),
        "from a list": lambda: plan_context_chunks(listed, **sizes),
        "from a list, every chunk made": lambda: list(plan_context_chunks(listed, **sizes)),
    }
    mine = [(c.request_start, c.request_end, c.starts, c.lengths) for c in plan_context_chunks(listed, **sizes)]
    assert mine == [(c.request_start, c.request_end, c.starts, c.seq_lens) for c in theirs()]
    bounds = {"from an array": CONTEXT_BOUND, "from a list": CONTEXT_BOUND}
    return {f"256 contexts, {form}": (alternate(theirs, ours, turns), bounds.get(form)) for form, ours in forms.items()}


def compare_orders() -> list[dict[str, Any]]:
    """Chunks and rows of each order over forty batches of each mix, for the two compressed layer types."""
    found = []
    for mix, batches in mix_lengths(40).items():
        for name in ("c4a", "c128a"):
            kind = LAYER_TYPES[name]
            layer: dict[str, Any] = {"compress_ratio": kind.compress_ratio, "window": WINDOW}
            sizes: dict[str, Any] = {**layer, "max_model_len": LENGTH, "max_num_batched_tokens": STEP_TOKENS}
            limit = area_limit(prefill_chunk_size=4, **sizes)
            line: dict[str, Any] = {"mix": mix, "layer": name}
            fixed = [fixed_chunks(len(seq), **sizes) for seq, _ in batches]
            line["fixed"] = {"chunks": sum(map(len, fixed)), "rows": sum(plan.area for plan in fixed)}
            for order in ("batch", "width", "optimal"):
                started = time.perf_counter()
                plans = [plan_prefill_chunks(*lens, area_limit=limit, order=order, **layer) for lens in batches]
                taken = 1e6 * (time.perf_counter() - started) / len(batches)
                line[order] = {
                    "chunks": sum(map(len, plans)),
                    "rows": sum(plan.area for plan in plans),
                    "cost": sum(plan.cost() for plan in plans),
                    "us": round(taken, 1),
                    "proven": sum(plan.exact for plan in plans),
                }
            found.append(line)
    return found


def first_call() -> dict[str, float]:
    """Seconds of the import and of the first plan in a new process, without and with code from an earlier one."""
    code = (
        "import time; a = time.perf_counter(); import orchestrator.planning as p; b = time.perf_counter();"
        "p.plan_prefill_chunks([5], [5], compress_ratio=4, window=4, area_limit=9); c = time.perf_counter();"
        "p.warm_up(); d = time.perf_counter(); print(b - a, c - b, d - c)"
    )
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for state in ("cold", "warm"):
            environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
            printed = subprocess.run(
                [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
            ).stdout.split()
            for part, value in zip(("import", "first plan", "the rest of warm_up"), printed, strict=True):
                found[f"{state}: {part}"] = float(value)
    return found


def main() -> None:
    """Run all comparisons and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=15, help="turns of each side")
    turns = parser.parse_args().turns
    warm_up()
    print(f"{'':<44}{'vLLM, us a call':<34}{'ours, us a call':<34}")
    figures: dict[str, Any] = {}
    bounds = []
    for name, (pair, bound) in {**time_prefill(turns), **time_step(turns), **time_context(turns)}.items():
        print(row(name, pair, bound))
        figures[name] = {
            "vllm_us": round(float(np.median(pair.theirs)), 3),
            "ours_us": round(float(np.median(pair.ours)), 3),
            "ratio": round(pair.ratio, 1),
        }
        if bound is not None:
            bounds.append({"name": name, "value": round(pair.ratio, 1), "bound": bound, "holds": pair.ratio >= bound})
    print(f"\nForty batches of each mix; cost = chunks * {LAUNCH_ROWS} + rows; rows are those that the chunks span")
    print(f"{'mix':<16}{'layer':<8}{'order':<10}{'chunks':>8}{'rows':>14}{'cost':>14}{'us a plan':>11}{'proven':>8}")
    orders = compare_orders()
    for line in orders:
        for order in ("fixed", "batch", "width", "optimal"):
            plan = line[order]
            rest = f"{plan['cost']:>14,}{plan['us']:>11}{plan['proven']:>8}" if "cost" in plan else ""
            print(f"{line['mix']:<16}{line['layer']:<8}{order:<10}{plan['chunks']:>8,}{plan['rows']:>14,}{rest}")
        worse = line["optimal"]["cost"] / line["batch"]["cost"]
        name = f"optimal over greedy cost, {line['mix']}, {line['layer']}"
        bounds.append({"name": name, "value": round(worse, 4), "bound": 1, "holds": worse <= 1})
    started = first_call()
    print("\n" + "; ".join(f"{part} {seconds:.2f} s" for part, seconds in started.items()))
    missed = [str(bound["name"]) for bound in bounds if not bound["holds"]]
    empty = 1e6 * seconds_per_call(lambda: step(Empty()), 2000)
    print(f"61 calls of an empty method take {empty:.2f} us: no planner behind vLLM's 61 calls can be faster than that")
    print(f"bounds missed: {', '.join(missed) if missed else 'none'}")
    figures |= {"61 empty calls, us": round(empty, 2), "orders": orders, "first_call_seconds": started}
    print(json.dumps({"benchmark": "planner", "figures": figures, "bounds": bounds}))


if __name__ == "__main__":
    main()
