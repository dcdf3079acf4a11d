"""What a benchmark is to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.errors import UserError
from orchestrator.measurement import RatePlan, Slo
from orchestrator.search import Point
from orchestrator.sweep.spec import SweepSpec
from orchestrator.workloads import ArrivalKind, PoissonArrivals, Request, WorkloadKind, draw_many

DEFAULT_BLOCKS = 5


@dataclass(frozen=True, kw_only=True)
class FindPlan:
    """The search for the largest rate: its limits, and the requests of one probe."""

    rates: RatePlan
    requests: int


@dataclass(frozen=True, kw_only=True)
class BenchPlan:
    """One benchmark.

    Attributes:
        study: Name in the records.
        load: Arrivals of every block; of a search for the rate their kind alone.
        seed: Of all prompts and arrivals.
        blocks: Complete blocks that are wanted, beside the warm-up block.
        requests: Requests of one block; None for as many as one draw of the workload has.
        slo: For the goodput and the search, and for how late the load generator may be.
        gpus: GPUs of the engine; 0 leaves the figures per GPU out.
        wants_hits: Requests of one block share prefixes on purpose. Otherwise a block with hits in the prefix cache is
            invalid: its prompts are fresh, so somebody has sent them before.
        find: Search for the largest rate in place of measuring blocks.
        metric: Objective that the records name.
    """

    study: str
    workload: WorkloadKind
    load: ArrivalKind
    seed: int
    blocks: int = DEFAULT_BLOCKS
    requests: int | None = None
    slo: Slo | None = None
    gpus: float = 0.0
    wants_hits: bool = False
    find: FindPlan | None = None
    metric: str = "median_ttft_ms"

    def draw(self, seed: int, *, vocab_size: int, requests: int | None = None) -> list[Request]:
        """Fresh requests of one block."""
        count = requests or self.requests
        if count is not None:
            return draw_many(self.workload, count, seed=[seed], vocab_size=vocab_size)
        return self.workload.draw([seed], vocab_size=vocab_size)

    def check(self, *, vocab_size: int) -> None:
        """Draw a block and its schedule once, before anything is started. Raises UserError when that cannot be."""
        try:
            requests = self.draw(0, vocab_size=vocab_size)
        except ValueError as error:
            raise UserError(f"--vocab-size: {error}") from error
        self.load.schedule(requests, [0])

    def at_rate(self, rate: float) -> ArrivalKind:
        """The load of a probe, in requests per second."""
        return with_rate(self.load, rate)

    def to_dict(self) -> dict[str, Any]:
        """As it is written to JSON."""
        find = self.find
        return {
            "study": self.study,
            "workload": self.workload.model_dump(),
            "load": self.load.model_dump(),
            "seed": self.seed,
            "blocks": self.blocks,
            "requests": self.requests,
            "slo": self.slo and self.slo.model_dump(),
            "gpus": self.gpus,
            "find_rate": find and {**asdict(find.rates), "requests": find.requests},
        }


def with_rate(load: ArrivalKind | None, rate: float) -> ArrivalKind:
    """A load of the same kind at another rate; Poisson arrivals where the kind has none."""
    return load.model_copy(update={"rate": rate}) if hasattr(load, "rate") and load else PoissonArrivals(rate=rate)


def engine_group(spec: SweepSpec) -> Point:
    """The engine-scope values of the spec's baseline."""
    baseline = spec.baseline_point()
    return {name: baseline[name] for name in spec.search_space().names("engine")}


def shown(load: ArrivalKind) -> str:
    """A load as one word and its numbers, for instance ``poisson, rate 4``."""
    values: Sequence[tuple[str, Any]] = [(key, value) for key, value in load.model_dump().items() if key != "kind"]
    return ", ".join([load.model_dump()["kind"].replace("_", " "), *(f"{key} {value}" for key, value in values)])
