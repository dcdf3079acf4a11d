from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from benchmarks._report import Bound, report


@pytest.mark.parametrize(
    ("value", "sense", "holds"),
    [(0.1, "at most", True), (0.11, "at most", False), (0.1, "at least", True), (0.09, "at least", False)],
)
def test_a_bound_holds_up_to_and_including_its_limit(value: float, sense: str, holds: bool) -> None:
    assert Bound(name="ratio", value=value, bound=0.1, sense=sense).holds is holds  # type: ignore[arg-type]


def test_the_last_line_is_json_and_the_exit_code_says_whether_every_bound_holds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    good, bad = Bound(name="a", value=1.0, bound=2.0), Bound(name="b", value=3.0, bound=2.0)
    console = Console(file=io.StringIO())
    assert report("x", [], {"s": 1.5}, [good], console) == 0
    assert report("x", [], {"s": 1.5}, [good, bad], console) == 1
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert line["benchmark"] == "x"
    assert line["figures"] == {"s": 1.5}
    assert [(row["name"], row["value"], row["bound"], row["holds"]) for row in line["bounds"]] == [
        ("a", 1.0, 2.0, True),
        ("b", 3.0, 2.0, False),
    ]
