"""What the table of failures makes of logs whose class is known: ours, and public ones where they are at hand.

Ours are the provoked logs of ``tests/cluster/data``. Public ones are one JSON object a line with ``id``, ``source``,
``phase``, ``label``, ``alt_labels``, ``tier`` and ``log``; tier C is where the deciding line is outside the excerpt.

Three shares are given. As it stands: the whole table. Without the phase: what the log alone tells. Left out: for each
log all phrases are taken away that match in the logs of its own source and in those of no other, so that it is known by
what others taught, by the words of its message and by its frames. The table was written from the sources of vLLM, Ray,
torch and CUDA as well as from logs, so this last share is a lower bound of what it knows, and no estimate for new logs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks._report import Bound, report
from orchestrator.cluster.failure_log import FailureLog
from orchestrator.cluster.failure_table import RULES, Rule
from orchestrator.cluster.failures import classify

ROOT = Path(__file__).resolve().parents[1]
OURS = ROOT / "tests" / "cluster" / "data" / "provoked_failures.jsonl"
Record = dict[str, Any]


def main() -> int:
    """Print the figures, the confusion and the time, and check the bounds; the exit code says whether they hold."""
    parser = argparse.ArgumentParser(description="Accuracy of the classes of failures.")
    parser.add_argument("--public", type=Path, help="a file of public logs")
    parser.add_argument("--ours", type=Path, default=OURS)
    options = parser.parse_args()
    records = [_read(line, "ours") for line in options.ours.open()]
    if options.public:
        records += [_read(line, "public") for line in options.public.open()]
    visible = [record for record in records if record.get("tier") != "C"]
    found = [_label(record) for record in visible]
    right = _share(visible, found)
    healthy = [label for record, label in zip(visible, found, strict=True) if record["label"] == "none"]
    figures = {
        "logs": len(visible),
        "right": right,
        "right_without_phase": _share(visible, [_label(record, with_phase=False) for record in visible]),
        "right_left_out": _share(visible, _left_out(visible)),
        "unknown": found.count("unknown") / len(found),
        "healthy_called_failures": sum(label != "none" for label in healthy),
        "seconds_of_5000_lines": _seconds(records),
    }
    bounds = [
        Bound(name="right_left_out", value=figures["right_left_out"], bound=0.98, sense="at least"),
        Bound(name="unknown", value=figures["unknown"], bound=0.05),
        Bound(name="healthy_called_failures", value=figures["healthy_called_failures"], bound=0),
    ]
    tables = [_table("logs by class", _by_class(visible, found)), _table("wrong", _confusion(visible, found))]
    return report("failures", tables, figures, bounds, Console())


def _read(line: str, origin: str) -> Record:
    record: Record = json.loads(line)
    # Every provoked log is a source of its own.
    return {"origin": origin, "source": record.get("source", record["id"]), **record}


def _label(record: Record, *, with_phase: bool = True, rules: Sequence[Rule] = RULES) -> str:
    phase = record["phase"] if with_phase else None
    return classify(record["log"], phase=phase, exit_code=record.get("exit_code"), rules=rules).label


def _is_right(record: Record, label: str) -> bool:
    return label == record["label"] or label in record.get("alt_labels", ())


def _share(records: Sequence[Record], labels: Sequence[str]) -> float:
    return sum(map(_is_right, records, labels)) / len(records)


def _left_out(records: Sequence[Record]) -> list[str]:
    """The class of each log by the phrases that some other source supports, or that none does."""
    sources: dict[str, set[str]] = defaultdict(set)
    for record in records:
        log = FailureLog(record["log"])
        for phrase in {phrase for rule in RULES for phrase in rule.phrases}:
            if log.has(phrase):
                sources[phrase].add(record["source"])
    return [
        _label(
            record,
            rules=[
                replace(rule, phrases=tuple(p for p in rule.phrases if sources[p] != {record["source"]}))
                for rule in RULES
            ],
        )
        for record in records
    ]


def _table(title: str, rows: Sequence[Sequence[str]]) -> Table:
    table = Table(*rows[0], title=title)
    for row in rows[1:]:
        table.add_row(*row)
    return table


def _by_class(records: Sequence[Record], found: Sequence[str]) -> list[list[str]]:
    ours, public, right = Counter[str](), Counter[str](), Counter[str]()
    for record, label in zip(records, found, strict=True):
        (ours if record["origin"] == "ours" else public)[record["label"]] += 1
        right[record["label"]] += _is_right(record, label)
    total = ours + public
    return [["class", "ours", "public", "right", "wrong"]] + [
        [label, str(ours[label]), str(public[label]), str(right[label]), str(total[label] - right[label])]
        for label in sorted(total)
    ]


def _confusion(records: Sequence[Record], found: Sequence[str]) -> list[list[str]]:
    return [["log", "class", "called"]] + [
        [record["id"], record["label"], label]
        for record, label in zip(records, found, strict=True)
        if not _is_right(record, label)
    ]


def _seconds(records: Sequence[Record]) -> float:
    """The time for one log of 5,000 lines."""
    lines = [line for record in records for line in record["log"]]
    lines = (lines * (5000 // len(lines) + 1))[:5000]
    begin = time.perf_counter()
    classify(lines)
    return time.perf_counter() - begin


if __name__ == "__main__":
    sys.exit(main())
