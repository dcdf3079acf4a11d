from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import ChunksmithError, UserError, unknown_name

KNOBS = ("max_num_batched_tokens", "max_num_seqs", "mla_workspace_rows")


def test_a_users_mistake_has_exit_code_2_and_other_trouble_1() -> None:
    assert ChunksmithError("x").exit_code == 1
    assert UserError("x").exit_code == 2
    assert issubclass(UserError, ChunksmithError)


def test_unknown_name_names_the_place_the_nearest_and_all_that_is_allowed() -> None:
    error = unknown_name("knob", "mla_workspace_row", reversed(KNOBS), where="demo.yaml: space")
    assert str(error) == (
        "demo.yaml: space: unknown knob 'mla_workspace_row'; did you mean 'mla_workspace_rows'? "
        "Allowed: max_num_batched_tokens, max_num_seqs, mla_workspace_rows."
    )


def test_unknown_name_suggests_nothing_when_nothing_is_near() -> None:
    assert str(unknown_name("knob", "zzz", KNOBS)) == (
        "unknown knob 'zzz'. Allowed: max_num_batched_tokens, max_num_seqs, mla_workspace_rows."
    )


@given(name=st.sampled_from(KNOBS), position=st.integers(min_value=0, max_value=10))
def test_one_dropped_letter_is_always_recognised(name: str, position: int) -> None:
    misspelt = name[:position] + name[position + 1 :]
    assert f"did you mean {name!r}?" in str(unknown_name("knob", misspelt, KNOBS))
