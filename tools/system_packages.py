"""Programs that the tests need and pip cannot install: Debian's packages, where this system has them and lets us.

Runs on the system's Python with the standard library alone, and does nothing where everything is there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

PROGRAMS = {
    "chromium": ("chromium", "fonts-dejavu-core"),
    "postgres": ("postgresql",),
}
"""Debian packages by the program that they bring."""

POSTGRESQL = Path("/usr/lib/postgresql")
"""Where Debian puts PostgreSQL's programs, by version; of them only clients are on the PATH."""


def which(program: str, servers: Path = POSTGRESQL) -> str | None:
    """Where a program is: on the PATH, or among those of the newest PostgreSQL; None if nowhere."""
    if found := shutil.which(program):
        return found
    candidates = [path for path in servers.glob(f"*/bin/{program}") if os.access(path, os.X_OK)]
    return str(max(candidates, key=lambda path: float(path.parents[1].name))) if candidates else None


def missing(which: Callable[[str], str | None] = which) -> list[str]:
    """The programs that are nowhere."""
    return [program for program in PROGRAMS if which(program) is None]


def main() -> int:
    """Install what is missing; return the exit code."""
    programs = missing()
    if not programs:
        return 0
    packages = [package for program in programs for package in PROGRAMS[program]]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(f"setup: error: the tests need {', '.join(programs)}; on Debian: apt-get install {' '.join(packages)}")
        return 1
    print(f"setup: {', '.join(packages)} (Debian) ...", flush=True)
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    for command in (["apt-get", "update", "-qq"], install):
        done = subprocess.run(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode:
            print(done.stdout, done.stderr, sep="")
            print(f"setup: error: {' '.join(command)} failed (exit code {done.returncode}); its messages stand above")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
