"""``storage.json`` of a run: where its study is kept, when that is not the run folder itself."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.errors import ChunksmithError
from orchestrator.records.atomic import write_text_atomic
from orchestrator.records.folder import RunFolder
from orchestrator.records.store.address import JOURNAL, Address

FILE = "storage.json"

RUN_ATTR = "chunksmith:run"
"""User attribute of a study in a database: the run that it belongs to."""


@dataclass(frozen=True)
class Place:
    """Where the study of a run is.

    Attributes:
        address: Without a password.
        run: Identifier that the study carries too, as an attribute. A database holds the studies of many runs, and two
            may have one name.
    """

    address: str = JOURNAL
    run: str = ""

    @classmethod
    def read(cls, run: RunFolder) -> Place:
        """What a run says; its own journal where it says nothing.

        Raises:
            ChunksmithError: The file is damaged.
        """
        path = cls._file(run)
        try:
            return cls(**json.loads(path.read_text()))
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, TypeError) as error:
            raise ChunksmithError(f"{path}: cannot be read: {error}") from error

    @classmethod
    def require_free(cls, run: RunFolder, address: Address) -> None:
        """Raise ChunksmithError where the study of a run cannot be at an address, because it is in the journal already,
        or in a database: its trials would be left behind."""
        place = cls.read(run)
        is_begun = bool(place.run) or run.journal.exists()
        if is_begun and place.address != address.text and JOURNAL in (place.address, address.text):
            raise ChunksmithError(
                f"{run.path}: its study is kept in {place.address}, and a resumed run goes on there; got {address.text}"
            )

    @classmethod
    def settle(cls, run: RunFolder, address: Address) -> Place:
        """Note that the study of a run is at an address from now on, and return the place."""
        place = cls.read(run)
        if place.address == address.text:
            return place
        place = cls(address.text, place.run or uuid.uuid4().hex)
        if not address.is_journal:
            write_text_atomic(cls._file(run), json.dumps(asdict(place)) + "\n")
        return place

    @staticmethod
    def _file(run: RunFolder) -> Path:
        return run.path / FILE
