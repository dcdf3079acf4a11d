"""What ``ray job submit --working-dir . -- python jobs/sweep.py SPEC`` runs: a sweep on the cluster that the job
belongs to.

A job's working folder is a copy that Ray removes later, so the run goes to ``--run``, else to a folder under
``$CHUNKSMITH_RUNS``, else under ``~/chunksmith-runs``; all on the node that runs the job. Further options are those of
``chunksmith sweep``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from orchestrator.cli import main


def arguments(given: list[str]) -> list[str]:
    """The command line of ``chunksmith`` for a job's own."""
    words = ["sweep", "--address", "auto", *given]
    if not any(word == "--run" or word.startswith("--run=") for word in given):
        words += ["--run", str(_run_folder(given))]
    return words


def _run_folder(given: list[str]) -> Path:
    runs = Path(os.environ.get("CHUNKSMITH_RUNS") or Path.home() / "chunksmith-runs")
    specs = [word for word in given if word.endswith((".yaml", ".yml"))]
    return runs / (Path(specs[0]).stem if specs else "sweep")


if __name__ == "__main__":
    sys.exit(main(arguments(sys.argv[1:])))
