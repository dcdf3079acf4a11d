from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import search_t4
from benchmarks._landscapes import KINDS, hidden_rule, landscape
from benchmarks._searchers import SEARCHERS, LocalSearcher
from benchmarks._t4 import read_tables
from orchestrator.search.portfolio.features import Points


def result(x: int, y: int, value: float | None) -> dict[str, Any]:
    return {
        "configuration": {"x": x, "y": y, "fixed": 15},
        "invalidity": "correct" if value is not None else "runtime",
        "measurements": [{"name": "energy", "value": 1.0}, {"name": "time", "value": value if value else "error"}],
        "objectives": ["time"],
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two tables of 100 rows, a tenth of which fail."""
    for name in ("one", "two"):
        rows = [
            result(x, y, None if (x, y) > (9, 0) else 1.0 + (x - 3) ** 2 + abs(y - 6))
            for x in range(1, 11)
            for y in range(10)
        ]
        (tmp_path / f"{name}.json.gz").write_bytes(gzip.compress(json.dumps({"results": rows}).encode()))
    (tmp_path / "LICENSE").write_text("none")
    return tmp_path


def test_tables_are_read_without_knobs_that_never_change(folder: Path) -> None:
    tables = read_tables(folder)
    assert [table.name for table in tables] == ["one", "two"]
    assert tables[0].points[36] == {"x": 4, "y": 6}
    assert tables[0].best == 1.0
    assert np.isinf(tables[0].times).sum() == 19
    with pytest.raises(SystemExit, match="holds no tuning table"):
        read_tables(folder / "LICENSE")


@pytest.mark.parametrize("method", sorted(set(SEARCHERS) - {"gp"}))
def test_every_method_proposes_each_row_once(folder: Path, method: str) -> None:
    table = read_tables(folder)[0]
    searcher = SEARCHERS[method](Points.of(table.points), 0)
    rows = []
    for _ in range(40):
        rows.append(searcher.ask())
        value = float(table.times[rows[-1]])
        searcher.tell(rows[-1], value if np.isfinite(value) else None)
    assert len(set(rows)) == 40


def test_local_search_moves_to_what_is_better_only() -> None:
    points = Points.of([{"x": x, "y": y} for x in range(8) for y in range(8)])
    searcher = LocalSearcher(points, 0)
    for _ in range(5):
        searcher.tell(searcher.ask(), 10.0)
    first = searcher.ask()
    centre = searcher._centre
    searcher.tell(first, 11.0)
    assert searcher._centre == centre
    second = searcher.ask()
    assert (points.codes[second] != points.codes[centre]).sum() == 1
    searcher.tell(second, 9.0)
    assert searcher._centre == second


def test_a_run_is_kept_gone_on_with_and_reported(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(search_t4, "FAILING", 0.3)
    kept = tmp_path / "kept.jsonl"
    common = ["--tables", str(folder), "--conditions", "clean", "--results", str(kept)]
    search_t4.main([*common, "--methods", "random", "--seeds", "0-1"])
    kept.write_text(kept.read_text() + '{"table": "one", "cond')
    assert len(search_t4.read_results(kept)) == 4
    kept.write_text("".join(line + "\n" for line in kept.read_text().split("\n")[:-1]))
    search_t4.main([*common, "--methods", "random,ils", "--seeds", "0-1"])
    kept_rows = [json.loads(line) for line in kept.read_text().splitlines()]
    assert len(kept_rows) == 8
    assert len({(row["table"], row["method"], row["seed"]) for row in kept_rows}) == 8
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(figures["figures"]["clean"]) == {"random", "ils"}
    assert figures["bounds"] == []


def searched(method: str, table: str, seed: int, gap: float) -> search_t4.Search:
    gaps: list[float | None] = [None, *([1.0] * 50), *([gap] * 49)]
    return search_t4.Search(table, "clean", method, seed, gaps, "1" + "0" * 99)


def test_bounds_are_those_of_the_searches() -> None:
    searches = [searched("portfolio", t, s, 0.02) for t in ("a", "b") for s in range(10)]
    searches += [searched("tpe", t, s, 0.30) for t in ("a", "b") for s in range(10)]
    searches += [searched("ils", t, s, 0.01 if t == "b" else 0.5) for t in ("a", "b") for s in range(10)]
    bounds = {bound.name: bound for bound in search_t4.bounds_of(search_t4.Results(searches, ["a", "b"]))}
    assert bounds["clean: mean of median gaps at 80"].value == pytest.approx(0.02)
    assert bounds["clean: share within 5 % at 80"].value == 1.0
    assert bounds["a: p of worse than tpe at 80"].holds
    assert not bounds["b: p of worse than ils at 80"].holds
    assert bounds["a: evaluations to TPE's median at 100"].value == 52


def test_made_up_tables_are_hard_and_the_same_every_time() -> None:
    for kind in KINDS:
        points, times = landscape(kind, 1)
        assert 1 <= (times <= 1.05 * times.min()).sum() <= 12
        assert (landscape(kind, 1)[1] == times).all()
        failed = hidden_rule(points, 0.3, np.random.default_rng(0))
        assert failed.mean() == pytest.approx(0.3, abs=0.06)
