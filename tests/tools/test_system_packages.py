"""What the tests need of the system."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools.system_packages import PROGRAMS, missing, which


def test_only_what_is_not_there_is_missing() -> None:
    assert missing(lambda program: f"/usr/bin/{program}") == []
    assert missing(lambda program: None) == list(PROGRAMS)


def test_without_rights_or_apt_it_says_what_to_install(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "tools" / "system_packages.py"
    # On an empty PATH there is neither a program nor apt-get.
    done = subprocess.run([sys.executable, str(script)], env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout in (
        # PostgreSQL's server is found without the PATH.
        "setup: error: the tests need chromium; on Debian: apt-get install chromium fonts-dejavu-core\n",
        "setup: error: the tests need chromium, postgres; on Debian: apt-get install chromium fonts-dejavu-core "
        "postgresql\n",
    )


def test_of_several_postgresqls_the_newest_is_taken(tmp_path: Path) -> None:
    assert which("no-such-program", tmp_path) is None
    for version in ("9.6", "15", "17"):
        program = tmp_path / version / "bin" / "no-such-program"
        program.parent.mkdir(parents=True)
        program.touch(0o755)
    assert which("no-such-program", tmp_path) == str(tmp_path / "17" / "bin" / "no-such-program")
