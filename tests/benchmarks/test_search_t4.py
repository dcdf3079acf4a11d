from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import _search_results, search_t4
from benchmarks._landscapes import KINDS, hidden_rule, landscape
from benchmarks._search_results import Results, bounds_of, figures_of, interval, tables_of, within, worse
from benchmarks._searchers import SEARCHERS, LocalSearcher, Search, search
from benchmarks._t4 import TuningTable, read_tables
from orchestrator.search.portfolio.features import Points


def result(x: int, y: int, value: float | None) -> dict[str, Any]:
    return {
        "configuration": {"x": x, "y": y, "fixed": 15},
        "invalidity": "correct" if value is not None else "runtime",
        "measurements": [{"name": "energy", "value": 1.0}, {"name": "time", "value": value if value else "error"}],
        "objectives": ["time"],
    }


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals a little less exact, much sooner."""
    monkeypatch.setattr(_search_results, "_RESAMPLES", 200)


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


def test_searches_of_rivals_are_kept_and_ours_are_not(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[tuple[str, str]] = []

    def counted(table: TuningTable, condition: str, method: str, seed: int) -> Search:
        done.append((method, table.name))
        return search(table, condition, method, seed)

    monkeypatch.setattr(search_t4, "search", counted)
    monkeypatch.setitem(SEARCHERS, "portfolio", SEARCHERS["random"])  # What is kept does not depend on how it searches.
    keep = tmp_path / "kept"
    common = ["--folder", str(folder), "--conditions", "clean", "--seeds", "3", "--keep", str(keep)]
    search_t4.main([*common, "--methods", "random,portfolio"])
    assert len(done) == 4
    one, two = sorted(keep.iterdir())
    assert (one.name[:4], two.name[:4]) == ("one-", "two-")
    cut = one.read_text()[:-20]
    one.write_text(cut)
    search_t4.main([*common, "--methods", "random,portfolio"])
    assert done[4:] == [("random", "one"), ("portfolio", "one"), ("portfolio", "two")]
    assert [json.loads(line)["seed"] for line in one.read_text().splitlines()] == [3]
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(figures["figures"]["clean"]) == {"random", "portfolio"}
    assert figures["figures"]["clean"]["random"]["seeds"] == 1


def test_another_table_of_the_same_name_is_searched_anew(folder: Path) -> None:
    table = read_tables(folder)[0]
    other = dataclasses.replace(table, times=table.times * 2.0)
    assert search_t4._digest(table) == search_t4._digest(read_tables(folder)[0]) != search_t4._digest(other)


def searched(method: str, table: str, seed: int, gap: float) -> Search:
    gaps: list[float | None] = [None, *([1.0] * 50), *([gap] * 49)]
    return Search(table, "clean", method, seed, gaps, "1" + "0" * 99)


def test_bounds_are_those_of_the_searches() -> None:
    searches = [searched("portfolio", t, s, 0.02 + 0.001 * s) for t in ("a", "b") for s in range(10)]
    searches += [searched("tpe", t, s, 0.30) for t in ("a", "b") for s in range(10)]
    searches += [searched("ils", t, s, 0.01 if t == "b" else 0.5) for t in ("a", "b") for s in range(10)]
    results = Results(searches, ["a", "b"], ["portfolio", "tpe", "ils"])
    bounds = {bound.name: bound for bound in bounds_of(results)}
    assert bounds["clean: mean of median gaps at 80"].value == pytest.approx(0.0245)
    assert bounds["clean: share within 5 % at 80"].value == 1.0
    assert bounds["a: P(worse than tpe at 80), lower limit"].holds
    assert not bounds["b: P(worse than ils at 80), lower limit"].holds
    assert bounds["a: evaluations to TPE's median at 100"].value == 52
    assert len(tables_of(results)) == 3
    assert figures_of(results)["clean"]["tpe"]["within"] == [0.0] * 5


def test_the_probability_of_being_worse() -> None:
    rng = np.random.default_rng(0)
    ours, rival = rng.integers(0, 6, 30).astype(float), rng.integers(2, 8, 20).astype(float)
    pairs = ours[:, None] - rival
    assert worse(ours, rival) == pytest.approx(((pairs > 0) + 0.5 * (pairs == 0)).mean())


def test_the_interval_of_a_figure_holds_it_in_most_studies() -> None:
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(20):
        low, high = interval(within, [rng.choice([0.0, 1.0], 60, p=[0.6, 0.4]) for _ in range(2)])
        held += low <= 0.6 <= high
    assert held >= 16


def test_made_up_tables_are_hard_and_the_same_every_time() -> None:
    for kind in KINDS:
        points, times = landscape(kind, 1)
        assert 1 <= (times <= 1.05 * times.min()).sum() <= 12
        assert (landscape(kind, 1)[1] == times).all()
        failed = hidden_rule(points, 0.3, np.random.default_rng(0))
        assert failed.mean() == pytest.approx(0.3, abs=0.06)
