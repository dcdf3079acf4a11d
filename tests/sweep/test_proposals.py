"""What a study proposes, and who does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from orchestrator.errors import ChunksmithError
from orchestrator.search.portfolio import PortfolioSampler
from orchestrator.search.sampler import ScheduledSampler
from orchestrator.sweep import SweepSpec
from orchestrator.sweep.proposals import Proposals, make_proposals, ruled_out
from tests.sweep.studies import BATCHED_TOKENS, ROWS, make_spec

LOAD = {"scope": "load", "values": [1, 2]}


def proposals(spec: SweepSpec, engines: int = 2) -> Proposals:
    return make_proposals(spec, spec.engine_config(), engines=engines)


def why(spec: SweepSpec, point: Mapping[str, Any]) -> str | None:
    return ruled_out(spec, spec.search_space(), spec.engine_config(), point)


def test_every_valid_point_but_the_baseline_is_listed_once() -> None:
    spec = make_spec(baseline={"mla_workspace_rows": 1024, "max_num_batched_tokens": 512})
    points = proposals(spec).points
    assert len(points) == len({str(point) for point in points}) == len(ROWS) * len(BATCHED_TOKENS) - 1
    assert spec.baseline_point() not in points
    assert why(spec, spec.baseline_point()) == "equals the baseline"


def test_a_point_that_breaks_a_known_constraint_is_not_listed_and_says_which() -> None:
    spec = make_spec(engine__args__max_num_seqs=400)
    listed = proposals(spec)
    assert {point["max_num_batched_tokens"] for point in listed.points} == {512}
    assert listed.choices == {"mla_workspace_rows": tuple(ROWS), "max_num_batched_tokens": (512,)}
    assert "max_num_seqs 400 is above max_num_batched_tokens 256" in str(
        why(spec, {"mla_workspace_rows": 128, "max_num_batched_tokens": 256})
    )


def test_the_baseline_is_left_out_under_every_load() -> None:
    spec = make_spec(**{"space__load.concurrency": LOAD}, baseline={"mla_workspace_rows": 128})
    points = proposals(spec).points
    assert len(points) == 2 * len(ROWS) * len(BATCHED_TOKENS)
    baseline = make_spec(
        **{"space__load.concurrency": LOAD}, baseline={"mla_workspace_rows": 128, "max_num_batched_tokens": 256}
    )
    assert len(proposals(baseline).points) == len(points) - 2


@pytest.mark.parametrize("kind", ["portfolio", "tpe", "gp", "nsga2", "random"])
def test_the_spec_names_the_sampler(kind: str) -> None:
    found = proposals(make_spec(sampler={"kind": kind})).sampler
    assert isinstance(found, PortfolioSampler if kind == "portfolio" else ScheduledSampler)


def test_where_nothing_is_left_one_line_says_so() -> None:
    spec = make_spec(
        space={"mla_workspace_rows": {"scope": "live", "values": [128]}}, baseline={"mla_workspace_rows": 128}
    )
    with pytest.raises(ChunksmithError, match="each one breaks a constraint or is the baseline"):
        proposals(spec)
