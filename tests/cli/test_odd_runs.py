"""Every command that answers from records, on runs that have little to say: one sensible line, never a traceback."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from orchestrator.cli import main
from orchestrator.records import SCHEMAS
from tests.analysis.runs import Run


def no_feasible_trial(run: Run) -> None:
    for number in range(3):
        run.trial(number, outcome="infeasible", failure="slo", failure_detail="too slow", ratio=None)


def one_trial(run: Run) -> None:
    run.finalist(0, 0.66)


def all_failed(run: Run) -> None:
    for number in range(3):
        run.trial(number, outcome="failed", failure="cuda-oom", failure_detail="out of memory", ratio=None)


def mixed_versions(run: Run) -> None:
    """Rows of the present version beside those of the first."""
    for number in range(4):
        run.finalist(number, 0.6 + 0.1 * number)
        run.trial(number, ratio=0.6 + 0.1 * number)
    for table in SCHEMAS:
        path = run.folder.table(table) / "merged-00000.parquet"
        data = pq.read_table(path)
        numbers = pc.add(data["trial"], pa.scalar(4, pa.int32()))
        moved = data.set_column(2, data.schema.field(2), numbers)
        old = moved.set_column(0, data.schema.field(0), pa.array([1] * data.num_rows, pa.int32()))
        since = {"trials": ["pairing", "fidelity", "objectives"], "blocks": ["fidelity", "outcome", "load"]}
        pq.write_table(old.drop_columns(since.get(table, [])), run.folder.table(table) / "old.parquet")


def unknown_version(run: Run) -> None:
    one_trial(run)
    path = run.folder.table("trials") / "merged-00000.parquet"
    data = pq.read_table(path)
    pq.write_table(data.set_column(0, data.schema.field(0), pa.array([99], pa.int32())), path)


def without(table: str) -> Callable[[Run], None]:
    def made(run: Run) -> None:
        mixed_versions(run)
        shutil.rmtree(run.folder.table(table))

    made.__name__ = f"without_{table}"
    return made


def damaged(run: Run) -> None:
    one_trial(run)
    (run.folder.table("blocks") / "merged-00000.parquet").write_bytes(b"PAR1 and nothing else")


RUNS = [no_feasible_trial, one_trial, all_failed, mixed_versions, unknown_version, *map(without, SCHEMAS), damaged]

COMMANDS = ["best", "knee", "sensitivity", "why", "compare", "frontier", "watch", "report", "export", "dashboard"]

SAYS = {
    ("best", "no_feasible_trial"): "none of the 3 trials is complete",
    ("best", "all_failed"): "none of the 3 trials is complete",
    ("best", "one_trial"): "Winner: trial 0",
    ("best", "mixed_versions"): "Winner: trial 0",
    ("watch", "all_failed"): "cuda-oom: out of memory",
    ("watch", "one_trial"): "Winner: trial 0",
    ("knee", "one_trial"): "knee",
    ("knee", "all_failed"): "no complete trial; this needs at least 1",
    ("sensitivity", "one_trial"): "1 complete trials; this needs at least 4",
    ("sensitivity", "no_feasible_trial"): "no complete trial; this needs at least 4",
    ("why", "one_trial"): "trial 0: mla_workspace_rows=128",
    ("why", "all_failed"): "none of the 3 trials is complete; name a trial",
    ("compare", "all_failed"): "no measured point in common",
    ("compare", "one_trial"): "no change shown",
    ("frontier", "one_trial"): "no block has a time per output token",
    ("export", "no_feasible_trial"): "none of the 3 trials is complete",
}
"""What must be said at least; elsewhere any one line will do."""


@pytest.mark.parametrize("state", RUNS, ids=lambda state: state.__name__)
@pytest.mark.parametrize("command", COMMANDS)
def test_one_sensible_line(
    command: str, state: Callable[[Run], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path / "run")
    state(run)
    words = [command, str(run.path)]
    words += {"compare": [str(run.path)], "watch": ["--once"], "report": ["-o", str(tmp_path / "r.html")]}.get(
        command, []
    )
    code = main(words)
    captured = capsys.readouterr()
    assert code in (0, 1, 2)
    if code:
        assert captured.err.startswith("chunksmith: error: ")
        assert captured.err.count("\n") == 1
        assert len(captured.err) < 600
    else:
        assert captured.out.strip()
        assert captured.err == "" or command == "export"
    assert SAYS.get((command, state.__name__), "") in captured.out + captured.err
    broken = {"unknown_version": "rows of schema version 99", "without_trials": "the table 'trials' is missing"}
    if state.__name__ in broken and command not in ("compare", "frontier", "dashboard"):
        assert broken[state.__name__] in captured.err


@pytest.mark.parametrize("state", RUNS, ids=lambda state: state.__name__)
@pytest.mark.parametrize("command", ["check", "check --repair", "compact", "export", "merge"])
def test_records_say_what_is_wrong(
    command: str, state: Callable[[Run], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path / "run")
    state(run)
    target = str(tmp_path / "new")
    words = {"export": ["-o", target], "merge": ["--into", target]}.get(command, [])
    code = main(["records", *command.split(), str(run.path), *words])
    captured = capsys.readouterr()
    assert code in (0, 1)
    assert captured.err.count("\n") == code
    if state.__name__.startswith("without"):
        assert code == (0 if command == "check --repair" else 1)
        assert "missing" in captured.out + captured.err
    if state is damaged:
        assert code == (0 if command == "check --repair" else 1)
        assert "merged-00000.parquet" in (captured.out + captured.err).replace("\n", "")
