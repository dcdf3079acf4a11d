"""Run by test_sweep.py: ``chunksmith sweep SPEC`` on Ray's local cluster, with a sweep that never comes to an end."""

from __future__ import annotations

import signal
import sys
from typing import Any

from orchestrator import sweep
from orchestrator.cli import main


class FaultySweep:
    """Fault: it measures for ever."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def run(self) -> None:
        print("measuring", flush=True)
        signal.pause()


sweep.Sweep = FaultySweep  # type: ignore[assignment, misc]

if __name__ == "__main__":
    sys.exit(main(["sweep", *sys.argv[1:]]))
