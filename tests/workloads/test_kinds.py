from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from orchestrator.errors import UserError
from orchestrator.workloads import AnyWorkload, Request, TraceTime, WorkloadKind

section: TypeAdapter[WorkloadKind] = TypeAdapter(AnyWorkload)
LENGTHS = {"kind": "uniform", "low": 20, "high": 60}
SECTIONS: list[dict[str, Any]] = [
    {"kind": "random", "prompts": 6, "input_len": LENGTHS, "output_len": 2},
    {"kind": "shared_prefix", "groups": 2, "prompts_per_group": 3, "prefix_len": 32, "suffix_len": LENGTHS},
    {
        "kind": "multi_turn",
        "conversations": 3,
        "turns": {"kind": "uniform", "low": 1, "high": 4},
        "shared_len": 5,
        "first_len": LENGTHS,
        "next_len": 7,
        "output_len": 3,
        "think_s": 0.5,
    },
    {"kind": "long_context", "prompts": 5, "input_len": 1000, "spread": 0.5},
    {"kind": "burst_behind_giant", "giant_len": 500, "shorts": 3, "short_len": 20, "rounds": 2, "round_s": 4},
    {"kind": "chunked_steps", "prompts": 2, "step_tokens": 64, "steps": 3, "last_tokens": 10, "every_s": 0.5},
]
by_kind = pytest.mark.parametrize("value", SECTIONS, ids=[value["kind"] for value in SECTIONS])


def draw(value: dict[str, Any], *seed: int, vocab_size: int = 50_000) -> list[Request]:
    return section.validate_python(value).draw(seed or (0,), vocab_size=vocab_size)


def inputs(requests: list[Request]) -> list[int]:
    return [len(request.prompt.token_ids) for request in requests]


@by_kind
def test_a_block_is_drawn_from_its_seed(value: dict[str, Any]) -> None:
    assert draw(value, 3, 4) == draw(value, 3, 4)


@by_kind
def test_another_block_shares_no_prefix_with_the_first(value: dict[str, Any]) -> None:
    first, second = draw(value, 3, 4), draw(value, 3, 5)
    heads = [{tuple(request.prompt.token_ids[:5]) for request in block} for block in (first, second)]
    assert not heads[0] & heads[1]


@by_kind
def test_tokens_are_ordinary_ones_of_the_vocabulary(value: dict[str, Any]) -> None:
    tokens = {token for request in draw(value, vocab_size=15) for token in request.prompt.token_ids}
    assert tokens == {10, 11, 12, 13, 14}


@by_kind
def test_no_request_is_longer_than_was_said(value: dict[str, Any]) -> None:
    longest = section.validate_python(value).longest_request()
    assert longest is not None
    blocks = itertools.chain.from_iterable(draw(value, seed) for seed in range(20))
    assert max(len(r.prompt.token_ids) + r.prompt.output_len for r in blocks) <= longest


@by_kind
def test_a_section_survives_the_way_through_a_file(value: dict[str, Any]) -> None:
    kind = section.validate_python(value)
    assert section.validate_python(json.loads(json.dumps(kind.model_dump()))) == kind


@by_kind
def test_an_unknown_key_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        section.validate_python({**value, "promts": 3})


def test_a_group_shares_its_prefix_and_nothing_more() -> None:
    value = {**SECTIONS[1], "order": "grouped"}
    requests = draw(value)
    prefixes = [tuple(request.prompt.token_ids[:32]) for request in requests]
    assert prefixes == [prefixes[0]] * 3 + [prefixes[3]] * 3
    assert prefixes[0] != prefixes[3]
    assert len({tuple(request.prompt.token_ids[32:40]) for request in requests}) == 6
    shuffled = draw({**value, "order": "shuffled"})
    key = repr
    assert sorted(shuffled, key=key) == sorted(requests, key=key)
    assert shuffled != requests


