"""A PostgreSQL server of a test's own: Debian's programs, a cluster in a temporary folder, the loopback alone."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tools.system_packages import which

PASSWORD = "s3cret/p@ss"
"""Of the user ``ann``; it has characters that a URL must escape."""

START_TIMEOUT_S = 60.0


class Postgres:
    """The server. It is stopped and started at will; its port and its data stay."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._data = folder, folder / "data"
        self._owner = _owner()
        if self._owner is not None:
            os.chown(folder, self._owner.pw_uid, self._owner.pw_gid)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._server: subprocess.Popen[bytes] | None = None
        (folder / "password").write_text(PASSWORD)
        (folder / "password").chmod(0o644)
        options = [f"--pwfile={folder / 'password'}", "--auth=scram-sha-256", "--username=ann", "--no-sync"]
        self._call("initdb", f"--pgdata={self._data}", *options, "--encoding=UTF8", "--locale=C")

    def url(self, database: str = "postgres") -> str:
        """Of a database, without the password."""
        return f"postgresql://ann@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        command = [_program("postgres"), "-D", str(self._data), "-p", str(self.port)]
        # The machine does not crash here: flushes would only cost time.
        for setting in ("listen_addresses=127.0.0.1", f"unix_socket_directories={self._folder}", "fsync=off"):
            command += ["-c", setting]
        log = (self._folder / "server.log").open("ab")
        self._server = subprocess.Popen(command, stdout=log, stderr=log, **self._as_owner())
        deadline = time.monotonic() + START_TIMEOUT_S
        while self._run("pg_isready", "-h", "127.0.0.1", "-p", str(self.port), "-q").returncode:
            assert self._server.poll() is None, (self._folder / "server.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop it at once, as a crash would: connections break."""
        if self._server is not None:
            self._call("pg_ctl", "stop", "-D", str(self._data), "-m", "immediate", "-w")
            self._server.wait()
            self._server = None

    def create(self, database: str) -> str:
        """Make an empty database; return its URL."""
        self._call("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "ann", database)
        return self.url(database)

    def _call(self, program: str, *words: str) -> None:
        done = self._run(program, *words)
        assert done.returncode == 0, done.stdout

    def _run(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        done: subprocess.CompletedProcess[str] = subprocess.run(
            [_program(program), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **self._as_owner(),
        )
        return done

    def _as_owner(self) -> dict[str, Any]:
        """PostgreSQL refuses to run as root."""
        env = {**os.environ, "PGPASSWORD": PASSWORD}
        if self._owner is None:
            return {"cwd": self._folder, "env": env}
        return {"cwd": self._folder, "env": env, "user": self._owner.pw_uid, "group": self._owner.pw_gid}


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A running server, gone afterwards."""
    # Not under pytest's own folder, which another user may not enter.
    folder = Path(tempfile.mkdtemp(prefix="chunksmith-postgres-"))
    try:
        server = Postgres(folder)
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _owner() -> pwd.struct_passwd | None:
    """The user whom Debian's package made for it, where the tests run as root; else None."""
    return pwd.getpwnam("postgres") if os.geteuid() == 0 else None


def _program(name: str) -> str:
    found = which(name)
    assert found is not None, f"{name} is missing: python3 tools/system_packages.py"
    return found
