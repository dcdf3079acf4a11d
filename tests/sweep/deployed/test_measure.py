"""An exported configuration against the baseline, on servers whose times are known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import ChunksmithError, UserError
from orchestrator.measurement import Role
from orchestrator.measurement.loadgen import Target
from orchestrator.measurement.stats import RatioInterval
from orchestrator.measurement.testing import MODEL, MockServer, MockSettings
from orchestrator.sweep.deployed import DeployedRatio, ServedScript, measure_deployed
from tests.sweep.studies import make_spec

SCRIPTS: dict[Role, ServedScript] = {
    "baseline": ServedScript(text="", model=MODEL),
    "candidate": ServedScript(text="", model=MODEL),
}


Urls = dict[str, str]


class Started:
    """A mock in place of ``vllm serve``, which notes its start and its stop."""

    log_path = Path("mock.log")

    def __init__(self, url: str, role: Role, events: list[str], memory_bytes: int) -> None:
        self._role, self._events = role, events
        self.target = Target(url=url, model=MODEL)
        self.memory_bytes = memory_bytes
        events.append(f"start {role}")

    def stop(self) -> None:
        self._events.append(f"stop {self._role}")


@pytest.fixture(scope="module")
def urls() -> Iterator[Urls]:
    """Where a mock of each role answers."""
    with (
        MockServer(MockSettings(ttft_s=0.2)) as baseline,
        MockServer(MockSettings(ttft_s=0.1)) as candidate,
    ):
        yield {"baseline": baseline.url, "candidate": candidate.url}


def measured(urls: Urls, events: list[str], *, memory_bytes: int = 0, **changes: Any) -> RatioInterval:
    # The SLO only says how late a busy machine may be.
    usual = {"workload": {"prompts": 1, "input_len": 64}, "slo": {"ttft_ms": 2000}, "confirm": {"pairs": 2}}
    spec = make_spec(**{**usual, **changes})

    def make(_: ServedScript, role: Role) -> Started:
        return Started(urls[role], role, events, memory_bytes)

    point = {"mla_workspace_rows": 256, "max_num_batched_tokens": 512}
    return measure_deployed(
        spec, point, SCRIPTS, trial=4, vocab_size=1000, make_server=make, say=lambda line: events.append(line)
    )


def starts(events: list[str]) -> list[str]:
    return [event for event in events if event.startswith(("start", "stop"))]


def test_the_ratio_is_that_of_the_servers(urls: Urls) -> None:
    events: list[str] = []
    found = measured(urls, events)
    assert found.pairs == 2
    assert found.ratio == pytest.approx(0.5, rel=0.25)
    assert starts(events) == ["start baseline", "start candidate", "stop candidate", "stop baseline"]
    # In turns, so that a steady drift cancels.
    roles = [event.split(", ")[1].partition(":")[0] for event in events if event.startswith("pair")]
    assert roles == ["baseline", "candidate", "candidate", "baseline"]


def test_without_room_for_two_there_is_one_at_a_time(urls: Urls) -> None:
    events: list[str] = []
    found = measured(urls, events, memory_bytes=2**60)
    assert found.ratio == pytest.approx(0.5, rel=0.25)
    one_at_a_time = [f"{what} {role}" for role in ("baseline", "candidate", "baseline") for what in ("start", "stop")]
    assert starts(events) == one_at_a_time


def test_both_servers_are_started_as_often_as_the_run_started_its_engines(urls: Urls) -> None:
    events: list[str] = []
    found = measured(urls, events, confirm={"pairs": 6, "starts": 3})
    assert (found.pairs, found.starts) == (6, 3)
    once = ["start baseline", "start candidate", "stop candidate", "stop baseline"]
    assert starts(events) == once * 3


def test_a_request_that_fails_is_no_figure_and_leaves_no_server(urls: Urls) -> None:
    events: list[str] = []
    # The first two requests are the warm-up.
    with (
        MockServer(MockSettings(refuse={3})) as failing,
        pytest.raises(ChunksmithError, match=r"a block failed: .*1 of its requests failed"),
    ):
        measured(
            urls | {"candidate": failing.url}, events, workload={"prompts": 2, "input_len": 64}, resources={"gpus": 1}
        )
    # GPUs have no room for two, whatever memory there is.
    assert starts(events) == ["start baseline", "stop baseline", "start candidate", "stop candidate"]


def test_a_rate_is_searched_elsewhere() -> None:
    with pytest.raises(UserError, match="--measure: goodput_at_slo needs a search"):
        measured(
            {},
            [],
            objective={"metric": "goodput_at_slo"},
            slo={"ttft_ms": 100},
            rate_search={"low": 1, "high": 2},
            load={"kind": "poisson", "rate": 1},
        )


@pytest.mark.parametrize(
    ("low", "high", "inside", "contradiction"),
    [
        (0.6, 0.75, True, False),
        (0.71, 0.75, False, False),
        (0.74, 0.8, False, True),
        (0.5, 0.65, False, True),
        (None, None, False, False),
    ],
)
def test_the_measured_ratio_is_judged_by_the_runs_interval(
    low: float | None, high: float | None, inside: bool, contradiction: bool
) -> None:
    measured = RatioInterval(ratio=0.7, low=0.68, high=0.72, pairs=5, level=0.95, sd_log=0.01, dof=4)
    found = DeployedRatio(measured=measured, metric="median_ttft_ms", reported_low=low, reported_high=high)
    assert (found.is_inside, found.is_contradiction) == (inside, contradiction)
