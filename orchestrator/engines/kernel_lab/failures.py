"""What the lab's failures are to the contract."""

from __future__ import annotations

import torch

from orchestrator.engines.contract import EngineError
from orchestrator.engines.kernel_lab.errors import LabError

_MOST_CHARACTERS = 400


def engine_error(error: BaseException, label: str, log_path: str) -> EngineError:
    """An error as the contract's own, in one line and with its class.

    Args:
        label: Class of what is neither the lab's own nor a lack of memory.
    """
    text = " ".join(str(error).split())[:_MOST_CHARACTERS]
    if isinstance(error, LabError):
        if error.label == "aborted":
            return EngineError("engine-dead", error.detail, lost=True, log_path=log_path)
        return EngineError(error.label, error.detail, lost=error.label == "rank-lost", log_path=log_path)
    # On a CPU torch has no class of its own for it.
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in text:
        return EngineError("out-of-memory", text, log_path=log_path)
    return EngineError(label, f"{type(error).__name__}: {text}", log_path=log_path)
