"""Installs Chunksmith without its extras into a fresh environment, and shows what that takes and what works there.

python -m tools.light_install   # exit code 1 if it is too large, brings an engine, or a command fails
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_BYTES = 400 * 10**6
"""Of what the installation adds to an empty environment, compiled Python files included."""
HEAVY = ("ray", "torch", "vllm")
"""What starts engines, and must not come along."""
SOURCES = ("orchestrator", "pyproject.toml", "README.md")

COMMANDS: Sequence[Sequence[str]] = (
    ("best", "RUN", "--json"),
    ("knee", "RUN"),
    ("sensitivity", "RUN"),
    ("why", "RUN"),
    ("compare", "RUN", "RUN"),
    ("watch", "RUN", "--once"),
    ("export", "RUN", "--format", "kubernetes", "--image", "vllm"),
    ("records", "check", "RUN"),
    ("records", "export", "RUN", "-o", "tables"),
    ("size", "--model", "kimi-k3"),
)
"""What an analyst types; RUN is the run that ships."""


@dataclass(frozen=True)
class Installed:
    """What an environment holds.

    Attributes:
        size: Bytes on disk of all of it, the empty environment included.
        packages: Bytes of each distribution, the largest first.
        heavy: Names of ``HEAVY`` that can be imported.
    """

    size: int
    packages: dict[str, int]
    heavy: list[str]


# Runs in the fresh environment.
_LOOK = """
import importlib.metadata, importlib.util, json, sys
sizes = {}
for one in importlib.metadata.distributions():
    files = [one.locate_file(file) for file in one.files or ()]
    sizes[one.name] = sum(file.stat().st_size for file in files if file.is_file())
heavy = [name for name in sys.argv[1:] if importlib.util.find_spec(name)]
print(json.dumps({"packages": dict(sorted(sizes.items(), key=lambda item: -item[1])), "heavy": heavy}))
"""


def install(folder: Path) -> tuple[Path, int]:
    """Make an environment in ``folder`` and install a copy of the sources; return its ``bin``, and its bytes before.

    Raises:
        CalledProcessError: pip failed, for instance without a package index.
    """
    sources, venv = folder / "sources", folder / "venv"
    sources.mkdir()
    for name in SOURCES:
        # A copy, because a build leaves folders beside what it builds.
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, sources / name)
    subprocess.run([getattr(sys, "_base_executable", sys.executable), "-m", "venv", str(venv)], check=True)
    empty = size_of(venv)
    subprocess.run([str(venv / "bin/pip"), "install", "-q", str(sources)], check=True)
    return venv / "bin", empty


def size_of(folder: Path) -> int:
    """Bytes that a folder takes on disk. A file that has two names is counted once."""
    files = {(stat.st_dev, stat.st_ino): stat.st_blocks for stat in map(os.lstat, folder.rglob("*"))}
    return 512 * sum(files.values())


def look(binaries: Path) -> Installed:
    """What the environment holds."""
    done = subprocess.run(
        [str(binaries / "python"), "-I", "-c", _LOOK, *HEAVY], stdout=subprocess.PIPE, text=True, check=True
    )
    return Installed(size=size_of(binaries.parent), **json.loads(done.stdout))


def run_commands(binaries: Path, folder: Path) -> list[str]:
    """Run every command on the run that ships; return what failed, a line each."""
    run = str(ROOT / "results/data/cpu-demo")
    failed = []
    for command in COMMANDS:
        words = [run if word == "RUN" else word for word in command]
        done = subprocess.run(
            [str(binaries / "chunksmith"), *words], cwd=folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            failed.append(f"{' '.join(command)}: {done.stderr.strip()}")
    return failed


def main() -> int:
    """Install, look, run; return the exit code."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        binaries, empty = install(folder)
        failed = run_commands(binaries, folder)
        found = look(binaries)
    for package, size in list(found.packages.items())[:12]:
        print(f"{package:<20}{size / 1e6:>8.1f} MB")
    added = found.size - empty
    print(
        f"{'added on disk':<20}{added / 1e6:>8.1f} MB (at most {MOST_BYTES / 1e6:.0f}) to an empty {empty / 1e6:.1f} MB"
    )
    print(f"{len(COMMANDS) - len(failed)} of {len(COMMANDS)} commands work")
    for line in [*failed, *(f"{name} came along" for name in found.heavy)]:
        print(line)
    return 1 if failed or found.heavy or added > MOST_BYTES else 0


if __name__ == "__main__":
    sys.exit(main())
