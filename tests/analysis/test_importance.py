from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.analysis import best
from orchestrator.analysis.importance import FEWEST, knob_importance
from tests.analysis.runs import Run
from tests.analysis.test_best import printed

Points = list[dict[str, Any]]


def study(trials: int, seed: int = 0) -> tuple[Points, Sequence[Sequence[float]]]:
    """``rows`` decides, ``backend`` a little, ``seqs`` nothing."""
    rng = random.Random(seed)
    points = [
        {"rows": 2 ** rng.randrange(5, 12), "backend": rng.choice(["a", None, True]), "seqs": rng.choice([1, 2, 4])}
        for _ in range(trials)
    ]
    return points, [[abs(point["rows"] - 256) / 100 + 0.3 * (point["backend"] == "a")] for point in points]


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_what_decides_comes_first(direction: str) -> None:
    points, ratios = study(60)
    sign = 1.0 if direction == "minimize" else -1.0
    found = knob_importance(points, [[sign * one for one in ratio] for ratio in ratios], [direction])
    assert found is not None
    assert next(iter(found)) == "rows"
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert sum(found.values()) == pytest.approx(1.0)
    assert found["rows"] > 0.5 > 0.2 > found["seqs"]


def test_several_objectives_are_taken_together() -> None:
    points, ratios = study(60)
    found = knob_importance(points, [[one[0], one[0] + 1.0] for one in ratios], ["minimize", "minimize"])
    assert found is not None
    assert next(iter(found)) == "rows"


def test_few_trials_and_knobs_that_never_vary_tell_nothing() -> None:
    points, ratios = study(FEWEST - 1)
    assert knob_importance(points, ratios, ["minimize"]) is None
    assert knob_importance([], [], ["minimize"]) is None
    assert knob_importance([{"rows": 1}] * 20, [[1.0]] * 20, ["minimize"]) is None
    found = knob_importance([{**point, "fixed": 7} for point in study(20)[0]], study(20)[1], ["minimize"])
    assert found is not None
    assert set(found) == {"rows", "backend", "seqs"}


def test_without_optuna_there_is_an_answer_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path / "run")
    points, ratios = study(20)
    for number, (point, ratio) in enumerate(zip(points, ratios, strict=True)):
        run.trial(number, point=point, ratio=ratio[0])
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "optuna", None)
        assert best(run.path).importance is None
    answer = best(run.path)
    assert answer.importance is not None
    assert printed(answer).splitlines()[-1].startswith("What set the best trials apart (PED-ANOVA): rows ")