def test_each_turn_begins_with_the_turn_before_it() -> None:
    requests = draw(SECTIONS[2], 1)
    assert any(request.follows is not None for request in requests)
    for index, request in enumerate(requests):
        if request.follows is None:
            assert request.think_s == 0
            assert 25 <= len(request.prompt.token_ids) <= 65
            continue
        assert request.follows == index - 1
        assert request.think_s == 0.5
        before = requests[request.follows].prompt
        assert request.prompt.token_ids[: len(before.token_ids)] == before.token_ids
        assert len(request.prompt.token_ids) == len(before.token_ids) + before.output_len + 7
    assert len({tuple(request.prompt.token_ids[:5]) for request in requests}) == 1
    assert len({tuple(r.prompt.token_ids[:10]) for r in requests if r.follows is None}) == 3


def test_long_contexts_have_the_same_lengths_in_every_block() -> None:
    first, second = inputs(draw(SECTIONS[3], 0)), inputs(draw(SECTIONS[3], 1))
    assert sorted(first) == sorted(second) == [500, 625, 750, 875, 1000]
    assert len({tuple(inputs(draw(SECTIONS[3], seed))) for seed in range(5)}) > 1


def test_the_burst_comes_behind_the_giant() -> None:
    requests = draw(SECTIONS[4])
    assert inputs(requests) == [500, 20, 20, 20] * 2
    times = TraceTime().schedule(requests, [0]).times_s
    assert times == [0.0, 0.05, 0.05, 0.05, 4.0, 4.05, 4.05, 4.05]


def test_a_chunked_prompt_fills_its_steps() -> None:
    requests = draw(SECTIONS[5])
    assert inputs(requests) == [2 * 64 + 10] * 2
    assert [request.at_s for request in requests] == [0.0, 0.5]
    assert inputs(draw({"kind": "chunked_steps", "step_tokens": 64, "steps": 3})) == [3 * 64]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"kind": "random", "prompts": 0, "input_len": 3}, "greater than or equal to 1"),
        ({"kind": "random"}, "input_len"),
        ({"kind": "chunked_steps", "step_tokens": 8, "last_tokens": 9}, "last_tokens 9 is above step_tokens 8"),
        ({"kind": "long_context", "spread": 1.0}, "less than 1"),
        ({"kind": "burst"}, "does not match any of the expected tags"),
    ],
)
def test_a_wrong_section_is_refused(value: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        section.validate_python(value)


def test_a_trace_keeps_times_lengths_and_shared_blocks(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    rows = [
        {"timestamp": 1000, "input_length": 700, "output_length": 5, "hash_ids": [1, 2]},
        {"timestamp": 3500, "input_length": 1100, "output_length": 6, "hash_ids": [1, 3, 4]},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    first, second = draw({"kind": "trace", "path": str(path)}, 7)
    assert inputs([first, second]) == [700, 1100]
    assert [(r.at_s, r.prompt.output_len) for r in (first, second)] == [(0.0, 5), (2.5, 6)]
    assert first.prompt.token_ids[:512] == second.prompt.token_ids[:512]
    assert first.prompt.token_ids[512:600] != second.prompt.token_ids[512:600]
    (fresh, _) = draw({"kind": "trace", "path": str(path)}, 8)
    assert fresh.prompt.token_ids[:5] != first.prompt.token_ids[:5]


def test_a_trace_without_hashes_shares_nothing(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("timestamp,input_length,output_length\n0,50,5\n0,50,5\n")
    first, second = draw({"kind": "trace", "path": str(path)})
    assert first.prompt.token_ids[:5] != second.prompt.token_ids[:5]


def test_a_trace_above_the_longest_request_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("timestamp,input_length,output_length\n0,50,5\n")
    value = {"kind": "trace", "path": str(path), "max_request": 54}
    with pytest.raises(UserError, match="a request has 55 tokens, above max_request 54"):
        draw(value)
    assert section.validate_python(value).longest_request() == 54
