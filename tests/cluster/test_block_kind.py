"""Which blocks are alike."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cluster.block_kind import block_kind
from orchestrator.workloads import Prompt, Request, Schedule

ROWS = {"mla_workspace_rows": 256, "max_num_batched_tokens": 512}


def kind(
    values: dict[str, int] = ROWS,
    *,
    lengths: list[int] | None = None,
    schedule: Schedule | None = None,
    top2: bool = False,
) -> int:
    requests = [Request(prompt=Prompt(token_ids=range(length), output_len=4)) for length in lengths or [600] * 12]
    return block_kind(values, requests, schedule or Schedule(), top2=top2)


@given(lengths=st.lists(st.integers(520, 1000), min_size=8, max_size=15))
def test_fresh_prompts_of_one_load_are_alike(lengths: list[int]) -> None:
    assert kind(lengths=lengths) == kind() > 0
    assert kind(dict(reversed(ROWS.items()))) == kind()


def test_other_values_and_loads_are_not() -> None:
    slow, fast = ([*(0.0,) * 11, last_s] for last_s in (6.0, 1.0))
    others = [
        kind({}),
        kind({**ROWS, "mla_workspace_rows": 512}),
        kind(lengths=[600] * 11 + [2000]),
        kind(lengths=[600] * 100),
        kind(top2=True),
        kind(schedule=Schedule(concurrency=2)),
        *(kind(schedule=Schedule(times_s=times)) for times in (slow, fast)),
    ]
    assert len({kind(), *others}) == 1 + len(others)
