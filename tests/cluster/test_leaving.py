"""An engine that was stopped is waited for by the next start, and not by its stop."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from orchestrator.cluster import leaving, reaper

pytestmark = pytest.mark.timeout(30)


def test_the_next_start_waits_until_the_reaper_of_a_stopped_engine_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaper, "lease_folder", lambda: tmp_path)
    # That of a rank has the engine's id in front.
    leases = [tmp_path / "engine-a.json", tmp_path / "engine-a-rank-1.json"]
    for lease in leases:
        lease.touch()
    begin = time.monotonic()
    leaving.leave("engine-a")
    assert time.monotonic() - begin < 0.2
    waiting = threading.Thread(target=leaving.wait_for_leaving)
    waiting.start()
    for lease in leases:
        waiting.join(0.15)
        assert waiting.is_alive()
        lease.unlink()
    waiting.join(10)
    assert not waiting.is_alive()
    # Once gone it is forgotten.
    leases[0].touch()
    leaving.wait_for_leaving()


def test_what_never_goes_is_not_waited_for_forever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaper, "lease_folder", lambda: tmp_path)
    (tmp_path / "engine-b.json").touch()
    begin = time.monotonic()
    leaving.wait_until_gone("engine-b", timeout_s=0.2)
    assert 0.2 <= time.monotonic() - begin < 5.0
