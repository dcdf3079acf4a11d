"""What ``nvidia-smi`` says of an engine's GPUs; nothing where there is none.

Imports the standard library alone, because the reaper asks it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence

_ASK_TIMEOUT_S = 2.0
_POLL_S = 0.5
_SLACK_MIB = 256
"""What of a GPU's memory may be more than before an engine: others come and go in small amounts."""


def own_gpus() -> list[str]:
    """The GPUs that this process was given, by index or UUID; none where it was given none by name, or there is no
    ``nvidia-smi``."""
    if shutil.which("nvidia-smi") is None:
        return []
    return [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]


def memory_used_mib(gpus: Sequence[str]) -> list[int]:
    """Used memory of each GPU in MiB; empty when nobody can say."""
    return _ask("memory.used", gpus)


def are_at_work(gpus: Sequence[str]) -> bool:
    """Whether one of the GPUs computed in the last moments."""
    return any(share > 0 for share in _ask("utilization.gpu", gpus))


def wait_for_memory(gpus: Sequence[str], before_mib: Sequence[int], timeout_s: float) -> None:
    """Wait until each GPU has no more in use than before: the driver takes a moment to free what the dead held."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        used = memory_used_mib(gpus)
        if all(now <= before + _SLACK_MIB for now, before in zip(used, before_mib, strict=False)):
            return
        time.sleep(_POLL_S)


def _ask(field: str, gpus: Sequence[str]) -> list[int]:
    if not gpus:
        return []
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits", f"--id={','.join(gpus)}"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=True)
        return [int(line) for line in answer.stdout.split()]
    except (OSError, subprocess.SubprocessError, ValueError):
        # No driver, a GPU that fell off the bus, or "[N/A]".
        return []
