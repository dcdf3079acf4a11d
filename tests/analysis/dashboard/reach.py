"""From where a port can be reached."""

from __future__ import annotations

import socket

import psutil
import pytest


def require_this_host_alone(port: int) -> None:
    """The port answers on the loopback, and refuses on every other address of this machine."""
    socket.create_connection(("127.0.0.1", port), timeout=10).close()
    found = [one for of_card in psutil.net_if_addrs().values() for one in of_card if one.family == socket.AF_INET]
    for address in (one.address for one in found if not one.address.startswith("127.")):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address, port), timeout=10)
