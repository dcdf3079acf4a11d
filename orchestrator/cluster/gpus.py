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

_unanswered: list[subprocess.Popen[str]] = []
"""Queries that were killed because they took too long. While one is not gone the driver answers no other either."""


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
    """Whether one of the GPUs computed in the last moments, or nobody can say: where MIG shares one out, its
    utilization is "[N/A]"."""
    if not gpus:
        return False
    shares = _ask("utilization.gpu", gpus)
    return not shares or any(share > 0 for share in shares)


def wait_for_memory(gpus: Sequence[str], before_mib: Sequence[int], timeout_s: float) -> None:
    """Wait until each GPU has no more in use than before: the driver takes a moment to free what the dead held.

    While nobody can say, it is waited for; not, where nobody could say before.
    """
    deadline = time.monotonic() + timeout_s
    while before_mib and time.monotonic() < deadline:
        used = memory_used_mib(gpus)
        if used and all(now <= before + _SLACK_MIB for now, before in zip(used, before_mib, strict=False)):
            return
        time.sleep(_POLL_S)


def _ask(field: str, gpus: Sequence[str]) -> list[int]:
    if not gpus or any(one.poll() is None for one in _unanswered):
        return []
    _unanswered.clear()
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits", f"--id={','.join(gpus)}"]
    try:
        # Neither ``run`` nor ``with``: both wait for the end of what they killed, and that sits in the driver.
        asked = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        return []
    try:
        answer, _ = asked.communicate(timeout=_ASK_TIMEOUT_S)
        return [int(line) for line in answer.split()] if asked.returncode == 0 else []
    except subprocess.TimeoutExpired:
        asked.kill()
        _unanswered.append(asked)
        return []
    except ValueError:
        # A GPU that fell off the bus, or "[N/A]".
        return []
