"""Studies in PostgreSQL, which really runs, and behind a storage proxy."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
import time
import urllib.request
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from orchestrator.analysis import best
from orchestrator.analysis.dashboard import Dashboard
from orchestrator.engines import BlockResult, StopRule
from orchestrator.engines.faulty import Faults, FaultyEngine, FaultyEngines
from orchestrator.errors import ChunksmithError, UserError
from orchestrator.records import RunFolder
from orchestrator.records.store import PASSWORD_ENV, Address, Place, open_storage
from orchestrator.workloads import Request, Schedule
from tests.postgres import PASSWORD, Postgres, postgres
from tests.sweep.studies import journal, make_spec, new_run, points, read, require_whole, run_sweep


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as server:
        yield server


@pytest.fixture
def database(server: Postgres, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of an empty database; the password is in the environment."""
    monkeypatch.setenv(PASSWORD_ENV, PASSWORD)
    return server.create(f"db{zlib.crc32(request.node.name.encode())}")


def with_password(url: str) -> str:
    return url.replace("://ann@", f"://ann:{quote(PASSWORD, safe='')}@")


def require_no_password(run: RunFolder, *texts: str) -> None:
    files = {str(path): path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    for where, content in (files | {text[:40]: text.encode() for text in texts}).items():
        for secret in (PASSWORD, quote(PASSWORD, safe=""), "s3cret"):
            assert secret.encode() not in content, where


def test_a_sweep_on_postgresql_is_whole_and_keeps_no_password(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PASSWORD_ENV)
    url = with_password(database)
    monkeypatch.setattr(sys, "argv", ["chunksmith", "sweep", "x.yaml", "--storage", url])
    spec, output = make_spec(storage=url), io.StringIO()
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run, output=output)
    monkeypatch.setenv(PASSWORD_ENV, PASSWORD)
    require_whole(run, spec)
    require_no_password(run, output.getvalue())
    assert not run.journal.exists()
    assert json.loads((run.path / "storage.json").read_text())["address"] == database
    in_the_run = make_spec()
    other = new_run(tmp_path / "other", in_the_run)
    run_sweep(in_the_run, other)
    assert points(run) == points(other)
    assert best(run.path).point == best(other.path).point


def test_stopped_and_resumed_by_what_is_recorded_while_the_dashboard_reads(tmp_path: Path, database: str) -> None:
    spec = make_spec(storage=database, trials=5, confirm__points=0)
    run = new_run(tmp_path / "run", spec)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(spec, run, FaultyEngines(Faults(run_errors={16: KeyboardInterrupt()})))
    with Dashboard(run) as dashboard:
        before = shown(dashboard)
        assert {trial["state"] for trial in before} == {"Complete", "Running"}
        run_sweep(spec, run)
        require_whole(run, spec)
        # Optuna's dashboard keeps what it has read for 2 s.
        deadline = time.monotonic() + 20.0
        while len(after := shown(dashboard)) < 5 or {trial["state"] for trial in after} != {"Complete"}:
            assert time.monotonic() < deadline, after
            time.sleep(0.1)
        assert len(after) == 5
        assert len(before) < 5


def shown(dashboard: Dashboard) -> list[dict[str, Any]]:
    """The trials as Optuna's dashboard has them now."""
    server, _, study = dashboard.url.partition("/dashboard/studies/")
    with urllib.request.urlopen(f"{server}/api/studies/{study}?after=0") as answer:
        found: list[dict[str, Any]] = json.loads(answer.read())["trials"]
    return found


class _Interrupting(FaultyEngine):
    """Fault injection: the database goes in the middle of a block and is back a second after."""

    def __init__(self, server: Postgres, at: int) -> None:
        super().__init__()
        self._server, self._at = server, at

    def run(
        self, requests: Sequence[Request], schedule: Schedule, *, top2: bool = False, stop: StopRule | None = None
    ) -> BlockResult:
        if self.blocks == self._at:
            self._server.stop()
            threading.Timer(1.0, self._server.start).start()
        return super().run(requests, schedule, top2=top2, stop=stop)


