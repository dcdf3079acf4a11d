"""A run's records in an object storage, brought up to date from the run folder, which stays the truth."""

from __future__ import annotations

import hashlib
from typing import Final

from orchestrator.errors import ChunksmithError
from orchestrator.records.folder import RunFolder
from orchestrator.records.remote.place import Place, RemoteError
from orchestrator.records.remote.table_mirror import TableMirror
from orchestrator.records.schemas import SCHEMAS

IN_ORDER: Final = ("requests", "blocks", "trials")
"""Tables, as they are sent: what has a row in ``trials`` has its blocks and requests there."""


class Mirror:
    """The three tables with their manifests, ``spec.yaml``, ``provenance.json`` and the results of soaks. The journal
    and the logs stay in the run folder. One process and thread at a time; it holds the run.
    """

    def __init__(self, run: RunFolder, place: Place) -> None:
        assert set(IN_ORDER) == set(SCHEMAS)
        self._run, self._place = run, place
        self._tables = {name: TableMirror(run.table(name), place) for name in IN_ORDER}
        self._documents: dict[str, str] = {}
        self._is_known = False

    @property
    def address(self) -> str:
        """Where the records go."""
        return self._place.address

    @property
    def damaged(self) -> list[str]:
        """Files of the run folder that are not what was written, and were not sent."""
        return [f"{name}/{file}" for name, table in self._tables.items() for file in sorted(table.damaged)]

    def send(self, *, verify: bool = False) -> int:
        """Bring the storage up to date; returns how many objects were written or removed, manifests aside.

        Args:
            verify: Read back what is there at the first call, and replace what is not what it should be.

        Raises:
            RemoteError: The storage does not answer. What it has is consistent, and the next call goes on.
            ChunksmithError: A file of the run cannot be read.
        """
        try:
            return self._send(verify)
        except RemoteError:
            # Whether the last object arrived is not known.
            self._is_known = False
            raise
        except OSError as error:
            raise ChunksmithError(f"{error.filename or self._run.path}: cannot read: {error.strerror}.") from error

    def missing(self) -> list[str]:
        """Names of objects that are not there as the run folder has them. Asks nobody.

        Raises:
            ChunksmithError: A file of the run cannot be read.
        """
        try:
            tables = [name for table in self._tables.values() for name in table.missing()]
            return [*tables, *(name for name, text in self._read_documents().items() if self._is_unsent(name, text))]
        except OSError as error:
            raise ChunksmithError(f"{error.filename or self._run.path}: cannot read: {error.strerror}.") from error

    def _send(self, verify: bool) -> int:
        if not self._is_known:
            names = self._place.names()
            for table in self._tables.values():
                table.look(names, verify=verify)
            self._documents = {}
            self._is_known = True
        # Before the others are: what a trial needs of them was written before its row.
        trials = list(self._tables["trials"].changed())
        sent = self._send_document("spec.yaml")
        for name in IN_ORDER:
            sent += self._tables[name].send(trials if name == "trials" else self._tables[name].changed())
        return sent + sum(self._send_document(name) for name in self._read_documents())

    def _read_documents(self) -> dict[str, bytes]:
        paths = [self._run.spec, self._run.provenance, *sorted((self._run.path / "soak").glob("trial-*.json"))]
        return {str(path.relative_to(self._run.path)): path.read_bytes() for path in paths if path.exists()}

    def _send_document(self, name: str) -> int:
        path = self._run.path / name
        content = path.read_bytes() if path.exists() else b""
        if not content or not self._is_unsent(name, content):
            return 0
        self._place.write(name, content)
        self._documents[name] = hashlib.sha256(content).hexdigest()
        return 1

    def _is_unsent(self, name: str, content: bytes) -> bool:
        return self._documents.get(name) != hashlib.sha256(content).hexdigest()
