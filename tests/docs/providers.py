"""What the blocks of the pages need, and how the tests provide it: the table ``PROVIDERS``."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator import cluster
from orchestrator.cli import main
from orchestrator.engines.kernel_lab.engine import KernelLabEngine
from orchestrator.measurement.testing import MODEL, MockServer, MockSettings
from tests import s3
from tests.docs.blocks import ROOT
from tests.docs.commands import Run, run_here, run_in_shell, run_long, run_measured, run_until_stopped
from tests.jobs.test_ray_job import free_port, wait_for_dashboard
from tests.postgres import PASSWORD, postgres
from tools.light_install import SOURCES

BIN = Path(sys.executable).parent
LAB: dict[str, Any] = {
    "version": 1,
    "study": "cpu-demo",
    "engine": {
        "kind": "kernel_lab",
        "args": {
            "layers": {"dense": 1},
            "heads": 2,
            "max_model_len": 1024,
            "max_num_batched_tokens": 256,
            "max_num_seqs": 2,
        },
    },
    "space": {"max_num_batched_tokens": {"scope": "live", "values": [128, 256]}},
    "workload": {"prompts": 1, "input_len": 512},
    "load": {"concurrency": 1},
    "trials": 1,
    "blocks": {"warmup": 0, "min_pairs": 2, "max_pairs": 2},
    "confirm": {"points": 0},
    "accuracy": {"prompts": 1, "input_len": 300, "output_len": 2},
    "soak": {"rounds": 0},
}
"""A sweep of about a second, on one request at a time: a busy machine makes it slow, and nothing of it late."""

AREA: dict[str, Any] = {
    "study": "lab-dsv4-area",
    "engine": LAB["engine"] | {"args": LAB["engine"]["args"] | {"layers": {"c4a": 1}, "head_dim": 64}},
}
LADDER: dict[str, Any] = {
    "study": "lab-fidelity",
    "fidelity": {"rungs": ["planning", "short", "full"], "eta": 2, "short": {"pairs": 2, "share": 0.67}},
    "space": {"max_num_batched_tokens": {"scope": "live", "values": [64, 128, 192, 256]}},
    "workload": {"prompts": 3, "input_len": 512},
}
"""The same under the names of specs that ship, as far as pages read their runs."""

SHORTENED: dict[str, Any] = {
    "trials": 2,
    "blocks": {"warmup": 0, "min_pairs": 2, "max_pairs": 2},
    "confirm": {"points": 1, "pairs": 2},
}
"""Of the specs that ship, where the point is that they run."""


@dataclass(frozen=True)
class Provided:
    """What a block finds.

    Attributes:
        words: What stands in place of a host, a port or a name that a page can only give as an example.
        run: How its commands are run; None leaves that to what else it needs.
    """

    words: Mapping[str, str] = field(default_factory=dict)
    run: Run | None = None


Provider = Callable[[Path, pytest.MonkeyPatch], AbstractContextManager[Provided]]
"""Gets the folder in which the block is run, and what may be patched for so long."""


@contextmanager
def provided(names: tuple[str, ...], folder: Path) -> Iterator[tuple[dict[str, str], Run]]:
    """All that a block needs: the words, and how to run its commands."""
    words: dict[str, str] = {}
    run: Run = run_here
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        for name in names:
            found = stack.enter_context(PROVIDERS[name](folder, patch))
            words |= found.words
            run = found.run or run
        yield words, run


@contextmanager
def _shell(_: Path, __: pytest.MonkeyPatch) -> Iterator[Provided]:
    """A process of its own, so that the tests' own does not import vLLM."""
    yield Provided(run=run_long)


@contextmanager
def _home(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Provided]:
    """A home directory that has no start-up files yet; one must be written."""
    home = folder / "home"
    home.mkdir()
    patch.setenv("HOME", str(home))
    yield Provided(run=run_in_shell)
    assert "chunksmith" in (home / ".bashrc").read_text()