def test_the_loss_of_the_database_is_survived(tmp_path: Path, server: Postgres, database: str) -> None:
    spec, output = make_spec(storage=database, trials=3), io.StringIO()
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run, lambda: _Interrupting(server, 11), output)
    require_whole(run, spec)
    assert "study storage: no answer (" in output.getvalue()
    assert "study storage: answers again after" in output.getvalue()
    require_no_password(run, output.getvalue())


def test_two_runs_of_one_name_are_not_mixed(tmp_path: Path, database: str) -> None:
    small: dict[str, Any] = {"storage": database, "trials": 1, "confirm__points": 0}
    spec = make_spec(**small)
    run_sweep(spec, new_run(tmp_path / "first", spec))
    second = new_run(tmp_path / "second", spec)
    with pytest.raises(UserError, match="holds a study 'small' of another run; give this one another name"):
        run_sweep(spec, second)
    other = make_spec(**small, study="other")
    run = new_run(tmp_path / "third", other)
    run_sweep(other, run)
    require_whole(run, other)
    with Dashboard(run) as dashboard:
        assert len(shown(dashboard)) == other.trials


def test_many_may_begin_on_an_empty_database(tmp_path: Path, database: str) -> None:
    with ThreadPoolExecutor(4) as threads:
        opened = list(threads.map(lambda _: open_storage(Address.parse(database), tmp_path / "no.journal"), range(4)))
    assert [storage.get_all_studies() for storage in opened] == [[]] * 4


def test_a_password_file_is_enough(
    tmp_path: Path, server: Postgres, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PASSWORD_ENV)
    passwords = tmp_path / "pgpass"
    passwords.write_text(f"127.0.0.1:{server.port}:*:ann:{PASSWORD}\n")
    passwords.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(passwords))
    assert open_storage(Address.parse(database), tmp_path / "no.journal").get_all_studies() == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda url: url.replace("ann@", "ann:wrong@"), "no answer: .*authentication failed"),
        (lambda url: url.replace("127.0.0.1:", "127.0.0.1:1"), "no answer|Port out of range"),
        (lambda url: url.replace("postgresql:", "postgresql+nodriver:"), "nodriver"),
        (lambda url: url.replace("postgresql:", "mysql+pymysql:"), "driver is missing"),
        (lambda url: "grpc://127.0.0.1:1", "no answer"),
    ],
)
def test_a_storage_that_cannot_be_reached_is_one_line(tmp_path: Path, database: str, change: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        open_storage(Address.parse(change(database)), tmp_path / "no.journal")
    assert "\n" not in str(error.value)
    assert "wrong" not in str(error.value)
    assert "s3cret" not in str(error.value)


def test_a_study_does_not_change_its_storage_on_the_way(tmp_path: Path, database: str) -> None:
    spec = make_spec(trials=1, confirm__points=0)
    run = new_run(tmp_path / "run", spec)
    run_sweep(spec, run)
    with pytest.raises(ChunksmithError, match="its study is kept in journal, and a resumed run goes on there"):
        run_sweep(make_spec(storage=database), run)


def test_a_storage_proxy_serves_a_sweep(tmp_path: Path) -> None:
    child = [sys.executable, "-m", "tests.sweep.proxy_child", str(tmp_path / "behind.journal")]
    with subprocess.Popen(child, stdout=subprocess.PIPE, text=True) as proxy:
        try:
            assert proxy.stdout is not None
            port = int(proxy.stdout.readline())
            spec = make_spec(storage=f"grpc://127.0.0.1:{port}", trials=2, confirm__points=0)
            run = new_run(tmp_path / "run", spec)
            run_sweep(spec, run)
            require_whole(run, spec)
            assert Place.read(run).address == spec.storage
            assert len(read(run, "trials")) == len(journal(run))
        finally:
            proxy.kill()
