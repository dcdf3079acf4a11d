"""A vLLM server of its own (``vllm serve``) as an engine: for executors and versions that cannot run in an actor's
process, and to measure what a client of the server sees.

Whoever only wants the command needs neither psutil nor an HTTP parser: the other names are looked up when they are
asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from orchestrator.engines.serve.command import serve_arguments, server_command

if TYPE_CHECKING:
    from orchestrator.engines.serve.engine import ServeEngine
    from orchestrator.engines.serve.process import ServerProcess, names_environment

__all__ = ["ServeEngine", "ServerProcess", "names_environment", "serve_arguments", "server_command"]

_HOMES = {"ServeEngine": "engine", "ServerProcess": "process", "names_environment": "process"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
