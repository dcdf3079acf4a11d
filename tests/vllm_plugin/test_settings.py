from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrator.vllm_plugin.settings import PluginSettings, settings_of

rows = st.none() | st.integers(1, 2**40)


@given(rows, rows, rows, st.booleans())
def test_settings_survive_the_way_through_vllm(cap: Any, size: Any, limit: Any, chunked: bool) -> None:
    settings = PluginSettings(
        mla_workspace_rows=cap, prefill_chunk_size=size, prefill_area_limit=limit, cpu_chunked_prefill=chunked
    )
    assert settings_of(SimpleNamespace(additional_config=settings.additional_config())) == settings


def test_only_what_differs_from_vllm_is_written() -> None:
    assert PluginSettings().additional_config() == {"chunksmith": {}}
    assert PluginSettings(mla_workspace_rows=256).additional_config() == {"chunksmith": {"mla_workspace_rows": 256}}


@pytest.mark.parametrize("additional", [{}, {"someone_else": {"rows": 1}}, None, object()])
def test_without_our_key_vllm_is_left_alone(additional: Any) -> None:
    assert settings_of(SimpleNamespace(additional_config=additional)) == PluginSettings()


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"mla_workspace_row": 256}, "mla_workspace_row"),
        ({"mla_workspace_rows": 0}, "mla_workspace_rows"),
        ({"mla_workspace_rows": -1}, "mla_workspace_rows"),
        ({"mla_workspace_rows": "256"}, "mla_workspace_rows"),
        ({"mla_workspace_rows": 256.0}, "mla_workspace_rows"),
        ({"mla_workspace_rows": True}, "mla_workspace_rows"),
        ({"prefill_chunk_size": 0}, "prefill_chunk_size"),
        ({"prefill_area_limit": 0}, "prefill_area_limit"),
        ({"cpu_chunked_prefill": "yes"}, "cpu_chunked_prefill"),
        ({"cpu_chunked_prefill": 1}, "cpu_chunked_prefill"),
    ],
)
def test_a_wrong_setting_is_named(values: dict[str, Any], key: str) -> None:
    with pytest.raises(ValueError, match=rf"^additional_config\['chunksmith'\]\['{key}'\]: [^\n]+$"):
        settings_of(SimpleNamespace(additional_config={"chunksmith": values}))


def test_settings_that_are_no_mapping_are_refused() -> None:
    with pytest.raises(ValueError, match="chunksmith"):
        settings_of(SimpleNamespace(additional_config={"chunksmith": "mla_workspace_rows=256"}))


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        PluginSettings().mla_workspace_rows = 3
