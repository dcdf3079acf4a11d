"""Synthetic runs, valid in every column, with just the figures that a test is about."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from orchestrator.records import RunFolder, write_rows
from tests.records.rows import plain_row

BASELINE = {"mla_workspace_rows": 65536}
NOISE = (1.0, 1.02, 0.99, 1.01, 0.98, 1.0)
"""Factors of successive pairs: about 1.6 % of noise."""


class Run:
    """A run folder to fill: ``trial``, then ``confirm`` and ``answer`` for the finalists."""

    def __init__(
        self,
        path: Path,
        *,
        metric: str = "median_ttft_ms",
        direction: str = "minimize",
        tolerance: float = 0.05,
        points: int = 3,
        baseline: dict[str, Any] | None = None,
        plugin: dict[str, Any] | None = None,
        space: dict[str, Any] | None = None,
        objectives: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.folder = RunFolder.create(path)
        self.path = self.folder.path
        self.metric, self.direction = metric, direction
        spec: dict[str, Any] = {
            "study": "demo",
            "engine": {"plugin": {"mla_workspace_rows": None, "planner": "vllm", "cpu_chunked_prefill": True}},
            "space": {"mla_workspace_rows": {"scope": "live", "values": [128, 256, 512]}},
            "baseline": baseline or {},
            "confirm": {"points": points},
            "objective": {"metric": metric, "direction": direction},
            "accuracy": {"tolerance": tolerance},
        }
        spec["engine"]["plugin"] |= plugin or {}
        spec["space"] |= space or {}
        if objectives:
            spec["objectives"] = [{"metric": metric, "direction": way} for metric, way in objectives]
        self.folder.spec.write_text(yaml.safe_dump(spec))

    def trial(self, number: int, *, point: dict[str, Any] | None = None, **changes: Any) -> None:
        """Record a complete trial, with some columns changed."""
        row = plain_row(
            "trials",
            study="demo",
            trial=number,
            point=json.dumps(point or self.point(number)),
            metric=self.metric,
            direction=self.direction,
            ratio=0.5,
            workspace_rows=128 * (number + 1),
            workspace_bytes=128 * (number + 1) * 1152,
            workspace_alignment=16,
            builders=1,
            kv_blocks=4096,
            serve_args=["tiny model", "--additional-config", json.dumps({"chunksmith": self.point(number)})],
            env=json.dumps({"VLLM_PLUGINS": "chunksmith", "NOTE": "a b"}),
        )
        write_rows(self.path, "trials", f"trial-{number:05}", [row | changes])

    def confirm(
        self,
        number: int,
        ratio: float,
        *,
        pairs: int = 6,
        noise: Sequence[float] = NOISE,
        phase: str = "confirm",
        candidate: dict[str, Any] | None = None,
        baseline: dict[str, Any] | None = None,
    ) -> None:
        """Record a warm-up block and pairs of blocks; ``candidate`` and ``baseline`` change columns of that role."""
        blocks = [self._block(number, phase, 0, 0, "baseline", 9999.0) | {"dropped": True}]
        for pair in range(pairs):
            drift = 100.0 * 1.3**pair
            for role, value, changes in (
                ("baseline", drift, baseline),
                ("candidate", drift * ratio * noise[pair % len(noise)], candidate),
            ):
                blocks.append(self._block(number, phase, len(blocks), pair, role, value) | (changes or {}))
        write_rows(self.path, "blocks", f"{phase}-{number:05}", blocks)

    def _block(self, number: int, phase: str, block: int, pair: int, role: str, value: float) -> dict[str, Any]:
        point, rows = (BASELINE, 65536) if role == "baseline" else (self.point(number), 128 * (number + 1))
        return plain_row(
            "blocks",
            study="demo",
            trial=number,
            phase=phase,
            block=block,
            pair=pair,
            role=role,
            point=json.dumps(point),
            requests=4,
            workspace_rows=rows,
            workspace_bytes=rows * 1152,
            **{self.metric: value},
        )

    def answers(
        self,
        number: int,
        candidate: Sequence[Sequence[int]],
        baseline: Sequence[Sequence[int]] = ((1, 2, 3), (4, 5, 6)),
        gap: float = 1.0,
        **changes: Any,
    ) -> None:
        """Record the accuracy run: one list of tokens per request. ``changes`` are to the candidate's rows."""
        rows = []
        for role, outputs in (("baseline", baseline), ("candidate", candidate)):
            for request, tokens in enumerate(outputs):
                row = answer_row(number, request, role, tokens, gap)
                rows.append(row | (changes if role == "candidate" else {}))
        write_rows(self.path, "requests", f"accuracy-{number:05}", rows)

    def finalist(self, number: int, ratio: float, **confirm: Any) -> None:
        """A complete trial that was confirmed and gives the baseline's tokens."""
        self.trial(number)
        self.confirm(number, ratio, **confirm)
        self.answers(number, [[1, 2, 3], [4, 5, 6]])

    @staticmethod
    def point(number: int) -> dict[str, Any]:
        """The point of a trial."""
        return {"mla_workspace_rows": 128 * (number + 1)}


def answer_row(trial: int, request: int, role: str, tokens: Sequence[int], gap: float) -> dict[str, Any]:
    """One request of the accuracy run, with the same gap at each position."""
    return plain_row(
        "requests",
        study="demo",
        trial=trial,
        phase="accuracy",
        request=request,
        role=role,
        output_tokens=len(tokens),
        output_token_ids=list(tokens),
        top2_gaps=[gap] * len(tokens),
    )
