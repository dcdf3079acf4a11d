"""The command line that goes on with a run, as the user can type it where they stand."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

_NAME = "chunksmith"


def resume_command(
    run: Path, *, address: str | None = None, ray_auth: str | None = None, parallel: int | None = None
) -> str:
    """The command that goes on with a run on the same Ray cluster.

    Args:
        run: Folder of the run.
        address: The ``--address`` that the sweep was started with; so is ``ray_auth`` its ``--ray-auth``, and
            ``parallel`` its ``--parallel``.
    """
    words = [*_program(), "sweep", "--resume", "--run", str(run)]
    for option, value in (("--address", address), ("--ray-auth", ray_auth), ("--parallel", parallel)):
        if value is not None:
            words += [option, str(value)]
    return shlex.join(words)


def _program() -> list[str]:
    """The running command. Its bare name only where PATH leads to it: after ``make sweep`` it does not."""
    # A Ray job runs another script; the command was installed beside its interpreter.
    places = (Path(sys.argv[0]), Path(sys.executable).with_name(_NAME))
    script = next((place.absolute() for place in places if place.name == _NAME and place.is_file()), None)
    if script is None:
        return [sys.executable, "-m", "orchestrator.cli"]
    on_path = shutil.which(_NAME)
    if on_path is not None and script.samefile(on_path):
        return [_NAME]
    if not script.is_relative_to(here := Path.cwd()):
        return [str(script)]
    # Without a slash the shell would look on PATH.
    return [str(script.relative_to(here)) if script.parent != here else f"./{script.name}"]
