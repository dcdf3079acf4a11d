"""What the blocks of the pages need, and how the tests provide it: the table ``PROVIDERS``."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
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
from tests.docs.commands import Run, run_here, run_in_shell, run_long, run_until_stopped
from tests.docs.long_providers import LONG
from tests.docs.provided import Provided, Provider
from tests.jobs.test_ray_job import free_port
from tests.postgres import PASSWORD, postgres

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
    **LONG,
}
"""What a comment can ask for, by name."""
