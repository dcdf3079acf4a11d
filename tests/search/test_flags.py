from __future__ import annotations

import pytest

from orchestrator.search.flags import flag_of, is_environment, is_load, is_nested, same_flag


@pytest.mark.parametrize(
    ("name", "load", "environment", "nested"),
    [
        ("block_size", False, False, False),
        ("workload", True, False, False),
        ("load", True, False, False),
        ("load.concurrency", True, False, False),
        ("workload.input_len.median", True, False, False),
        ("load_format", False, False, False),
        ("VLLM_SPARSE_INDEXER_MAX_LOGITS_MB", False, True, False),
        ("NCCL_P2P_LEVEL", False, True, False),
        ("compilation_config.cudagraph_mode", False, False, True),
        ("additional_config.gdn.x", False, False, True),
    ],
)
def test_a_name_says_where_its_value_goes(name: str, load: bool, environment: bool, nested: bool) -> None:
    assert (is_load(name), is_environment(name), is_nested(name)) == (load, environment, nested)


@pytest.mark.parametrize(
    ("names", "twice"),
    [
        (["max_num_seqs", "block_size", "max-num-seqs"], ("max_num_seqs", "max-num-seqs")),
        (["attention_config.backend", "attention_backend"], ("attention_config.backend", "attention_backend")),
        (
            ["cp_kv_cache_interleave_size", "dcp-kv-cache-interleave-size"],
            ("cp_kv_cache_interleave_size", "dcp-kv-cache-interleave-size"),
        ),
        (["VLLM_DCP_Q_REPLICATE", "dcp_q_replicate"], ("VLLM_DCP_Q_REPLICATE", "dcp_q_replicate")),
        (["block_size", "max_num_seqs", "attention_config.mla_prefill_backend"], None),
    ],
)
def test_two_spellings_of_one_thing_are_found(names: list[str], twice: tuple[str, str] | None) -> None:
    assert same_flag(names) == twice
    assert (len({flag_of(name) for name in names}) < len(names)) == (twice is not None)
