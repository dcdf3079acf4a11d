from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.setup import Checkout, Stamp, reason_to_start_over

ROOT = Path(__file__).resolve().parents[2]
MINOR = (3, 11)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A checkout whose environment is whole, as far as set-up can see."""
    checkout = Checkout(tmp_path)
    checkout.python.parent.mkdir(parents=True)
    checkout.python.symlink_to(sys.executable)
    (checkout.venv / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.7\n")
    Stamp(root=str(tmp_path), base="b", dev="d").write(checkout.stamp)
    return checkout


def test_a_whole_environment_is_kept(checkout: Checkout) -> None:
    assert reason_to_start_over(checkout, MINOR) is None


def test_an_empty_checkout_has_nothing_to_remove(tmp_path: Path) -> None:
    assert reason_to_start_over(Checkout(tmp_path), MINOR) is None


def test_a_set_up_that_was_cut_short_starts_over(checkout: Checkout) -> None:
    checkout.busy.touch()
    assert reason_to_start_over(checkout, MINOR) == "the last set-up was cut short"


def test_an_environment_whose_python_is_gone_starts_over(checkout: Checkout) -> None:
    checkout.python.unlink()
    checkout.python.symlink_to("/nonexistent/python3.11")
    assert "is gone" in (reason_to_start_over(checkout, MINOR) or "")


def test_a_checkout_that_was_moved_starts_over(checkout: Checkout) -> None:
    Stamp(root="/elsewhere", base="b").write(checkout.stamp)
    assert reason_to_start_over(checkout, MINOR) == "the checkout has moved here from /elsewhere"


def test_another_python_starts_over(checkout: Checkout) -> None:
    assert reason_to_start_over(checkout, (3, 12)) == ".venv is not for Python 3.12"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"unheard": 1}', '"text"'])
def test_a_damaged_stamp_counts_as_none(checkout: Checkout, content: str) -> None:
    checkout.stamp.write_text(content)
    assert Stamp.read(checkout.stamp) == Stamp()


def find_python(path: Path, chosen: str = "") -> subprocess.CompletedProcess[str]:
    """Run the choice in an empty folder, with ``path`` alone on PATH."""
    return subprocess.run(
        ["/bin/sh", str(ROOT / "tools" / "find_python.sh")],
        capture_output=True,
        text=True,
        check=False,
        cwd=path,
        env={"PATH": str(path), "PYTHON": chosen},
    )


def program(path: Path, name: str, line: str) -> None:
    (path / name).write_text(f"#!/bin/sh\n{line}\n")
    (path / name).chmod(0o755)


def test_a_shim_that_fails_is_passed_over(tmp_path: Path) -> None:
    program(tmp_path, "python3.11", "echo 'python3.11: command not found' >&2; exit 127")
    program(tmp_path, "python3.12", f'exec {sys.executable} "$@"')
    assert find_python(tmp_path).stdout == "python3.12\n"


def test_a_choice_made_once_holds_until_a_set_up_is_cut_short(tmp_path: Path) -> None:
    program(tmp_path, "python3.11", f'exec {sys.executable} "$@"')
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    program(tmp_path / ".venv" / "bin", "python", f'exec {sys.executable} "$@"')
    assert find_python(tmp_path).stdout == ".venv/bin/python\n"
    (tmp_path / ".venv.busy").touch()
    assert find_python(tmp_path).stdout == "python3.11\n"


def test_no_fitting_python_is_one_line(tmp_path: Path) -> None:
    program(tmp_path, "python3", "exit 1")
    done = find_python(tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("setup: error: no Python 3.11 to 3.13")
    assert done.stderr.count("\n") == 1


def test_a_chosen_python_is_the_only_one_tried(tmp_path: Path) -> None:
    program(tmp_path, "python3.11", f'exec {sys.executable} "$@"')
    program(tmp_path, "old", "exit 1")
    assert find_python(tmp_path, str(tmp_path / "old")).returncode == 1
    assert find_python(tmp_path, sys.executable).stdout == f"{sys.executable}\n"


def test_only_one_host_stands_in_the_set_up() -> None:
    """Packages come from the index that pip is configured with; torch's CPU build has one fallback."""
    text = (ROOT / "tools" / "setup.py").read_text()
    assert [word for word in text.replace('"', " ").split() if "://" in word] == [
        "https://download.pytorch.org/whl/cpu"
    ]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
