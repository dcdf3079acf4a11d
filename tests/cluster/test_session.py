"""Joining and starting Ray: what a user can get wrong. A started cluster is tested with the engine actor."""

from __future__ import annotations

import socket
import sys

import pytest

from orchestrator.cluster import engines_that_fit, ray_session, session
from orchestrator.errors import ChunksmithError, UserError


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with (
            pytest.raises(UserError, match=rf"^--dashboard-port {port}: Address already in use"),
            ray_session(dashboard_port=port),
        ):
            pass


def test_a_dashboard_port_belongs_to_a_local_cluster() -> None:
    with pytest.raises(UserError, match="cannot go with --address"), ray_session("auto", dashboard_port=8265):
        pass


def test_the_auth_mode_must_be_chosen_before_ray_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", sys)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(ChunksmithError, match="set it to 'token' before"), ray_session(auth_mode="token"):
        pass


@pytest.mark.parametrize(
    ("cpus", "gpus", "fit"), [(4.0, 4.0, 1), (4.0, 2.0, 2), (8.0, 0.0, 1), (0.0, 0.0, 2), (0.5, 0.5, 2), (3.0, 0.0, 2)]
)
def test_as_many_engines_as_the_cluster_has_room_for(
    monkeypatch: pytest.MonkeyPatch, cpus: float, gpus: float, fit: int
) -> None:
    monkeypatch.setattr(session, "cluster_resources", lambda: {"CPU": 8.0, "GPU": 4.0})
    assert engines_that_fit(2, cpus=cpus, gpus=gpus) == fit
    assert engines_that_fit(1, cpus=cpus, gpus=gpus) == 1


@pytest.mark.parametrize(
    ("cpus", "gpus", "line"),
    [
        (1.0, 8.0, "resources.gpus: an engine with 8 GPUs exceeds the 4 of the cluster"),
        (9.0, 0.0, "resources.cpus: an engine with 9 CPUs exceeds the 8 of the cluster"),
    ],
)
def test_what_the_cluster_can_never_place_is_refused(
    monkeypatch: pytest.MonkeyPatch, cpus: float, gpus: float, line: str
) -> None:
    monkeypatch.setattr(session, "cluster_resources", lambda: {"CPU": 8.0, "GPU": 4.0})
    with pytest.raises(UserError, match=f"^{line}$"):
        engines_that_fit(2, cpus=cpus, gpus=gpus)


def test_no_cluster_at_the_address() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))  # bound, and nobody listens
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        with (
            pytest.raises(UserError, match=rf"^--address {address}: no Ray cluster answers there"),
            ray_session(address),
        ):
            pass
