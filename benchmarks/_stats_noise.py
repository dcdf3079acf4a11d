"""Noise and queues for ``benchmarks/stats.py``. Every sample has mean 0 and variance 1 in the long run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Noise = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]

BURN_IN = 100


def normal(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Standard normal."""
    return random.standard_normal(shape)


def student_t3(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Student t with 3 degrees of freedom: symmetric, infinite fourth moment."""
    return random.standard_t(3, shape) / math.sqrt(3)


def lognormal(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Lognormal with log sd 1: skewness 6.2."""
    return (np.exp(random.standard_normal(shape)) - math.exp(0.5)) / math.sqrt(math.e * (math.e - 1))


NOISES: dict[str, Noise] = {"normal": normal, "Student t3": student_t3, "lognormal": lognormal}


def ar1(random: np.random.Generator, shape: tuple[int, int], phi: float, innovations: Noise = normal) -> np.ndarray:
    """Stationary first-order autoregression along the second axis."""
    studies, length = shape
    shocks = innovations(random, (studies, length + BURN_IN)) * math.sqrt(1 - phi**2)
    for step in range(1, length + BURN_IN):
        shocks[:, step] += phi * shocks[:, step - 1]
    return shocks[:, BURN_IN:]


def pairs(
    random: np.random.Generator,
    shape: tuple[int, int],
    noise: Noise,
    *,
    cv: float = 0.05,
    drift: float = 0.0,
    coin: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Candidate and baseline blocks of A/A pairs: ``exp(cv * noise + drift * machine)``.

    The machine's level is an AR(1) with 0.9 from block to block, shared by both sides and running on through the pairs.
    Which side goes first is drawn by a fair coin, or alternates.
    """
    studies, count = shape
    logs = cv * noise(random, (studies, 2 * count))
    if drift:
        logs += drift * ar1(random, (studies, 2 * count), 0.9)
    first, second = np.exp(logs[:, ::2]), np.exp(logs[:, 1::2])
    swap = random.random(shape) < 0.5 if coin else np.arange(count) % 2 == 1
    return np.where(swap, second, first), np.where(swap, first, second)


@dataclass(frozen=True, kw_only=True)
class Queue:
    """An open loop of Poisson arrivals into a first-come-first-served prefill stage, then parallel decoding.

    Attributes:
        capacity: Requests that the prefill stage serves in a second.
        load: Arrival rate over capacity.
        cv: Coefficient of variation of the (lognormal) prefill times.
        decode_s: Mean of the (lognormal, log sd 0.5) decode times.
        seconds: Length of the run. It starts empty.
    """

    capacity: float
    load: float
    cv: float
    decode_s: float = 5.0
    seconds: float = 60.0

    @property
    def rate(self) -> float:
        return self.load * self.capacity

    def sample(self, random: np.random.Generator, studies: int, step_s: float) -> tuple[np.ndarray, np.ndarray]:
        """Concurrency, and the waiting time of the oldest request without a first token, every ``step_s`` seconds."""
        count = int(self.rate * self.seconds * 1.2 + 60)
        send = np.cumsum(random.exponential(1 / self.rate, (studies, count)), axis=1)
        spread = math.sqrt(math.log1p(self.cv**2))
        service = np.exp(spread * random.standard_normal((studies, count)) - spread**2 / 2) / self.capacity
        first = np.empty_like(send)
        free = np.zeros(studies)
        for index in range(count):
            free = np.maximum(free, send[:, index]) + service[:, index]
            first[:, index] = free
        end = np.sort(first + self.decode_s * np.exp(0.5 * random.standard_normal((studies, count)) - 0.125), axis=1)
        grid = np.arange(0.0, self.seconds + 1e-9, step_s)
        in_flight, waiting = np.empty((studies, len(grid))), np.empty((studies, len(grid)))
        for study in range(studies):
            sent, served, ended = (np.searchsorted(t[study], grid, side="right") for t in (send, first, end))
            in_flight[study] = sent - ended
            waiting[study] = np.where(served < sent, grid - send[study, np.minimum(served, count - 1)], 0.0)
        return in_flight, waiting
