from __future__ import annotations

from optuna.samplers import RandomSampler

from benchmarks.sampler_time import SPACES, TIMED, points_of, timed_ms


def test_the_spaces_have_eight_knobs_and_enough_points() -> None:
    sizes = {name: len(points_of(levels)) for name, levels in SPACES.items()}
    assert sizes == {"small": 4374, "large": 82_944}
    assert all(len(levels) == 8 for levels in SPACES.values())


def test_every_ask_and_tell_is_timed() -> None:
    spent, of_cpu = timed_ms(RandomSampler(seed=0), points_of((2, 3, 3)), 9)
    assert len(spent) == len(of_cpu) == TIMED
    assert min(spent) > 0.0
    assert 0.0 < sum(of_cpu) <= 1.5 * sum(spent)
