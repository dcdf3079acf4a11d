"""Which rows were measured in full."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.records import FULL_FIDELITY, RunFolder, read_arrow, write_rows
from orchestrator.records.schemas import FIDELITIES
from orchestrator.search import fidelity
from tests.records.rows import plain_row


@pytest.mark.parametrize("table", ["trials", "blocks"])
def test_rows_without_a_fidelity_are_full(tmp_path: Path, table: str) -> None:
    run = RunFolder.create(tmp_path / "run")
    kinds = [None, *FIDELITIES]
    write_rows(run.path, table, "x", [plain_row(table, trial=n, fidelity=kind) for n, kind in enumerate(kinds)])

    def found(where: object) -> list[str | None]:
        rows = read_arrow(run.path, table, where=where).to_pylist()  # type: ignore[arg-type]
        return [row["fidelity"] for row in sorted(rows, key=lambda row: int(row["trial"]))]

    assert found(FULL_FIDELITY) == [None, "full"]
    assert found(~FULL_FIDELITY) == list(FIDELITIES[:-1])


def test_the_ladder_has_the_same_rungs() -> None:
    assert fidelity.FIDELITIES == FIDELITIES
