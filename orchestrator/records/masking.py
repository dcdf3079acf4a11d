"""Texts that are shown or recorded, without what is secret in them."""

from __future__ import annotations

import os
import re
from typing import Final

SECRET_ENV: Final = (
    *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "FSSPEC_S3_SECRET", "FSSPEC_S3_TOKEN"),
    *("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_SAS_TOKEN"),
)
"""Environment variables from which the drivers of object storages take what must not be shown."""

_IN_AUTHORITY = re.compile(r"(://[^:@/\s]*):\S*@")
"""Up to the last ``@``, also where a password has characters that belong escaped."""

_IN_QUERY = re.compile(
    r"([?&](?:password|secret|secret_key|token|sig|x-amz-credential|x-amz-security-token|x-amz-signature)=)[^&#\s]*",
    re.IGNORECASE,
)


def mask(text: str) -> str:
    """A text without the password, token or signature of any URL in it."""
    return _IN_QUERY.sub(r"\1***", _IN_AUTHORITY.sub(r"\1@", text))


def mask_all(text: str) -> str:
    """As ``mask``, and without what ``SECRET_ENV`` holds: a driver's message may quote what it was given."""
    for name in SECRET_ENV:
        if value := os.environ.get(name):
            text = text.replace(value, "***")
    return mask(text)
