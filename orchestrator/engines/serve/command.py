"""The command that serves an engine's configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from orchestrator.engines.contract import EngineConfig
from orchestrator.vllm_plugin import CONFIG_KEY, SERVER_RPC, WORKER_EXTENSION

_ON_ONLY = frozenset({"aggregate_engine_logging", "data_parallel_multi_port_external_lb", "disable_log_stats"})
"""Switches of ``vllm serve`` without a ``--no-`` form: off is what they are without the flag."""

_SERVER: Final = (
    # One, to which all retunes and all requests go.
    *("--api-server-count", "1"),
    # Says how much of a prompt came from the prefix cache.
    "--enable-prompt-tokens-details",
    "--disable-uvicorn-access-log",
    *("--worker-extension-cls", WORKER_EXTENSION),
    *("--middleware", SERVER_RPC),
)


def serve_arguments(config: EngineConfig) -> list[str]:
    """Arguments of ``vllm serve`` that give an engine the configuration, as somebody would deploy it."""
    args = dict(config.args)
    additional = {**(args.pop("additional_config", None) or {}), **config.plugin.additional_config()}
    if not additional[CONFIG_KEY]:
        del additional[CONFIG_KEY]
    words = [config.model]
    for name, value in sorted(args.items()):
        words.extend(_flag(name, value))
    if additional:
        words.extend(_flag("additional_config", additional))
    return words


def server_command(config: EngineConfig, socket: str) -> list[str]:
    """The whole command of a server that is measured and tuned over a Unix socket.

    A model may come with defaults of its own for sampling, which no request of ours asks for: they are left out unless
    the configuration says otherwise.
    """
    defaults = [] if "generation_config" in config.args else ["--generation-config", "vllm"]
    return ["vllm", "serve", *serve_arguments(config), *defaults, *_SERVER, "--uds", socket]


def _flag(name: str, value: Any) -> list[str]:
    flag = name.replace("_", "-")
    if value is None:
        return []
    if isinstance(value, bool):
        off = [] if name in _ON_ONLY else [f"--no-{flag}"]
        return [f"--{flag}"] if value else off
    if isinstance(value, Mapping):
        return [f"--{flag}", json.dumps(value, sort_keys=True)]
    if isinstance(value, (list, tuple)):
        return [f"--{flag}", *(str(item) for item in value)]
    return [f"--{flag}", str(value)]
