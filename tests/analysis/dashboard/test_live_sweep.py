"""The dashboard in a real browser while a sweep runs: what can be deployed and what cannot stand apart, and no other
host can look."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from PIL import Image
from playwright.sync_api import Page

from orchestrator.records import RunFolder, read_table
from tests.analysis.dashboard.reach import require_this_host_alone
from tests.browsers import chromium
from tests.sweep.studies import make_spec, new_run

ROOT = Path(__file__).resolve().parents[3]
WAIT_S = 90.0

SPEC: dict[str, Any] = {
    "engine": {
        "kind": "kernel_lab",
        "args": {
            "layers": {"dense": 1},
            "heads": 2,
            "max_model_len": 4096,
            "max_num_batched_tokens": 256,
            "max_num_seqs": 4,
        },
    },
    "space": {
        "mla_workspace_rows": {"scope": "live", "values": [64, 128, 256, 512, 1024, 2048, 4096]},
        "workload.input_len": {"scope": "load", "values": [300, 2000]},
    },
    "workload": {"prompts": 1, "input_len": 300, "output_len": 1},
    # Between what a short prompt takes and what a long one does, several times off both.
    "slo": {"ttft_ms": 30, "share": 0.5},
    "trials": 14,
    "blocks": {"warmup": 1, "min_pairs": 40, "max_pairs": 40},
    "confirm": {"points": 3, "pairs": 100},
    "accuracy": {"prompts": 1, "input_len": 600, "output_len": 2},
}


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[str]]:
    """Python with these words, ended afterwards if it has not ended itself."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True, env=env) as started:
        try:
            yield started
        finally:
            started.kill()


def until(ready: Callable[[], bool], sweep: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not ready():
        assert sweep.poll() is None, "the sweep ended before"
        assert time.monotonic() < deadline
        time.sleep(0.2)


def numbers_of(run: RunFolder, outcome: str) -> list[int]:
    """Trials recorded so far that ended this way."""
    if not run.table("trials").exists():
        return []
    trials = read_table(run.path, "trials", columns=["trial", "outcome"])
    return sorted(trials.loc[trials["outcome"] == outcome, "trial"])


def require_apart(page: Page, url: str, feasible: int, infeasible: int, picture: Path) -> None:
    """What the pages show of a trial of either kind, and of all in the plot of both. The picture is of the infeasible
    one, beside the list of all."""
    for number, state, outcome in ((feasible, "Complete", "complete"), (infeasible, "Pruned", "infeasible")):
        page.goto(f"{url}/trials?numbers={number}")
        page.get_by_role("heading", name=f"Trial {number} ").wait_for()
        page.get_by_text(outcome, exact=True).first.wait_for()
        assert page.get_by_text(state, exact=True).count() >= 2  # in the list, and above the note
        assert page.get_by_text("plan.svg").count() == (outcome == "complete")
    page.screenshot(path=picture)
    page.goto(url)
    for entry in ("complete", "infeasible: slo"):
        page.locator(".legendtext", has_text=entry).first.wait_for()


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_running_sweep_is_shown_to_this_host_alone(tmp_path: Path) -> None:
    run = new_run(tmp_path / "run", make_spec(model="kernel-lab", **SPEC))
    with process("-m", "tests.analysis.dashboard.sweeping_child", str(run.path)) as sweep:
        until(lambda: bool(numbers_of(run, "complete") and numbers_of(run, "infeasible")), sweep)
        with process("-m", "orchestrator.cli", "dashboard", str(run.path), "--quiet") as dashboard:
            assert dashboard.stdout is not None
            url = dashboard.stdout.readline().strip()
            port = urlsplit(url).port
            assert port is not None
            with chromium() as browser:
                page = browser.new_page(viewport={"width": 1280, "height": 800})
                page.set_default_timeout(WAIT_S * 1000)
                feasible, infeasible = numbers_of(run, "complete")[0], numbers_of(run, "infeasible")[0]
                require_apart(page, url, feasible, infeasible, tmp_path / "live.png")
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/studies/0", timeout=30) as answer:
                states = [trial["state"] for trial in json.load(answer)["trials"]]
            # Still at it: some trial is being measured.
            assert sweep.poll() is None
            assert "Running" in states
            listening = psutil.Process(dashboard.pid).net_connections(kind="inet")
            assert {one.laddr.ip for one in listening if one.status == psutil.CONN_LISTEN} == {"127.0.0.1"}
            require_this_host_alone(port)
        image = Image.open(tmp_path / "live.png").convert("RGB")
        assert image.size == (1280, 800)
        assert len(image.getcolors(2**24) or []) > 100
