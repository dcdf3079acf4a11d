"""The URL of a study's storage, with and without its password."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit

from orchestrator.errors import UserError
from orchestrator.records.masking import mask

JOURNAL = "journal"
"""The address of a study that is kept in its own run folder."""

PASSWORD_ENV = "CHUNKSMITH_STORAGE_PASSWORD"
"""Environment variable with the password of a storage whose URL has none. PostgreSQL's own ways, PGPASSWORD and
PGPASSFILE, do too."""

_FORMS = "journal, postgresql://USER@HOST:PORT/DATABASE (or another database URL of SQLAlchemy), grpc://HOST:PORT"
_DRIVERS = {"postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg"}
"""What SQLAlchemy would take for them is an older driver."""


@dataclass(frozen=True)
class Address:
    """Where a study is kept.

    Attributes:
        text: As it may be shown and recorded: without a password.
    """

    text: str
    _url: str = field(repr=False)

    @classmethod
    def parse(cls, given: str, *, where: str = "storage") -> Address:
        """Read an address.

        Args:
            where: Put in front of the message.

        Raises:
            UserError: It is none, or one that several hosts cannot share.
        """
        if given == JOURNAL:
            return cls(JOURNAL, JOURNAL)
        shown = mask(given)
        try:
            parts = urlsplit(given)
            port = parts.port
        except ValueError as error:
            raise UserError(f"{where}: {shown!r}: {error}; allowed: {_FORMS}") from error
        scheme = parts.scheme.partition("+")[0]
        if scheme == "sqlite":
            raise UserError(f"{where}: sqlite locks up when several processes or hosts write; allowed: {_FORMS}")
        if not scheme or (not parts.netloc and scheme != "postgresql"):
            raise UserError(f"{where}: {shown!r} is no address of a storage; allowed: {_FORMS}")
        if scheme == "grpc" and (port is None or parts.path.strip("/")):
            raise UserError(f"{where}: {shown!r}: a storage proxy is grpc://HOST:PORT")
        if parts.username is None and ":" in given.partition("://")[2] and "@" in given:
            raise UserError(f"{where}: {shown!r}: write / ? # of a password as %2F %3F %23; allowed: {_FORMS}")
        if "password=" in shown.lower():
            raise UserError(f"{where}: the password belongs before the @, or into {PASSWORD_ENV}; got {shown!r}")
        return cls(shown, given)

    @property
    def is_journal(self) -> bool:
        """Whether the study is kept in the run folder."""
        return self.text == JOURNAL

    @property
    def proxy(self) -> tuple[str, int] | None:
        """Host and port of a storage proxy; None for anything else."""
        parts = urlsplit(self._url)
        if parts.scheme != "grpc" or parts.port is None:
            return None
        return parts.hostname or "localhost", parts.port

    def database_url(self) -> str:
        """For SQLAlchemy, with the password if the address or the environment has one."""
        parts = urlsplit(self._url)
        authority = parts.netloc
        password = os.environ.get(PASSWORD_ENV)
        if password and parts.password is None and parts.username:
            user, _, host = authority.rpartition("@")
            authority = f"{user}:{quote(password, safe='')}@{host}"
        scheme = _DRIVERS.get(parts.scheme, parts.scheme)
        # By hand: urlunsplit drops the slashes of an empty authority, with which SQLAlchemy cannot do.
        return f"{scheme}://{authority}{self._url.partition('://')[2][len(parts.netloc) :]}"
