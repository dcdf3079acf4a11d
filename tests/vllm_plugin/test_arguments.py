from __future__ import annotations

import dataclasses

import pytest

from orchestrator.vllm_plugin.arguments import engine_arguments


@pytest.mark.vllm
def test_the_names_are_those_of_vllms_own_class() -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs

    fields = {field.name for field in dataclasses.fields(AsyncEngineArgs)}
    assert engine_arguments() == {name for name in fields if not name.startswith("_")}
    assert {"model", "max_model_len", "max_num_batched_tokens", "additional_config"} <= engine_arguments()
