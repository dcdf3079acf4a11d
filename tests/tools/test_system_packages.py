"""What the tests need of the system."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools.system_packages import PROGRAMS, missing


def test_only_what_is_not_there_is_missing() -> None:
    assert missing(lambda program: f"/usr/bin/{program}") == []
    assert missing(lambda program: None) == list(PROGRAMS)


def test_without_rights_or_apt_it_says_what_to_install(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "tools" / "system_packages.py"
    # On an empty PATH there is neither the program nor apt-get.
    done = subprocess.run([sys.executable, str(script)], env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == (
        "setup: error: the tests need chromium; on Debian: apt-get install chromium fonts-dejavu-core\n"
    )
