"""The only room that knows vLLM's internals. vLLM loads it through the entry point group ``vllm.general_plugins``.

Importing it imports no vLLM; ``register`` does.
"""

from __future__ import annotations

import logging

from orchestrator.vllm_plugin.protocol import (
    RPC_PREFIX,
    RPC_WORKER_REPORT,
    RPC_WORKER_RETUNE,
    SCHEDULER_KNOBS,
    SERVER_RPC,
    UTILITY_SCHEDULER_REPORT,
    UTILITY_SCHEDULER_RETUNE,
    WORKER_EXTENSION,
    WORKER_KNOBS,
    SchedulerReport,
    WorkerReport,
)
from orchestrator.vllm_plugin.settings import CONFIG_KEY, DEFAULT_WORKSPACE_CAP, PluginSettings
from orchestrator.vllm_plugin.state import PLUGIN
from orchestrator.vllm_plugin.steps import STEPS, STEPS_FILE_ENV, make_steps_file

__all__ = [
    "CONFIG_KEY",
    "DEFAULT_WORKSPACE_CAP",
    "RPC_PREFIX",
    "RPC_WORKER_REPORT",
    "RPC_WORKER_RETUNE",
    "SCHEDULER_KNOBS",
    "SERVER_RPC",
    "STEPS",
    "STEPS_FILE_ENV",
    "UTILITY_SCHEDULER_REPORT",
    "UTILITY_SCHEDULER_RETUNE",
    "WORKER_EXTENSION",
    "WORKER_KNOBS",
    "PluginSettings",
    "SchedulerReport",
    "WorkerReport",
    "make_steps_file",
    "register",
]


def register() -> None:
    """Patch vLLM in this process, once; or say in one line why not, and patch nothing.

    vLLM calls it in the API server, the engine core and every worker.
    """
    if PLUGIN.refused is None:
        return
    from orchestrator.vllm_plugin import cpu, dsv4, guard, scheduler, workspace

    report = guard.check()
    if not report.supported:
        PLUGIN.refused = f"not patching vLLM: {report.reason}"
        logging.getLogger("vllm.chunksmith").error("chunksmith: %s", PLUGIN.refused)
        return
    for part in (workspace, dsv4, scheduler, cpu):
        part.install()
    PLUGIN.refused = None
