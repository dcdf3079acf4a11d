"""Open the storage that an address names."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.storages import BaseStorage, GrpcStorageProxy, RDBStorage

from orchestrator.errors import ChunksmithError, UserError
from orchestrator.records.store.address import Address
from orchestrator.records.store.journal import open_journal
from orchestrator.records.store.retrying import is_outage, outage_line

CONNECT_TIMEOUT_S = 10

_TRIES = 5
"""How often tables are made: two sweeps that begin on an empty database at the same moment get in each other's way."""


def open_storage(address: Address, journal: Path) -> BaseStorage:
    """The storage, whose study may not be there yet.

    Args:
        journal: The run's journal, absolute; it is used where the address says so.

    Raises:
        UserError: Its driver is not installed, or it cannot be reached: at the beginning that is more likely a mistake
            than an outage.
        ChunksmithError: A damaged journal, or a database of another Optuna.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if address.is_journal:
        return open_journal(journal)
    if address.proxy is not None:
        host, port = address.proxy
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            return _reachable(address, GrpcStorageProxy(host=host, port=port))
    return _database(address)


def _database(address: Address) -> BaseStorage:
    from sqlalchemy.exc import ArgumentError, DBAPIError

    for attempt in range(1, _TRIES + 1):
        try:
            return _reachable(address, RDBStorage(address.database_url(), engine_kwargs=_engine_kwargs(address)))
        except ImportError as error:
            raise UserError(
                f"storage {address.text}: its driver is missing ({error.__cause__ or error}); for PostgreSQL: "
                "pip install 'chunksmith[postgresql]'"
            ) from error
        except ArgumentError as error:
            raise UserError(f"storage {address.text}: {outage_line(error)}") from error
        except RuntimeError as error:
            raise ChunksmithError(f"storage {address.text}: {error}") from error
        except Exception as error:
            if is_outage(error):
                raise UserError(f"storage {address.text}: no answer: {outage_line(error)}") from error
            if attempt == _TRIES or not isinstance(error, DBAPIError):
                raise
    raise AssertionError


def _reachable(address: Address, storage: BaseStorage) -> BaseStorage:
    """The storage, once it has answered."""
    try:
        storage.get_all_studies()
    except Exception as error:
        if is_outage(error):
            raise UserError(f"storage {address.text}: no answer: {outage_line(error)}") from error
        raise
    return storage


def _engine_kwargs(address: Address) -> dict[str, Any]:
    # A connection that died in the pool is replaced instead of failing who gets it.
    kwargs: dict[str, Any] = {"pool_pre_ping": True}
    if address.text.startswith("postgres"):
        # libpq, section "Parameter Key Words": seconds to connect; milliseconds that sent data may stay unacknowledged,
        # so that a host that is gone without a word is noticed.
        kwargs["connect_args"] = {
            "connect_timeout": CONNECT_TIMEOUT_S,
            "tcp_user_timeout": 1000 * CONNECT_TIMEOUT_S,
            "application_name": "chunksmith",
        }
    return kwargs