@contextmanager
def _server(folder: Path, _: pytest.MonkeyPatch) -> Iterator[Provided]:
    """An OpenAI-compatible server, and a spec whose load it can be given."""
    spec = folder / "of-the-load.yaml"
    spec.write_text(yaml.safe_dump(LAB, sort_keys=False))
    # A block is valid if no request was sent late, by 2 % of the time to the first token: on a busy machine 2 s of it.
    with MockServer(MockSettings(ttft_s=2.0, itl_s=0.0001)) as server:
        yield Provided({"http://localhost:8000": server.url, "org/model": MODEL, "NAME": MODEL, "SPEC": spec.name})


@contextmanager
def _bucket(_: Path, patch: pytest.MonkeyPatch) -> Iterator[Provided]:
    """The bucket ``results``, empty."""
    with s3.s3_server() as endpoint:
        s3.use(endpoint, patch)
        # Servers of one process share their buckets.
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/moto-api/reset", method="POST")).close()
        s3.make_bucket(endpoint, "results")
        yield Provided({"https://minio.example:9000": endpoint})


@contextmanager
def _bucket_of_runs(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Provided]:
    """The bucket ``results`` with the runs that pages read there."""
    # The page of the commands writes one above, and a copy takes no folder that is there.
    shutil.rmtree(folder / "cpu-demo", ignore_errors=True)
    with _bucket(folder, patch) as found:
        for name in ("cpu-demo", "vllm-031", "vllm-032"):
            assert main(["records", "mirror", f"runs/{name}", "--to", "s3://results/runs", "--quiet"]) == 0
        yield found


@contextmanager
def _database(_: Path, patch: pytest.MonkeyPatch) -> Iterator[Provided]:
    """The database ``studies``."""
    with postgres() as server:
        patch.setenv("PGPASSWORD", PASSWORD)
        yield Provided({"postgresql://ann@db.example:5432/studies": server.create("studies")})


_NUMBERS = itertools.count()


class LocalLab(KernelLabEngine):
    """The kernel lab in this process, in place of an actor of Ray's."""

    def __init__(self, log_dir: Path, **_: object) -> None:
        self.engine_id = f"lab-{next(_NUMBERS)}"
        self.log_path = str(log_dir / f"{self.engine_id}.log")
        super().__init__(self.engine_id, self.log_path)


@contextmanager
def _lab(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Provided]:
    """``spec.yaml``, a sweep that needs no Ray; its run must not be there yet."""
    patch.setattr(cluster, "RayEngine", LocalLab)
    patch.setattr(cluster, "ray_session", lambda *_, **__: nullcontext())
    patch.setattr(cluster, "engines_that_fit", lambda most, **_: most)
    (folder / "spec.yaml").write_text(yaml.safe_dump(LAB, sort_keys=False))
    run, kept = folder / "runs/cpu-demo", folder / "kept"
    run.rename(kept)
    yield Provided()
    # What follows on the page means the run that ships.
    shutil.rmtree(run, ignore_errors=True)
    kept.rename(run)


@contextmanager
def _lab_run(changes: dict[str, Any], folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Provided]:
    """The run of such a sweep."""
    with _lab(folder, patch) as found:
        Path("spec.yaml").write_text(yaml.safe_dump(LAB | changes, sort_keys=False))
        assert main(["sweep", "spec.yaml", "--quiet"]) == 0
        yield found


@contextmanager
def _until_stopped(_: Path, __: pytest.MonkeyPatch) -> Iterator[Provided]:
    """Somebody who stops it once it has answered."""
    yield Provided({"8080": str(free_port())}, run_until_stopped)


@contextmanager
def _engine(_: Path, __: pytest.MonkeyPatch) -> Iterator[Provided]:
    """Time for vLLM."""
    # A round is 40 s on a CPU, and the second is as the first.
    yield Provided({"--rounds 20": "--rounds 1", "--rounds 3": "--rounds 2"}, run_long)


@contextmanager
def _servers(_: Path, __: pytest.MonkeyPatch) -> Iterator[Provided]:
    """Time for two servers, over and over."""
    yield Provided(run=run_measured)


@contextmanager
def _short_sweeps(folder: Path, _: pytest.MonkeyPatch) -> Iterator[Provided]:
    """Time for sweeps, specs that take little of it, and no runs yet."""
    shutil.rmtree(folder / "runs")
    assert main(["init", "--model", "tiny-mla", "--input-len", "8192", "-o", "rehearsal.yaml", "--quiet"]) == 0
    for path in (*(folder / "search_spaces").glob("*.yaml"), folder / "rehearsal.yaml"):
        _shorten(path)
    yield Provided(run=run_long)
    for run in (folder / "runs").iterdir():
        assert (run / "trials").is_dir(), run


