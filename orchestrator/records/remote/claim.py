"""Which run has which folder of an object storage: ``mirror.json`` in the run folder, ``_mirror.json`` there.

Two runs with one name would write over each other's records. The first that comes has the folder; a folder that holds
other things is nobody's.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from typing import Final

from orchestrator.errors import ChunksmithError, UserError
from orchestrator.records.atomic import write_text_atomic
from orchestrator.records.folder import RunFolder
from orchestrator.records.remote.address import inside
from orchestrator.records.remote.mirror import Mirror
from orchestrator.records.remote.place import Place, RemoteError

FILE: Final = "mirror.json"
MARK: Final = "_mirror.json"
"""Parquet readers skip names that begin with an underscore."""


@dataclass(frozen=True)
class Claim:
    """What a run says of its mirror.

    Attributes:
        target: Address that the user gave; empty before there was one.
        address: That of the run's own folder in it.
        run: Identifier, which the folder there has too.
    """

    target: str = ""
    address: str = ""
    run: str = ""

    @classmethod
    def read(cls, run: RunFolder) -> Claim:
        """What a run says; nothing where it never had a mirror.

        Raises:
            ChunksmithError: The file is damaged.
        """
        path = run.path / FILE
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, TypeError) as error:
            raise ChunksmithError(f"{path}: cannot be read: {error}") from error

    def write(self, run: RunFolder) -> None:
        """Note it in the run folder. Raises ChunksmithError."""
        write_text_atomic(run.path / FILE, json.dumps(asdict(self)) + "\n")


def open_mirror(run: RunFolder, target: str) -> Mirror:
    """The mirror of a run in the folder ``<target>/<name of the run>``. The caller holds the run.

    A storage that does not answer is let pass where the run has had the folder before.

    Args:
        target: A checked address.

    Raises:
        UserError: The driver or the bucket is missing, nobody may write there, it does not answer, or the folder holds
            another run or other things.
    """
    recorded = Claim.read(run)
    address = recorded.address if recorded.target == target else inside(target, run.path.name)
    place = Place(address)
    if not recorded.run:
        # Before it is claimed there: a kill between the two must not make the folder another run's.
        recorded = Claim(run=uuid.uuid4().hex)
        recorded.write(run)
    try:
        _claim(place, recorded.run)
    except RemoteError as error:
        if error.is_refusal or recorded.target != target:
            raise UserError(f"{error} (the mirror of the run; --mirror none sweeps without one)") from error
    if recorded.target != target:
        Claim(target, address, recorded.run).write(run)
    return Mirror(run, place)


def _claim(place: Place, run: str) -> None:
    names = place.names()
    content = place.read(MARK) if MARK in names else None
    if content is not None and _owner(content) == run:
        return
    if names - {MARK}:
        what = "other files" if content is None else "the records of another run"
        raise UserError(
            f"{place.address}: holds {what}; choose another address or another name of the run, or remove what is there"
        )
    # A mark alone is of a sweep that ended before it began.
    place.write(MARK, json.dumps({"run": run}).encode() + b"\n")


def _owner(content: bytes) -> str | None:
    try:
        found = json.loads(content)
    except ValueError:
        return None
    return found.get("run") if isinstance(found, dict) else None
