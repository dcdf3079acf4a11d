"""The simulation behind ``benchmarks/stats.py``: its noise is what it says, and its queue is a queue."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import stats as benchmark
from benchmarks._stats_noise import NOISES, Queue, ar1, normal, pairs


@pytest.mark.parametrize("name", NOISES)
def test_noise_has_mean_0_and_variance_1(name: str) -> None:
    sample = NOISES[name](np.random.default_rng(1), (400_000,))
    assert sample.mean() == pytest.approx(0, abs=0.01)
    assert sample.std() == pytest.approx(1, abs=0.1)


def test_ar1_is_stationary_with_the_correlation_asked_for() -> None:
    series = ar1(np.random.default_rng(2), (4000, 30), 0.6)
    assert series.std(axis=0) == pytest.approx(np.ones(30), abs=0.06)
    assert np.corrcoef(series[:, 10], series[:, 12])[0, 1] == pytest.approx(0.36, abs=0.05)


def test_pairs_share_the_machines_level_and_nothing_else() -> None:
    candidate, baseline = np.log(pairs(np.random.default_rng(3), (2000, 40), normal, drift=0.05))
    assert (candidate - baseline).mean() == pytest.approx(0, abs=0.001)
    # 5 % of noise on each side, and two neighbours of an AR(0.9) of 5 %.
    assert (candidate - baseline).std() == pytest.approx(0.05 * np.sqrt(2 + 2 * 0.1), rel=0.02)


def test_queue_grows_by_what_exceeds_its_capacity_and_obeys_littles_law() -> None:
    random = np.random.default_rng(4)
    overloaded, waiting = Queue(capacity=50, load=2, cv=1, decode_s=0.1, seconds=20).sample(random, 100, 0.5)
    assert overloaded[:, -1].mean() == pytest.approx(50 * 20, rel=0.05)
    assert waiting[:, -1].mean() == pytest.approx(10, rel=0.05)
    stable, _ = Queue(capacity=50, load=0.2, cv=1, decode_s=2, seconds=30).sample(random, 100, 0.5)
    assert stable[:, 40:].mean() == pytest.approx(10 * 2, rel=0.1)


def test_the_last_line_is_json_with_every_line_and_bound(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(benchmark, "QUICK_STUDIES", 3)
    assert benchmark.main(["--quick"]) in (0, 1)
    last = json.loads(capsys.readouterr().out.splitlines()[-1], parse_constant=pytest.fail)
    assert last["benchmark"] == "stats"
    assert len(last["figures"]["lines"]) > 80
    assert {"false better", "p99, 20 x 500 requests"} <= {
        line["what"].split(", A/A")[0] for line in last["figures"]["lines"]
    }
    assert all(isinstance(bound["holds"], bool) for bound in last["bounds"])