@contextmanager
def _ray_cluster(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Provided]:
    """A Ray head node that takes jobs, and a working folder to submit."""
    for name in ("jobs", "orchestrator"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    patch.setenv("RAY_AUTH_MODE", "token")
    patch.setenv("RAY_AUTH_TOKEN", "a-token-for-this-test-only-0123456789")
    patch.setenv("CHUNKSMITH_RUNS", str(folder / "runs"))
    dashboard = free_port()
    command = [str(BIN / "ray"), "start", "--head", "--block", "--num-cpus=2", f"--port={free_port()}"]
    command += [f"--dashboard-port={dashboard}", "--dashboard-host=127.0.0.1", "--node-ip-address=127.0.0.1"]
    # Where Ray's own choice of a port is taken, by another Ray, the agent goes on without starting jobs.
    command += ["--object-store-memory=134217728", f"--dashboard-agent-listen-port={free_port()}"]
    with (folder / "head.log").open("wb") as log:
        head = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        wait_for_dashboard(f"http://127.0.0.1:{dashboard}", head, folder / "head.log")
        address = f"http://127.0.0.1:{dashboard}"
        yield Provided({"http://HEAD:8265": address, "http://127.0.0.1:8265": address}, run_long)
    finally:
        head.terminate()
        head.wait(timeout=60)


@contextmanager
def _checkout(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Provided]:
    """This checkout, where ``make`` sweeps for a short time into another folder."""
    patch.chdir(ROOT)
    patch.setenv("ARGS", f"--trials 2 --run {folder / 'run'}")
    # `make test` is what runs the other blocks, and would take its 10 minutes once more.
    yield Provided({"make test": "make --dry-run test"}, run_long)
    assert (folder / "run/trials").is_dir()


@contextmanager
def _on_cpu(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Provided]:
    """What a script for a GPU can do without one, in this checkout."""
    patch.chdir(ROOT)
    words = {"[--out FOLDER]": f"--device cpu --quick --out {folder / 'lab'}"}
    yield Provided(words, run_long)
    assert (folder / "lab/summary.md").is_file()


@contextmanager
def _dry_run(_: Path, __: pytest.MonkeyPatch) -> Iterator[Provided]:
    """Engines that are told and not started, for their GPUs are not here."""
    yield Provided({"deepseek_v3_dcp.yaml": "deepseek_v3_dcp.yaml --dry-run"})


@contextmanager
def _fresh_environment(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[Provided]:
    """A virtual environment with nothing in it, and the sources."""
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    python = getattr(sys, "_base_executable", sys.executable)
    subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True)
    patch.setenv("PATH", f"{folder / 'venv/bin'}{os.pathsep}{os.environ['PATH']}")
    patch.delenv("PYTHONPATH")
    patch.delenv("PIP_NO_INDEX")
    yield Provided(run=run_long)
    subprocess.run([str(folder / "venv/bin/chunksmith"), "best", "runs/cpu-demo"], check=True, capture_output=True)


def _shorten(path: Path) -> None:
    """Write the spec with fewer trials and blocks."""
    content: dict[str, Any] = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(content | SHORTENED, sort_keys=False))


PROVIDERS: dict[str, Provider] = {
    "own-process": _shell,
    "home": _home,
    "server": _server,
    "s3": _bucket,
    "s3-with-runs": _bucket_of_runs,
    "postgresql": _database,
    "lab": _lab,
    "lab-run": partial(_lab_run, {}),
    "lab-fidelity-run": partial(_lab_run, LADDER),
    "lab-dsv4-area-run": partial(_lab_run, AREA),
    "ctrl-c": _until_stopped,
    "engine": _engine,
    "servers": _servers,
    "short-sweeps": _short_sweeps,
    "ray-cluster": _ray_cluster,
    "dry-run": _dry_run,
    "on-cpu": _on_cpu,
    "checkout": _checkout,
    "fresh-environment": _fresh_environment,
}
"""What a comment can ask for, by name. The last eight are for ``make test-docs``: they take minutes."""
