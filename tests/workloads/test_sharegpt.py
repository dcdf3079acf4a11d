from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from orchestrator.errors import UserError
from orchestrator.workloads import Request, ShareGPT
from orchestrator.workloads.kinds.sharegpt import FRESH_TOKENS


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    made = Tokenizer(WordLevel({f"w{number}": number for number in range(100)}, unk_token="w0"))
    made.pre_tokenizer = Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def conversations(path: Path, *lengths: tuple[int, int]) -> Path:
    """Questions that begin with their number, of so many words, with answers of so many."""
    items = [
        {
            "id": str(number),
            "conversations": [
                {"from": "human", "value": " ".join([f"w{20 + number}"] + ["w11"] * (question - 1))},
                {"from": "gpt", "value": " ".join(["w12"] * answer)},
            ],
        }
        for number, (question, answer) in enumerate(lengths)
    ]
    path.write_text(json.dumps(items))
    return path


def draw(path: Path, tokenizer: Path, seed: int = 0, **keys: Any) -> list[Request]:
    kind = ShareGPT.model_validate({"path": str(path), "tokenizer": str(tokenizer), "prompts": 2, **keys})
    return kind.draw([seed], vocab_size=100)


def test_lengths_are_those_of_the_tokenised_text(tmp_path: Path, tokenizer: Path) -> None:
    path = conversations(tmp_path / "a.json", (10, 20), (30, 40))
    found = sorted((len(r.prompt.token_ids) - FRESH_TOKENS, r.prompt.output_len) for r in draw(path, tokenizer))
    assert found == [(10, 20), (30, 40)]


def test_each_block_has_fresh_tokens_in_front_of_the_text(tmp_path: Path, tokenizer: Path) -> None:
    path = conversations(tmp_path / "a.json", (10, 20), (30, 40))
    first, second = draw(path, tokenizer, 0), draw(path, tokenizer, 1)
    texts = [{tuple(r.prompt.token_ids[FRESH_TOKENS:]) for r in block} for block in (first, second)]
    fronts = [{tuple(r.prompt.token_ids[:FRESH_TOKENS]) for r in block} for block in (first, second)]
    assert texts[0] == texts[1]
    assert not fronts[0] & fronts[1]
    assert draw(path, tokenizer / "tokenizer.json", 0) == first


def test_what_is_outside_the_bounds_is_passed_over(tmp_path: Path, tokenizer: Path) -> None:
    path = conversations(tmp_path / "a.json", (3, 9), (9, 3), (97, 9), (9, 95), (9, 9), (10, 10))
    requests = draw(path, tokenizer, max_input=100, max_request=107)
    assert {len(r.prompt.token_ids) for r in requests} == {13, 14}


def test_no_conversation_is_drawn_twice(tmp_path: Path, tokenizer: Path) -> None:
    path = conversations(tmp_path / "a.json", *[(5, 5)] * 30)
    requests = draw(path, tokenizer, prompts=30)
    assert len({r.prompt.token_ids[FRESH_TOKENS] for r in requests}) == 30


def test_a_fixed_output_length_replaces_the_answers(tmp_path: Path, tokenizer: Path) -> None:
    path = conversations(tmp_path / "a.json", (10, 20), (30, 40))
    assert [r.prompt.output_len for r in draw(path, tokenizer, output_len=3)] == [3, 3]


def test_more_prompts_than_conversations_are_refused(tmp_path: Path, tokenizer: Path) -> None:
    path = conversations(tmp_path / "a.json", (10, 20), (1, 1))
    with pytest.raises(UserError, match="1 conversations are within the bounds, prompts is 2"):
        draw(path, tokenizer)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("{}", "should be a list of conversations, got dict"),
        ('[{"messages": []}]', "conversation 0: has no list called conversations"),
        ('[{"conversations": [{"value": 3}, {"value": "x"}]}]', "conversation 0: a turn has no text called value"),
    ],
)
def test_another_file_is_one_clear_line(tmp_path: Path, tokenizer: Path, text: str, message: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        draw(path, tokenizer)


def test_a_tokenizer_of_another_model_is_refused(tmp_path: Path, tokenizer: Path) -> None:
    path = conversations(tmp_path / "a.json", (10, 20), (30, 40))
    kind = ShareGPT(path=str(path), tokenizer=str(tokenizer), prompts=1)
    with pytest.raises(UserError, match="the model knows tokens below 15"):
        kind.draw([0], vocab_size=15)


def test_a_missing_or_broken_tokenizer_is_one_clear_line(tmp_path: Path) -> None:
    path = conversations(tmp_path / "a.json", (10, 20))
    with pytest.raises(UserError, match="does not exist; tokenizer names"):
        draw(path, tmp_path / "none")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match="not a tokenizer"):
        draw(path, tmp_path)
