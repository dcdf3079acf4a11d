"""The command ``chunksmith``, one file per subcommand."""

from orchestrator.cli.app import main

__all__ = ["main"]
