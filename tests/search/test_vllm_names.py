from __future__ import annotations

import dataclasses

import pytest

from orchestrator.search.vllm_names import ANY_KEY, installed_names, shipped_names, vllm_names
from orchestrator.vllm_plugin.arguments import engine_arguments
from tools.list_vllm_names import TARGET, module_text

pytestmark = pytest.mark.vllm


def test_the_shipped_names_are_those_of_the_real_parser() -> None:
    names = installed_names()
    assert shipped_names() == names
    assert TARGET.read_text() == module_text(names)


def test_they_are_arguments_of_vllm_and_hold_the_knobs_that_matter_here() -> None:
    names = vllm_names()
    assert names == shipped_names()
    assert names.arguments < engine_arguments()
    assert names.short["tp"] == "tensor_parallel_size"
    assert {"decode_context_parallel_size", "cp_kv_cache_interleave_size", "dcp_comm_backend"} < names.arguments
    assert {"mla_prefill_backend", "sparse_mla_prefill_workspace_factor"} < names.sections["attention_config"]
    assert "cudagraph_mode" in names.sections["compilation_config"]
    assert names.sections["hf_overrides"] == {ANY_KEY}
    assert {"VLLM_SPARSE_INDEXER_MAX_LOGITS_MB", "VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE"} < names.environment
    known = names.all_knobs()
    assert "attention_config.mla_prefill_backend" in known
    assert not any(ANY_KEY in name for name in known)


def test_keys_of_a_section_are_fields_that_vllm_takes() -> None:
    from vllm.config import AttentionConfig, CompilationConfig

    for section, kind in (("attention_config", AttentionConfig), ("compilation_config", CompilationConfig)):
        fields = {field.name for field in dataclasses.fields(kind) if field.init}
        assert vllm_names().sections[section] <= fields
