"""Ways to run a command of a page."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import urllib.request
from collections.abc import Callable

from orchestrator.cli import main

Run = Callable[[str], object]
"""Runs a command; raises AssertionError if it fails."""

TIMEOUT_S = 60.0
SOAK_TIMEOUT_S = 1500.0
PRINTED_ADDRESS = re.compile(r"http://\S+")


def run_here(line: str) -> None:
    """A command of ours in this process, anything with a pipe or another program in a shell."""
    words = shlex.split(line, comments=True)
    if words[0] == "chunksmith" and not {"|", ">", "&&"} & set(words):
        assert main(words[1:]) == 0, line
    else:
        run_in_shell(line)


def run_in_shell(line: str, timeout_s: float = TIMEOUT_S) -> str:
    """Any command, as it stands; what it printed."""
    # The second line keeps bash from becoming the command: some look at the shell that they were typed in.
    done = subprocess.run(["bash", "-ec", f"{line}\n:"], capture_output=True, text=True, check=False, timeout=timeout_s)
    assert done.returncode == 0, f"{line}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def run_long(line: str) -> str:
    """A command that takes minutes; what it printed."""
    return run_in_shell(line, SOAK_TIMEOUT_S)


def run_resolved(line: str) -> None:
    """An installation of vLLM for GPUs, gigabytes: pip finds a version of all that it takes, and leaves it at that."""
    printed = run_long(line.replace("pip install", "pip install --dry-run"))
    assert re.search(r"^Would install .*\bchunksmith-.*\bvllm-", printed, re.MULTILINE), f"{line}: {printed[-2000:]}"


def run_measured(line: str) -> None:
    """``chunksmith export --measure``: it measures, and says what it found. What it finds, on a machine that others use
    too, is not for a test to expect: intervals without a common ratio are an answer, with exit code 1."""
    done = subprocess.run(line, shell=True, capture_output=True, text=True, check=False, timeout=SOAK_TIMEOUT_S)
    printed = done.stdout[-2000:] + done.stderr[-2000:]
    assert "measured under vllm serve: " in printed, f"{line}: {printed}"
    assert done.returncode == ("no ratio in common" in printed), f"{line}: {printed}"


def run_until_stopped(line: str) -> None:
    """A server: it prints an address, answers there, and ends as a program does that Ctrl-C stops."""
    with subprocess.Popen(
        ["bash", "-ec", f"exec {line}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            printed = server.stdout.readline()
            address = PRINTED_ADDRESS.search(printed)
            assert address is not None, f"{line}: {printed}"
            with urllib.request.urlopen(address[0], timeout=TIMEOUT_S) as answer:
                assert answer.status == 200
            server.send_signal(signal.SIGINT)
            assert server.wait(TIMEOUT_S) == 130, f"{line}: {server.stdout.read()}"
        finally:
            server.kill()
