from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.search import violated


@given(tokens=st.integers(1, 4096), seqs=st.integers(1, 4096))
def test_more_requests_than_tokens_in_a_step_are_ruled_out(tokens: int, seqs: int) -> None:
    point = {"max_num_batched_tokens": tokens, "max_num_seqs": seqs}
    reason = violated(point, max_num_batched_tokens=None, max_num_seqs=None)
    if seqs > tokens:
        assert reason == f"max_num_seqs {seqs} is above max_num_batched_tokens {tokens}"
    else:
        assert reason is None
    # A knob that is left out, or None, has the value of the engine's start.
    assert violated({"max_num_seqs": seqs}, max_num_batched_tokens=tokens, max_num_seqs=1) == reason
    assert violated({**point, "max_num_seqs": None}, max_num_batched_tokens=1, max_num_seqs=seqs) == reason


def test_what_is_left_to_vllm_is_not_judged() -> None:
    assert violated({"max_num_seqs": 10**6}, max_num_batched_tokens=None, max_num_seqs=None) is None
    assert violated({"mla_workspace_rows": 1}, max_num_batched_tokens=1, max_num_seqs=None) is None


@pytest.mark.parametrize(("seqs", "accepted"), [(64, True), (65, False)])
def test_vllm_draws_the_line_at_the_same_place(seqs: int, accepted: bool) -> None:
    from pydantic import ValidationError
    from vllm.config import SchedulerConfig

    point = {"max_num_batched_tokens": 64, "max_num_seqs": seqs}
    assert (violated(point, max_num_batched_tokens=None, max_num_seqs=None) is None) == accepted
    config = {"max_model_len": 64, "is_encoder_decoder": False, "enable_chunked_prefill": True}
    if accepted:
        SchedulerConfig(**point, **config)
    else:
        with pytest.raises(ValidationError, match="must be greater than or equal to max_num_seqs"):
            SchedulerConfig(**point, **config)
