"""What is new in a run since the last look."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from orchestrator.errors import UserError
from orchestrator.records import FULL_FIDELITY, RunFolder, parse_object, read_table

_COLUMNS = (
    *("trial", "point", "outcome", "failure", "failure_detail", "ratio", "ratio_low", "ratio_high", "pairs"),
    *("metric", "direction", "finished_at"),
)


@dataclass(frozen=True)
class TrialNews:
    """A trial that has ended, or has another outcome than at the last look.

    Attributes:
        number: Of the trial.
        point: One value per knob.
        outcome: How it ended.
        failure: Class and detail; None where there is none.
        ratio: To the baseline; None without one. ``low`` and ``high`` are the ends of its interval.
        pairs: Pairs behind it.
        is_best: Whether no trial before it was better.
        done: Trials that have ended, this one included.
    """

    number: int
    point: dict[str, Any]
    outcome: str
    failure: str | None
    ratio: float | None
    low: float | None
    high: float | None
    pairs: int
    is_best: bool
    done: int


@dataclass
class Watch:
    """Follows a run, which another process may be writing.

    Args:
        path: Folder of the run.

    Raises:
        UserError: Not a run folder.
    """

    path: Path
    trials: int | None = None
    _seen: dict[int, str] = field(default_factory=dict)
    _best: float | None = None
    _version: int = -1

    def __post_init__(self) -> None:
        self.run = RunFolder.open(self.path)
        try:
            spec = yaml.safe_load(self.run.spec.read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError) as error:
            raise UserError(f"{self.run.spec}: cannot read: {error}") from error
        trials = spec.get("trials") if isinstance(spec, dict) else None
        self.trials = trials if isinstance(trials, int) else None

    @property
    def done(self) -> int:
        """Trials that have ended, as far as was looked."""
        return len(self._seen)

    @property
    def is_running(self) -> bool:
        """Whether a sweep still holds the run."""
        return self.run.is_in_use()

    def news(self) -> Iterator[TrialNews]:
        """Trials since the last call, as they ended."""
        folder = self.run.table("trials")
        version = folder.stat().st_mtime_ns if folder.is_dir() else 0
        if version == self._version:
            return
        rows = read_table(self.run.path, "trials", where=FULL_FIDELITY, columns=_COLUMNS).sort_values("finished_at")
        for row in rows.astype(object).where(rows.notna(), None).to_dict("records"):
            number = int(row["trial"])
            if self._seen.get(number) == row["outcome"]:
                continue
            self._seen[number] = row["outcome"]
            yield self._news(number, row)
        self._version = version

    def _news(self, number: int, row: dict[Any, Any]) -> TrialNews:
        ratio, minimize = row["ratio"], row["direction"] == "minimize"
        is_best = row["outcome"] == "complete" and ratio is not None
        if is_best and self._best is not None:
            is_best = ratio < self._best if minimize else ratio > self._best
        if is_best:
            self._best = ratio
        return TrialNews(
            number=number,
            point=parse_object(row["point"], where=f"{self.run.path}: trial {number}: point"),
            outcome=row["outcome"],
            failure=None if row["failure"] is None else f"{row['failure']}: {row['failure_detail']}",
            ratio=ratio,
            low=row["ratio_low"],
            high=row["ratio_high"],
            pairs=int(row["pairs"]),
            is_best=is_best,
            done=self.done,
        )
