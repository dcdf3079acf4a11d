"""Chunked prefill on the CPU backend, in the configuration that vLLM itself makes for the tiny model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import json, sys
import torch
from vllm.engine.arg_utils import AsyncEngineArgs

said = {"amx": torch.cpu._is_amx_tile_supported()}
for name, settings in json.loads(sys.argv[2]).items():
    arguments = AsyncEngineArgs(
        model=sys.argv[1], dtype="bfloat16", max_model_len=4096, max_num_batched_tokens=256, max_num_seqs=4,
        enable_chunked_prefill=True, enable_prefix_caching=True, additional_config={"chunksmith": settings},
    )
    try:
        config = arguments.create_engine_config()
    except ValueError as error:
        said[name] = str(error)
    else:
        said[name] = [
            config.scheduler_config.enable_chunked_prefill,
            config.cache_config.enable_prefix_caching,
            config.scheduler_config.max_num_batched_tokens,
        ]
print(json.dumps(said))
"""
SETTINGS: dict[str, dict[str, Any]] = {
    "asked": {"cpu_chunked_prefill": True},
    "not asked": {},
    "misspelt": {"cpu_chunked_prefil": True},
}


@pytest.fixture(scope="module")
def said(tiny_model_folder: Path) -> dict[str, Any]:
    """Chunked prefill, prefix caching and tokens a step in vLLM's finished configuration, or its error."""
    command = [sys.executable, "-c", PROGRAM, str(tiny_model_folder), json.dumps(SETTINGS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_asked_for_the_three_values_stay(said: dict[str, Any]) -> None:
    assert said["asked"] == [True, True, 256]


def test_not_asked_for_vllm_forces_them_off(said: dict[str, Any]) -> None:
    if said["amx"]:
        pytest.skip("with AMX vLLM leaves the three values alone")
    assert said["not asked"] == [False, False, 4096]


def test_a_misspelt_setting_stops_the_start(said: dict[str, Any]) -> None:
    assert "additional_config['chunksmith']['cpu_chunked_prefil']" in said["misspelt"]
