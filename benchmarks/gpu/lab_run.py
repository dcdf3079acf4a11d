"""One run of the lab on a device, section by section, each with its Parquet file."""

from __future__ import annotations

import importlib.util
import json
import platform
import random
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from benchmarks._lab_chunk_race import Plan, race
from benchmarks._lab_roofs import GPU_SIZES, QUICK_SIZES, all_cases, measure
from benchmarks._report import Bound, json_line
from benchmarks.gpu.checks import checks
from benchmarks.gpu.sweeps import GPU_CAPS, GPU_DCP, QUICK_CAPS, QUICK_DCP, one_rank, workspace_caps
from orchestrator.engines.kernel_lab.kernels import kernels_for
from orchestrator.engines.kernel_lab.machine import device_named
from orchestrator.errors import ChunksmithError
from orchestrator.planning import warm_up

Row = dict[str, Any]

KINDS = ("c4a", "c128a")
FULL_RACE = Plan(batches=6, searched=2, turns=2, shrink=1)
QUICK_RACE = Plan(batches=2, searched=1, turns=1, shrink=32)
DCP_NOTE = (
    "Decode context parallelism over several GPUs is not in this run: NCCL takes one rank a GPU, and there is one. "
    "The section dcp times what one rank does, with copies in place of the transfer. That ranks agree is in the tests, "
    "over gloo."
)


class LabRun:
    """Runs the sections in the order of their worth, until the time is over.

    Args:
        end: On the clock of ``time.perf_counter``; nothing new begins after it.

    Raises:
        LabError: ``lab-shape``: there is no such device.
    """

    def __init__(self, device: str, out: Path, *, is_quick: bool, end: float) -> None:
        self._device = device_named(device)
        self._out, self._is_quick, self._end = out, is_quick, end
        self._dtype = torch.bfloat16
        self._kernels = kernels_for(self._device)
        self._skipped: list[str] = []
        self._failed: dict[str, str] = {}
        out.mkdir(parents=True, exist_ok=True)

    def all_sections(self) -> int:
        """Run all sections, write the summary and print one line of JSON; return 1 if a check failed, else 0."""
        warm_up()
        found = {
            "checks": self._section("checks", self._checks),
            "roofs": self._section("roofs", self._roofs),
            "area": self._section("area", self._area),
            "workspace": self._section("workspace", self._workspace),
            "dcp": self._section("dcp", self._dcp),
        }
        bounds = [
            Bound(name=f"{row['name']}, {row['dtype']}: largest error", value=row["error"], bound=row["limit"])
            for row in found["checks"]
        ]
        bounds += [
            Bound(name=f"{row['name']}: part of its roof", value=row["part"], bound=row["bound"], sense="at least")
            for row in found["roofs"]
            if row["bound"] is not None
        ]
        machine = self._machine()
        (self._out / "summary.md").write_text(self._summary(machine, found, bounds), encoding="utf-8")
        figures = {
            "machine": machine,
            "skipped": self._skipped,
            "failed": self._failed,
            **{name: len(rows) for name, rows in found.items()},
        }
        print(json_line("lab_gpu", figures, bounds), flush=True)
        is_good = found["checks"] and all(row["holds"] for row in found["checks"]) and not self._failed
        return 0 if is_good else 1

    def _section(self, name: str, rows: Callable[[], Iterator[Row]]) -> list[Row]:
        begin = time.perf_counter()
        if self._is_over():
            self._skipped.append(name)
            return []
        found: list[Row] = []
        try:
            self._take(name, rows(), found)
        except _expected_errors() as error:
            # A GPU is rarely at hand: the other sections are still run.
            self._failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            traceback.print_exc()
        if found:
            pq.write_table(pa.Table.from_pylist(found), self._out / f"{name}.parquet")
        print(f"{name}: {len(found)} rows in {time.perf_counter() - begin:.1f} s", flush=True)
        return found

    def _take(self, name: str, rows: Iterator[Row], found: list[Row]) -> None:
        for row in rows:
            found.append(row)
            if self._is_over():
                self._skipped.append(f"the end of {name}")
                return

    def _checks(self) -> Iterator[Row]:
        batches, shrink = (2, 64) if self._is_quick else (25, 4)
        for check in checks(self._device, batches, shrink=shrink):
            yield check.row()

    def _roofs(self) -> Iterator[Row]:
        sizes, turns = (QUICK_SIZES, 2) if self._is_quick else (GPU_SIZES, 5)
        for reached in measure(all_cases(self._device, self._dtype, self._kernels, sizes), turns, random.Random(0)):
            yield reached.row()

    def _area(self) -> Iterator[Row]:
        plan = QUICK_RACE if self._is_quick else FULL_RACE
        for outcome in race(KINDS, plan, self._device, self._dtype, seed=2):
            yield from (outcome.row(way) for way in outcome.lanes)

    def _workspace(self) -> Iterator[Row]:
        plan = QUICK_CAPS if self._is_quick else GPU_CAPS
        for kind in ("dense", "sparse"):
            yield from workspace_caps(kind, plan, self._device, self._dtype, self._is_over)

    def _dcp(self) -> Iterator[Row]:
        plan = QUICK_DCP if self._is_quick else GPU_DCP
        yield from one_rank(plan, self._device, self._dtype, self._kernels, self._is_over)

    def _is_over(self) -> bool:
        return time.perf_counter() > self._end

    def _machine(self) -> Row:
        name = torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else platform.processor()
        return {
            "device": str(self._device),
            "name": name or platform.machine(),
            "kernels": self._kernels.name,
            "torch": torch.__version__,
            "quick": self._is_quick,
        }

    def _summary(self, machine: Row, found: dict[str, list[Row]], bounds: Sequence[Bound]) -> str:
        lines = ["# The kernel lab on one device", "", f"`{json.dumps(machine)}`", ""]
        if self._is_quick:
            lines += ["A quick run: its times say nothing.", ""]
        missed = [bound for bound in bounds if not bound.holds]
        lines.append(
            f"{len(bounds) - len(missed)} of {len(bounds)} bounds hold. Missed:" if missed else "All bounds hold."
        )
        lines += [f"- {one.name}: {one.value:.4g}, {one.sense} {one.bound:g}" for one in missed]
        lines += ["", f"Left out for lack of time: {', '.join(self._skipped) or 'nothing'}. {DCP_NOTE}"]
        lines += ["", *(f"- {name} broke off: {text}" for name, text in self._failed.items())]
        for name, rows in found.items():
            lines += ["", f"## {name}", ""]
            if rows:
                columns = list(rows[0])
                lines += [_line(columns), _line(["---"] * len(columns))]
                lines += [_line([_text(row[column]) for column in columns]) for row in rows]
        return "\n".join(lines) + "\n"


def _expected_errors() -> tuple[type[Exception], ...]:
    """What the lab, torch and Triton raise when something does not work on a device."""
    found: tuple[type[Exception], ...] = (ChunksmithError, RuntimeError, ValueError, AssertionError)
    if importlib.util.find_spec("triton") is not None:
        from triton.errors import TritonError  # type: ignore[import-untyped]

        found = (*found, TritonError)
    return found


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
