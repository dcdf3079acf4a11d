from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.vllm_plugin import scheduler
from orchestrator.vllm_plugin.protocol import SCHEDULER_KNOBS
from orchestrator.vllm_plugin.state import SCHEDULER, PluginState, SchedulerState

START = {"max_num_batched_tokens": 1024, "max_num_seqs": 8, "long_prefill_token_threshold": 200}


def fresh(max_num_active_seqs: int | None = None) -> Any:
    """The fields of vLLM's scheduler that its ``schedule`` reads."""
    return SimpleNamespace(
        max_num_scheduled_tokens=START["max_num_batched_tokens"],
        max_num_running_reqs=START["max_num_seqs"],
        max_num_active_reqs=START["max_num_seqs"] if max_num_active_seqs is None else max_num_active_seqs,
        scheduler_config=SimpleNamespace(
            long_prefill_token_threshold=START["long_prefill_token_threshold"], max_num_active_seqs=max_num_active_seqs
        ),
    )


def in_force(one: Any) -> dict[str, int]:
    report = scheduler.report(one)
    return {
        "max_num_batched_tokens": report["max_num_batched_tokens"],
        "max_num_seqs": report["max_num_seqs"],
        "long_prefill_token_threshold": report["long_prefill_token_threshold"],
    }


allowed = st.fixed_dictionaries(
    {},
    optional={
        "max_num_batched_tokens": st.none() | st.integers(1, 1024),
        "max_num_seqs": st.none() | st.integers(1, 8),
        "long_prefill_token_threshold": st.none() | st.integers(0, 10_000),
    },
)


@given(st.lists(allowed, min_size=1, max_size=5))
def test_the_last_values_are_in_force_and_the_others_are_those_of_the_start(
    values: list[dict[str, int | None]],
) -> None:
    one = fresh()
    for each in values:
        scheduler.retune(one, each)
        given_values = {knob: value for knob, value in each.items() if value is not None}
        assert in_force(one) == {**START, **given_values}
    scheduler.retune(one, {})
    assert in_force(one) == START


@pytest.mark.parametrize(
    ("values", "knob"),
    [
        ({"max_num_batched_tokens": 1025}, "max_num_batched_tokens must lie between 1 and 1024"),
        ({"max_num_batched_tokens": 0}, "max_num_batched_tokens must lie"),
        ({"max_num_seqs": 9}, "max_num_seqs must lie between 1 and 8"),
        ({"max_num_seqs": 0}, "max_num_seqs must lie"),
        ({"long_prefill_token_threshold": -1}, "long_prefill_token_threshold must not be negative"),
        ({"max_num_batch_tokens": 4}, "unknown scheduler knob 'max_num_batch_tokens'"),
        ({"max_num_batched_tokens": 16, "max_num_seqs": 9}, "max_num_seqs"),
        ({"max_num_batched_tokens": 16, "mla_workspace_rows": 9}, "mla_workspace_rows"),
    ],
)
def test_a_wrong_value_is_refused_and_changes_nothing(values: dict[str, int | None], knob: str) -> None:
    one = fresh()
    scheduler.retune(one, {"max_num_batched_tokens": 512})
    with pytest.raises(ValueError, match=knob):
        scheduler.retune(one, values)
    assert in_force(one) == {**START, "max_num_batched_tokens": 512}


@pytest.mark.parametrize(("configured", "live", "active"), [(None, 3, 3), (2, 3, 2), (5, 3, 3), (5, None, 5)])
def test_active_requests_follow_the_running_ones_below_their_own_bound(
    configured: int | None, live: int | None, active: int
) -> None:
    one = fresh(configured)
    scheduler.retune(one, {"max_num_seqs": live})
    assert one.max_num_active_reqs == active


def test_a_vllm_without_active_requests_gets_none() -> None:
    one = fresh()
    del one.max_num_active_reqs
    scheduler.retune(one, {"max_num_seqs": 2})
    assert not hasattr(one, "max_num_active_reqs")


