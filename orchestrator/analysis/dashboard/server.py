"""The dashboard as a server on one port."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from types import TracebackType
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from optuna.storages import BaseStorage
from optuna_dashboard import wsgi

from orchestrator.analysis.dashboard.artifacts import RunArtifacts
from orchestrator.analysis.dashboard.view import RunView
from orchestrator.errors import ChunksmithError, UserError
from orchestrator.records import RunFolder
from orchestrator.records.store import RUN_ATTR, Address, Place, open_storage

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Dashboard:
    """Serves the dashboard of a run until it is closed. A context manager.

    Args:
        run: Folder of the run.
        host: Address to bind to; the default can be reached from this machine alone.
        port: 0 takes a free one.

    Raises:
        UserError: The run has no study yet, its storage does not answer, or the address cannot be bound.
    """

    def __init__(self, run: RunFolder, *, host: str = "127.0.0.1", port: int = 0) -> None:
        kept, study_id = _study(run)
        storage = RunView(kept, run, study_id)
        application = _reading(wsgi(storage, artifact_store=RunArtifacts(run)))
        try:
            self._server = make_server(host, port, application, server_class=_Server, handler_class=_Handler)
        except OSError as error:
            raise UserError(f"--host {host} --port {port}: cannot listen there: {error.strerror}") from error
        self.url = f"http://{host}:{self._server.server_port}/dashboard/studies/{study_id}"

    def serve(self) -> None:
        """Serve until the process is interrupted or another thread closes it."""
        self._server.serve_forever()

    def close(self) -> None:
        """Stop serving and free the port."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Dashboard:
        self._thread = threading.Thread(target=self.serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
        self._thread.join()


def _study(run: RunFolder) -> tuple[BaseStorage, int]:
    """Where the study of a run is kept, and its identifier there."""
    place = Place.read(run)
    address = Address.parse(place.address)
    if address.is_journal and not run.journal.exists():
        raise UserError(f"{run.path}: no study yet: {run.journal.name} is missing; a sweep writes it when it starts.")
    storage = open_storage(address, run.journal)
    for study in storage.get_all_studies():
        if address.is_journal or study.user_attrs.get(RUN_ATTR) == place.run:
            return storage, study._study_id
    where = run.journal if address.is_journal else address.text
    raise ChunksmithError(f"{where}: holds no study of this run yet; try again once the first trial was asked for.")


def _reading(application: Application) -> Application:
    """The application without anything that writes: the dashboard would delete a study, or tell a trial."""

    def respond(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return application(environ, start_response)
        start_response("405 Method Not Allowed", [("Content-Type", "application/json"), ("Allow", "GET, HEAD")])
        return [b'{"reason": "this dashboard only reads; the run belongs to its sweep"}']

    return respond


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Say nothing of each request."""
