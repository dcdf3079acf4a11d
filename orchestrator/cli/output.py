"""A file that the user named for an answer."""

from __future__ import annotations

from pathlib import Path


def write_output(path: Path, text: str) -> None:
    """Write the text, whole or not at all; a pipe or a device, such as ``/dev/stdout``, is written to and not replaced.

    Raises:
        ChunksmithError, OSError: The file system refused; both end in one line.
    """
    from orchestrator.records import write_text_atomic

    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8") as file:
            file.write(text)
    else:
        write_text_atomic(path, text)
