"""Optuna's storage proxy over a journal: ``proxy_child.py JOURNAL``. Prints its port once it answers."""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path

from optuna.storages import GrpcStorageProxy, JournalStorage, run_grpc_proxy_server
from optuna.storages.journal import JournalFileBackend


def main(journal: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    storage = JournalStorage(JournalFileBackend(str(journal)))
    server = threading.Thread(
        target=run_grpc_proxy_server, args=(storage,), kwargs={"host": "127.0.0.1", "port": port}, daemon=True
    )
    server.start()
    GrpcStorageProxy(host="127.0.0.1", port=port).wait_server_ready(timeout=60)
    print(port, flush=True)
    server.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
