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
from orchestrator.errors import UserError


def arguments(given: list[str]) -> list[str]:
    """The command line of ``chunksmith`` for a job's own.

    Raises:
        UserError: ``--resume`` with neither a spec nor ``--run``, which name the run.
    """
    words = ["sweep", "--address", "auto", *given]
    if not any(word == "--run" or word.startswith("--run=") for word in given):
        words += ["--run", str(_run_folder(given))]
    return words


def _run_folder(given: list[str]) -> Path:
    runs = Path(os.environ.get("CHUNKSMITH_RUNS") or Path.home() / "chunksmith-runs")
    specs = [word for word in given if word.endswith((".yaml", ".yml"))]
    if not specs and "--resume" in given:
        raise UserError(f"--resume: say which run by its spec or by --run; runs lie under {runs} on this node")
    return runs / (Path(specs[0]).stem if specs else "sweep")


def run(given: list[str]) -> int:
    """Run the job; return its exit code, which is that of ``chunksmith``."""
    try:
        words = arguments(given)
    except UserError as error:
        print(f"chunksmith: error: {error}", file=sys.stderr)
        return error.exit_code
    return main(words)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
