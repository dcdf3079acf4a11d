"""The store in which the ranks of a group meet."""

from __future__ import annotations

import psutil
import pytest

from orchestrator.engines.kernel_lab.dcp.collectives import Address, open_store
from orchestrator.engines.kernel_lab.errors import LabError


def listening() -> set[tuple[str, int]]:
    connections = psutil.Process().net_connections(kind="tcp")
    return {(one.laddr.ip, one.laddr.port) for one in connections if one.status == psutil.CONN_LISTEN}


def test_the_store_listens_on_its_own_address_alone_and_leaves_nothing() -> None:
    before, open_files = listening(), []
    for _ in range(3):
        store = open_store(Address("127.0.0.1", 0), 2, is_host=True, timeout_s=10)
        assert listening() - before == {("127.0.0.1", store.port)}
        other = open_store(Address("127.0.0.1", store.port), 2, is_host=False, timeout_s=10)
        other.set("key", "value")
        assert store.get("key") == b"value"
        del other, store
        assert listening() == before
        open_files.append(psutil.Process().num_fds())
    # The first leaves what torch opens once.
    assert open_files[1] == open_files[2]


@pytest.mark.parametrize("is_host", [True, False])
def test_an_address_that_cannot_be_had_is_one_line(is_host: bool) -> None:
    with pytest.raises(LabError, match=r"^rank-lost: an exchange between ranks failed: "):
        # Kept for documentation: no machine has it.
        open_store(Address("192.0.2.1", 1), 2, is_host=is_host, timeout_s=1)
