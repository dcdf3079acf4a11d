"""What the plugin is asked to do, as it stands in vLLM's ``additional_config["chunksmith"]``.

That place is chosen because vLLM carries it to every process of the engine and counts it in its own config hash, so
that a compiled graph of one setting is never used for another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

CONFIG_KEY = "chunksmith"
"""Key under vLLM's ``additional_config``."""

DEFAULT_WORKSPACE_CAP = 65_536
"""vLLM's cap in rows, ``64 * 1024`` in ``determine_chunked_prefill_workspace_size`` since 0.11."""

Rows = Annotated[int, Field(ge=1)]


class PluginSettings(BaseModel):
    """Settings at engine start. ``None`` leaves vLLM's own value.

    Attributes:
        mla_workspace_rows: Cap of the MLA prefill workspace in rows, in place of vLLM's 64 Ki.
        prefill_chunk_size: DeepSeek-V4's ``PREFILL_CHUNK_SIZE`` (4 in vLLM), in requests: it feeds the reservation
            of the gather buffer and the area limit of the chunk planner alike.
        prefill_area_limit: Upper bound of a prefill chunk's area in rows (requests times width). It can only lower
            the limit that the reservation gives; a larger value changes nothing.
        planner: Whose code plans the prefill chunks of DeepSeek-V4: vLLM's, once a layer, or ours, once a step and
            layer type. The plans are the same.
        cpu_chunked_prefill: Keep chunked prefill and prefix caching as asked for on the CPU backend without AMX,
            where vLLM forces both off for MLA, so that the workspace path runs there.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    mla_workspace_rows: Rows | None = None
    prefill_chunk_size: Rows | None = None
    prefill_area_limit: Rows | None = None
    planner: Literal["vllm", "chunksmith"] = "vllm"
    cpu_chunked_prefill: bool = False

    def additional_config(self) -> dict[str, Any]:
        """The value for vLLM's ``additional_config``: only what differs from vLLM's own behaviour."""
        return {CONFIG_KEY: self.model_dump(exclude_defaults=True)}


def settings_of(vllm_config: Any) -> PluginSettings:
    """Read the settings out of a ``VllmConfig``.

    Raises:
        ValueError: An unknown key or a value of the wrong type or range, in one line that says where it stands:
            vLLM would otherwise tell it as an error of its own configuration.
    """
    additional = vllm_config.additional_config
    values = additional.get(CONFIG_KEY, {}) if isinstance(additional, Mapping) else {}
    try:
        return PluginSettings.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = "".join(f"[{part!r}]" for part in (CONFIG_KEY, *first["loc"]))
        raise ValueError(f"additional_config{key}: {first['msg']}, got {first['input']!r}") from error
