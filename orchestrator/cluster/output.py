"""Where an actor's words go."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def redirect_output(log_path: str) -> None:
    """Append everything that this process and its children print from now on to a file of this node."""
    Path(log_path).parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
