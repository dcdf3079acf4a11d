"""Where a study is kept: Optuna's journal in the run folder, a database, or a storage proxy. Needs Optuna."""

from orchestrator.records.masking import mask
from orchestrator.records.store.address import JOURNAL, PASSWORD_ENV, Address
from orchestrator.records.store.journal import open_journal, repair_journal
from orchestrator.records.store.opening import open_storage
from orchestrator.records.store.place import RUN_ATTR, Place
from orchestrator.records.store.retrying import Retrying

__all__ = [
    "JOURNAL",
    "PASSWORD_ENV",
    "RUN_ATTR",
    "Address",
    "Place",
    "Retrying",
    "mask",
    "open_journal",
    "open_storage",
    "repair_journal",
]
