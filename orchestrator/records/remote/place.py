"""A folder in an object storage: whole objects are read, replaced and removed. Needs fsspec and the storage's driver.

Who it is that asks the driver takes from the environment or from its own files, for S3 as Amazon's programs do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestrator.errors import ChunksmithError, UserError
from orchestrator.records.atomic import replace_file
from orchestrator.records.masking import mask_all
from orchestrator.records.remote.address import DRIVERS


class RemoteError(ChunksmithError):
    """A storage does not do what it is asked.

    Attributes:
        is_refusal: It answered: there is no such bucket, or it is not for us. Asking again will not help.
    """

    def __init__(self, message: str, *, is_refusal: bool) -> None:
        super().__init__(message)
        self.is_refusal = is_refusal


class Place:
    """The folder at a checked address. Names of objects are relative to it, with ``/`` between their parts.

    Every method but the constructor raises RemoteError when the storage does not do its part.

    Raises:
        UserError: The driver is missing.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        protocol = address.partition("://")[0]
        try:
            import fsspec

            # What another process writes must show: no listing is kept. And the environment counts as it is now.
            files, root = fsspec.core.url_to_fs(address, use_listings_cache=False, skip_instance_cache=True)
        except ImportError as error:
            raise UserError(f"{address}: its driver is missing: {DRIVERS[protocol]}") from error
        self._files: Any = files
        self._root: str = root.rstrip("/")
        self._is_local = protocol == "file"

    def names(self, folder: str = "") -> set[str]:
        """Of all objects, or of those in a folder here; empty where there is none."""
        with self._asking():
            try:
                found = self._files.find(self._path(folder).rstrip("/"))
            except FileNotFoundError:
                return set()
        return {path.removeprefix(self._root).lstrip("/") for path in found if path != self._root}

    def read(self, name: str) -> bytes | None:
        """The content of an object; None where there is none."""
        with self._asking():
            try:
                content: bytes = self._files.cat_file(self._path(name))
            except FileNotFoundError:
                return None
            return content

    def write(self, name: str, content: bytes) -> None:
        """Put an object there, in one step; one of that name is replaced."""
        with self._asking():
            if self._is_local:
                # fsspec writes in place; nothing may see half a file.
                path = Path(self._path(name))
                path.parent.mkdir(parents=True, exist_ok=True)
                replace_file(path, content)
            else:
                self._files.pipe_file(self._path(name), content)

    def remove(self, names: Collection[str]) -> None:
        """Remove objects; one that is not there is no trouble."""
        with self._asking():
            for name in sorted(names):
                try:
                    self._files.rm_file(self._path(name))
                except FileNotFoundError:
                    continue

    def fetch(self, names: Collection[str], folder: Path) -> set[str]:
        """Copy objects into a folder, many at a time; returns the names of those that are gone."""
        wanted = sorted(names)
        for name in wanted:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with self._asking():
            try:
                self._files.get([self._path(name) for name in wanted], [str(folder / name) for name in wanted])
            except FileNotFoundError:
                return {name for name in wanted if not self._fetch_one(name, folder)}
        return set()

    def _fetch_one(self, name: str, folder: Path) -> bool:
        try:
            self._files.get_file(self._path(name), str(folder / name))
        except FileNotFoundError:
            (folder / name).unlink(missing_ok=True)
            return False
        return True

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            # Every driver has exceptions of its own.
            line = mask_all(" ".join(str(error).split())) or type(error).__name__
            is_refusal = isinstance(error, (FileNotFoundError, PermissionError))
            raise RemoteError(f"{self.address}: {line[:300]}", is_refusal=is_refusal) from error
