"""The address of a folder in an object storage: ``s3://bucket/folder``. It never holds a password."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from orchestrator.errors import UserError, unknown_name
from orchestrator.records.masking import mask

DRIVERS: Final = {
    "s3": "pip install 'chunksmith[s3]'",
    "gs": "pip install gcsfs",
    "abfs": "pip install adlfs",
    "file": "pip install fsspec",
    "memory": "pip install fsspec",
}
"""Kinds of storage, by their names in fsspec, with what installs the driver. Each of them replaces an object in one
step: a reader finds the old one or the new one, whole. Of others that is not known, and they are refused."""

_FORMS = "s3://BUCKET/FOLDER, gs://BUCKET/FOLDER, abfs://CONTAINER/FOLDER, file:///FOLDER, memory://FOLDER"


def is_address(text: str) -> bool:
    """Whether a text that names a run is meant as an address, and not as a folder's path."""
    return "://" in text


def checked(given: str, *, where: str) -> str:
    """An address, without a slash at its end.

    Args:
        where: Put in front of the message.

    Raises:
        UserError: It is none, of a storage that is not known, or it holds a password.
    """
    shown = mask(given)
    try:
        parts = urlsplit(given)
    except ValueError as error:
        raise UserError(f"{where}: {shown!r}: {error}; allowed: {_FORMS}") from error
    if not is_address(given) or not parts.scheme:
        raise UserError(f"{where}: {shown!r} is no address; allowed: {_FORMS}")
    if parts.scheme not in DRIVERS:
        raise unknown_name("kind of address", parts.scheme, DRIVERS, where=f"{where}: {shown!r}")
    if shown != given or parts.password is not None:
        raise UserError(
            f"{where}: {shown!r}: a password or key does not belong into an address; the driver takes it from the "
            "environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY) or from its own files (~/.aws)"
        )
    if parts.query or parts.fragment or "::" in given or any(letter.isspace() for letter in given):
        raise UserError(f"{where}: {shown!r}: an address has no ?, #, :: or blank; allowed: {_FORMS}")
    if parts.scheme == "file" and (parts.netloc or not parts.path.strip("/")):
        raise UserError(f"{where}: {shown!r}: a folder of this machine is file:///FOLDER")
    if parts.scheme != "file" and not parts.netloc:
        raise UserError(f"{where}: {shown!r}: names no bucket; allowed: {_FORMS}")
    if ".." in parts.path.split("/"):
        raise UserError(f"{where}: {shown!r}: an address has no '..'")
    folders = [folder for folder in parts.path.split("/") if folder]
    return "/".join([f"{parts.scheme}://{parts.netloc}", *folders])


def inside(address: str, name: str) -> str:
    """The address of a folder in that of another."""
    return f"{address}/{name}"
