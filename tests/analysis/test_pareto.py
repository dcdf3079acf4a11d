"""With several objectives there is a set of points, and no winner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.analysis import Answer, best
from orchestrator.records import write_rows
from tests.analysis.runs import NOISE, Run
from tests.analysis.test_best import printed

OBJECTIVES = (("median_ttft_ms", "minimize"), ("request_throughput", "maximize"))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run", objectives=OBJECTIVES, points=4)


def finalist(run: Run, number: int, ratios: tuple[float, float], **changes: Any) -> None:
    """A trial that was confirmed with these ratios in both objectives."""
    objectives = [
        {"metric": metric, "direction": way, "ratio": ratio, "ratio_low": 0.9 * ratio, "ratio_high": 1.1 * ratio}
        for (metric, way), ratio in zip(OBJECTIVES, ratios, strict=True)
    ]
    run.trial(number, ratio=ratios[0], objectives=objectives)
    blocks: list[dict[str, Any]] = []
    for pair, noise in enumerate(NOISE):
        for role in ("baseline", "candidate"):
            values = [100.0, 5.0] if role == "baseline" else [100.0 * ratios[0] * noise, 5.0 * ratios[1] / noise]
            block = run._block(number, "confirm", len(blocks), pair, role, values[0])
            blocks.append(block | {"request_throughput": values[1]} | (changes if role == "candidate" else {}))
    write_rows(run.path, "blocks", f"confirm-{number:05}", blocks)
    run.answers(number, [[1, 2, 3], [4, 5, 6]])


def front(answer: Answer) -> list[int]:
    return [one.trial for one in answer.finalists if one.obstacle is None]


def obstacle(answer: Answer, trial: int) -> str:
    return next(one.obstacle for one in answer.finalists if one.trial == trial) or ""


def test_points_that_trade_one_objective_for_the_other_are_all_named(run: Run) -> None:
    finalist(run, 0, (0.6, 1.1))
    finalist(run, 1, (0.8, 1.4))
    finalist(run, 2, (0.85, 1.2))
    answer = best(run.path)
    assert answer.decision == "pareto set"
    assert front(answer) == [0, 1]
    assert obstacle(answer, 2) == "trial 1 is as good in every objective and better in one"
    assert answer.reason == "of the trials 0, 1 none is as good as another in every objective and better in one"
    assert answer.trial is None
    first = answer.finalists[0]
    assert [one.metric for one in first.objectives] == ["median_ttft_ms", "request_throughput"]
    assert [one.ratio for one in first.objectives] == pytest.approx([0.6, 1.1], rel=0.01)
    assert all(one.ratio_low < one.ratio < one.ratio_high for one in first.objectives)
    # Six intervals hold at once with 95 %.
    assert answer.level == pytest.approx(1 - 0.05 / 6)
    with pytest.raises(ValueError, match="no winner"):
        answer.command()


def test_the_set_in_words_and_as_json(run: Run) -> None:
    finalist(run, 0, (0.6, 1.1))
    finalist(run, 1, (0.8, 1.4))
    answer = best(run.path)
    text = printed(answer)
    assert text.startswith("Several objectives: a Pareto set, and no winner\n")
    assert "  median_ttft_ms 0.60 (0.5" in text
    assert "; request_throughput 1.10 (1.0" in text
    assert text.count(": in the Pareto set\n") == 2
    assert "vllm serve" not in text
    data = json.loads(answer.to_json())
    assert data["decision"] == "pareto set"
    assert data["finalists"][1]["objectives"][1]["metric"] == "request_throughput"


@pytest.mark.parametrize("ratios", [(1.1, 0.9), (0.99, 1.01)])
def test_what_is_no_better_than_the_baseline_is_in_no_set(run: Run, ratios: tuple[float, float]) -> None:
    finalist(run, 0, ratios)
    answer = best(run.path)
    assert answer.decision == "no clear winner"
    says = "in no objective is it better than the baseline beyond doubt (99.0% intervals)"
    assert answer.reason == f"trial 0: {says}"
    assert obstacle(answer, 0) == says


def test_better_in_one_objective_and_worse_in_another_is_a_trade_off(run: Run) -> None:
    finalist(run, 0, (1.3, 1.5))
    assert front(best(run.path)) == [0]


def test_a_point_that_must_not_be_deployed_dominates_nothing(run: Run) -> None:
    finalist(run, 0, (0.5, 1.5))
    finalist(run, 1, (0.8, 1.2))
    run.answers(0, [[1, 2, 3], [4, 9, 6]])
    answer = best(run.path)
    assert front(answer) == [1]
    assert obstacle(answer, 0).startswith("accuracy guard failed")
    assert "trial 1 is the only confirmed point" in answer.reason


def test_a_block_without_one_of_the_metrics_rules_its_point_out(run: Run) -> None:
    finalist(run, 0, (0.5, 1.5), request_throughput=None)
    answer = best(run.path)
    assert obstacle(answer, 0).startswith("pair 0 has no usable request_throughput")


def test_finalists_are_chosen_by_all_objectives(run: Run) -> None:
    for number, ratios in enumerate([(0.9, 2.0), (0.5, 0.9), (0.6, 0.8), (0.7, 1.2), (0.95, 1.1), (0.8, 1.3)]):
        finalist(run, number, ratios)
    for number in (2, 4):
        write_rows(run.path, "blocks", f"confirm-{number:05}", [])
    assert {one.trial for one in best(run.path).finalists} == {0, 1, 3, 5}