def test_the_knobs_are_those_of_the_protocol() -> None:
    assert set(in_force(fresh())) == set(SCHEDULER_KNOBS)


def test_steps_are_counted_through_vllms_own_classes(
    vllm_originals: pytest.MonkeyPatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps that schedule nothing are none; maxima start again with each report, the number of steps does not."""
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.engine.core import EngineCore

    granted = iter([{"a": 200, "b": 100}, {}, {"a": 500}, {"b": 100}])

    def schedule(self: Any, throttle_prefills: bool = False) -> Any:
        tokens = next(granted)
        return SimpleNamespace(total_num_scheduled_tokens=sum(tokens.values()), num_scheduled_tokens=tokens)

    monkeypatch.setattr(Scheduler, "schedule", schedule)
    for field, value in vars(SchedulerState()).items():
        monkeypatch.setattr(SCHEDULER, field, value)
    monkeypatch.setattr(scheduler, "PLUGIN", PluginState(refused=None))
    scheduler.install()

    core = SimpleNamespace(scheduler=fresh())
    core.scheduler.requests = {
        name: SimpleNamespace(num_computed_tokens=200, num_prompt_tokens=1000) for name in ("a", "b")
    }
    core.scheduler.running = [1, 2]
    for _ in range(3):
        Scheduler.schedule(core.scheduler)
    first = EngineCore.chunksmith_scheduler_report(core)
    core.scheduler.running = [1]
    Scheduler.schedule(core.scheduler, throttle_prefills=True)
    EngineCore.chunksmith_scheduler_retune(core, {"max_num_seqs": 3})
    second = EngineCore.chunksmith_scheduler_report(core)
    assert (first["steps"], first["max_step_tokens"], first["max_running_requests"]) == (2, 500, 2)
    assert (second["steps"], second["max_step_tokens"], second["max_running_requests"]) == (3, 100, 1)
    # The threshold is 200.
    assert (first["long_prefill_cuts"], second["long_prefill_cuts"]) == (1, 1)
    assert (first["max_num_seqs"], second["max_num_seqs"], second["refused"]) == (8, 3, None)


@pytest.mark.parametrize(
    ("granted", "left", "threshold", "cuts"),
    [
        ({"a": 200, "b": 200}, {"a": 1, "b": 500}, 200, 2),
        ({"a": 200, "b": 200}, {"a": 0, "b": 500}, 200, 1),  # the first was done with its prompt
        ({"a": 1024}, {"a": 500}, 1024, 0),  # the whole budget
        ({"a": 824, "b": 200}, {"a": 500, "b": 500}, 200, 0),  # what the first left of the budget
        ({"a": 823, "b": 200}, {"a": 500, "b": 500}, 200, 1),
        ({"a": 1024}, {"a": 500}, 200, 0),  # alone, without a threshold
        ({"a": 200}, {"a": 500}, 0, 0),
    ],
)
def test_a_cut_is_what_the_threshold_alone_did(
    monkeypatch: pytest.MonkeyPatch, granted: dict[str, int], left: dict[str, int], threshold: int, cuts: int
) -> None:
    """A step of at most 1024 tokens: tokens granted in their order, and tokens of the prompts still left after it."""
    one = fresh()
    one.running = list(granted)
    one.scheduler_config.long_prefill_token_threshold = threshold
    one.requests = {
        name: SimpleNamespace(num_computed_tokens=1000, num_prompt_tokens=1000 + more) for name, more in left.items()
    }
    monkeypatch.setattr(SCHEDULER, "long_prefill_cuts", 5)
    step = SimpleNamespace(total_num_scheduled_tokens=sum(granted.values()), num_scheduled_tokens=granted)
    scheduler._counted(lambda self: step)(one)
    assert scheduler.report(one)["long_prefill_cuts"] == 5 + cuts
