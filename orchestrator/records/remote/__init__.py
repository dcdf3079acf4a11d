"""A run's records in an object storage: the mirror of a run folder, and reading one. Needs fsspec and a driver."""

from orchestrator.records.remote.address import checked, is_address
from orchestrator.records.remote.claim import Claim, open_mirror
from orchestrator.records.remote.following import Following
from orchestrator.records.remote.mirror import Mirror
from orchestrator.records.remote.place import Place, RemoteError
from orchestrator.records.remote.snapshot import fetch, snapshot

__all__ = [
    "Claim",
    "Following",
    "Mirror",
    "Place",
    "RemoteError",
    "checked",
    "fetch",
    "is_address",
    "open_mirror",
    "snapshot",
]
