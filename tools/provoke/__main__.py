"""``python -m tools.provoke OUT.jsonl [NAME ...]``: provoke the failures, one after the other, and keep their logs.

Needs root for the cases with a file system of their own. Only processes that it started are ended. An engine at a time:
run it under a lock where others start engines too.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

from orchestrator.engines.serve import names_environment
from orchestrator.engines.vllm import QUIET_ENV
from orchestrator.models import tiny_model
from tools.provoke import os_cases, ray_cases, server_cases, vllm_cases
from tools.provoke.case import Case
from tools.provoke.models import make_model

CASES = (*os_cases.CASES, *vllm_cases.CASES, *ray_cases.CASES, *server_cases.CASES)
MOST_LINES = 60
MOST_CHARACTERS = 600
ROOT = Path(__file__).resolve().parents[2]
_OF_OTHERS = re.compile(r"^\d+\t[\d.]+\t(?!ray::RayWorkerWrapper)|\[state-dump\]")
"""What Ray prints of the machine's other processes, and of its own counters."""

ENV = {
    **QUIET_ENV,
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}


def main() -> None:
    """Run the cases that are named, or all, and write one JSON object a line."""
    parser = argparse.ArgumentParser(description="Provoke failures and keep their logs.")
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    kept = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    by_name = {record["id"]: record for record in kept}
    for case in CASES:
        if options.names and case.name not in options.names:
            continue
        begin = time.perf_counter()
        by_name[case.name] = record = provoke(case)
        print(f"{case.name}: exit code {record['exit_code']}, {time.perf_counter() - begin:.0f} s", flush=True)
        order = {other.name: place for place, other in enumerate(CASES)}
        records = sorted(by_name.values(), key=lambda record: order.get(record["id"], len(order)))
        options.out.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))


def provoke(case: Case) -> dict[str, Any]:
    """Run one case and return its record: class, phase, exit code and the end of its log."""
    with tempfile.TemporaryDirectory(prefix="provoke-") as name:
        work = Path(name)
        work.chmod(0o777)
        model = make_model(tiny_model(), case.model, work)
        text, exit_code = _run(_command(case, model, work), case, work, model)
    lines = [_clean(line, model, work) for line in text.splitlines() if not _OF_OTHERS.search(line)]
    return {
        "id": case.name,
        "label": case.label,
        "phase": case.phase,
        "exit_code": exit_code,
        "log": lines[-MOST_LINES:],
    }


def _command(case: Case, model: Path, work: Path) -> list[str]:
    if case.command:
        words = shlex.split(case.command.format(python=sys.executable, model=model, work=work))
    else:
        script = work / "script.py"
        # Processes that vLLM spawns import the script again.
        body = textwrap.indent(f"MODEL, FULL = {str(model)!r}, '/mnt'\n{case.script}\n", "    ")
        script.write_text(f"if __name__ == '__main__':\n{body}")
        words = [sys.executable, str(script)]
    if case.as_nobody:
        words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *words]
    mounts = []
    if case.shared_mb is not None:
        mounts.append(f"mount -t tmpfs -o size={case.shared_mb}m tmpfs /dev/shm")
    if case.full_disk_mb is not None:
        mounts.append(f"mount -t tmpfs -o size={case.full_disk_mb}m tmpfs /mnt")
    if mounts:
        words = ["unshare", "--mount", "sh", "-c", " && ".join([*mounts, 'exec "$@"']), "sh", *words]
    return words


def _run(words: list[str], case: Case, work: Path, model: Path) -> tuple[str, int | None]:
    """Output of a command, both streams together, and its exit code; None where it had to be ended."""
    extra = {key: value.format(work=work, model=model) for key, value in case.env.items()}
    names = names_environment(work).values() if case.named else ()
    environment = {**os.environ, **ENV, **extra, "PYTHONPATH": os.pathsep.join([str(ROOT), *names])}
    log = work / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            words, stdout=output, stderr=subprocess.STDOUT, cwd=work, env=environment, start_new_session=True
        )
        try:
            exit_code: int | None = process.wait(case.timeout_s)
        except subprocess.TimeoutExpired:
            exit_code = None
        finally:
            _end_group(process)
    return log.read_text(errors="replace"), exit_code


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End what a case left behind in its own session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait(10)


def _clean(line: str, model: Path, work: Path) -> str:
    """A line without paths, addresses and the name of this machine."""
    for path, name in ((model, "/path/to/model"), (work, "/path/to/scratch"), (tiny_model(), "/path/to/model")):
        line = line.replace(str(path), name)
    line = line.replace(f"{Path(sys.prefix)}/", "/path/to/env/").replace(f"{ROOT}/", "/path/to/repo/")
    line = line.replace(f"{Path.home()}/", "/path/to/home/").replace(socket.gethostname(), "host-1")
    line = re.sub(r"\b(?!127\.0\.0\.1|0\.0\.0\.0)\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b", "10.0.0.1", line)
    return line if len(line) <= MOST_CHARACTERS else line[:MOST_CHARACTERS] + "..."


if __name__ == "__main__":
    main()
