"""The sweep spec: what each key holds. ``spec_file`` reads and checks the file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from orchestrator.engines import EngineConfig, KnobValue
from orchestrator.engines.kernel_lab import lab_args
from orchestrator.measurement import Direction, PairPlan, Slo
from orchestrator.measurement.pairing import FEWEST_TO_DECIDE
from orchestrator.models import TinyMLAConfig, tiny_model
from orchestrator.records.store import JOURNAL, Address, mask
from orchestrator.search import Space
from orchestrator.search.flags import is_load
from orchestrator.search.serve import LAB_MODEL
from orchestrator.sweep.constraints_section import ConstraintsSection
from orchestrator.sweep.fidelity_section import FidelitySection
from orchestrator.sweep.knob_section import KnobSection
from orchestrator.sweep.load_section import LOADS, WORKLOADS, Load, Workload, section_at
from orchestrator.sweep.memory_section import MemorySection
from orchestrator.sweep.search_section import SamplerSection, StopSection
from orchestrator.sweep.space_builder import TINY_MODEL, build_space
from orchestrator.sweep.timeouts_section import TimeoutsSection
from orchestrator.vllm_plugin import PluginSettings
from orchestrator.workloads import ArrivalKind, ClosedLoop, FixedLength, RandomTokens, WorkloadKind

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


def direction_of(metric: str) -> Direction:
    """Which way a metric is better: times are to fall, throughputs to rise."""
    return "minimize" if metric.endswith("_ms") else "maximize"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class EngineSection(_Section):
    """What all engines of the study share.

    Attributes:
        kind: vLLM itself, in the engine's own process or as a server (``vllm serve``) beside it; or the kernel lab: the
            prefill attention path without a model around it.
        args: Fields of vLLM's ``AsyncEngineArgs``, or of ``orchestrator.engines.kernel_lab.LabArgs``.
    """

    kind: Literal["vllm", "vllm_serve", "kernel_lab"] = "vllm"
    args: dict[str, Any] = {}
    env: dict[str, str] = {}
    plugin: PluginSettings = PluginSettings()


class ObjectiveSection(_Section):
    """The figure whose ratio to the baseline is optimised: a column of the blocks table. Its direction follows from
    it."""

    metric: str = "median_ttft_ms"
    direction: Direction = "minimize"

    @model_validator(mode="before")
    @classmethod
    def _with_direction(cls, given: Any) -> Any:
        metric = given.get("metric") if isinstance(given, Mapping) else None
        return {"direction": direction_of(metric), **given} if isinstance(metric, str) else given


class BlocksSection(_Section):
    """How long a trial measures; see ``orchestrator.measurement.PairPlan``.

    Attributes:
        delta: Points closer than this share are equal.
        error: Bound on the probability that a trial's verdict (better, worse, equal) is false. A verdict needs
            ``max_pairs`` of 8 or more.
        prefix_cache_hits: ``wanted`` where requests of one block share prefixes on purpose. The cache is emptied before
            every block in either case; ``forbidden`` fails a trial whose prompts were found in it.
    """

    warmup: Annotated[int, Field(ge=0)] = 1
    min_pairs: Count = 2
    max_pairs: Count = 4
    half_width: Share = 0.03
    delta: Annotated[float, Field(gt=0, lt=1)] = 0.02
    error: Annotated[float, Field(gt=0, lt=1)] = 0.01
    prefix_cache_hits: Literal["forbidden", "wanted"] = "forbidden"

    @model_validator(mode="after")
    def _ordered(self) -> BlocksSection:
        if self.min_pairs > self.max_pairs:
            raise ValueError(f"min_pairs {self.min_pairs} is above max_pairs {self.max_pairs}")
        return self


class ConfirmSection(_Section):
    """The best ``points`` are measured again with fresh prompts, ``pairs`` pairs each; 0 points confirms nothing.

    Attributes:
        starts: Over how many starts of both engines the pairs are spread, each with the values that would be deployed.
            The interval then holds what differs from one start to another, of which two would say next to nothing: 1,
            or 3 and more. With 1, the engines that are warm serve all.
    """

    points: Annotated[int, Field(ge=0)] = 3
    pairs: Annotated[int, Field(ge=2)] = 5
    starts: Count = 1

    @model_validator(mode="after")
    def _enough_pairs(self) -> ConfirmSection:
        if self.starts == 2:
            raise ValueError("starts must be 1, or 3 and more: two say next to nothing of how starts differ, got 2")
        if self.starts > self.pairs:
            raise ValueError(f"starts {self.starts} is above pairs {self.pairs}: each start serves a pair at least")
        return self


class AccuracySection(_Section):
    """Greedy tokens of fixed prompts, compared with the baseline's.

    ``tolerance`` is a gap between the log probabilities of the baseline's two best tokens: below it another token is
    excused.
    """

    prompts: Count = 4
    input_len: Count
    output_len: Count = 8
    tolerance: Share = 0.1


class RateSearchSection(_Section):
    """The search for the largest rate at which the SLO holds; see ``orchestrator.measurement.RatePlan``.

    Attributes:
        low: Requests per second of the first probe.
        high: No probe is above this.
        requests: Requests of one probe.
        probes: Most probes of one search.
        precision: Stop when the smallest rate that failed is at most this share above the largest that held.
    """

    low: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    high: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    requests: Count = 100
    probes: Count = 12
    precision: Annotated[float, Field(gt=0, lt=1)] = 0.05

    @model_validator(mode="after")
    def _ordered(self) -> RateSearchSection:
        if self.low >= self.high:
            raise ValueError(f"low {self.low:g} must be below high {self.high:g}")
        return self


class SoakSection(_Section):
    """The worst batches, run on the confirmed points; see ``chunksmith soak``. 0 rounds switches it off."""

    rounds: Annotated[int, Field(ge=0)] = 1


class ResourcesSection(_Section):
    """What Ray sets aside for one engine, and how many trials are measured at a time.

    Attributes:
        parallel: Each of them has warm engines of its own. Left out, as many as the cluster has room for: with GPUs all
            that fit, without GPUs one for each node.
    """

    cpus: Share = 1.0
    gpus: Share = 0.0
    parallel: Count | None = None


class SweepSpec(_Section):
    """A sweep. ``baseline`` names the values to compare with; a knob that it leaves out keeps its value at engine
    start there: what ``engine`` gives, else vLLM's own default. ``model`` may be left out for the kernel lab alone.

    ``workloads`` and ``loads`` are those that the knobs ``workload`` and ``load`` choose among, by name. ``storage`` is
    where Optuna keeps the study: see ``address``. ``mirror`` is the address of a folder in an object storage, in which
    the run's records get a folder too: see ``orchestrator.records.remote``.
    """

    version: Literal[1]
    study: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    model: str
    tiny_model: dict[str, int] = {}
    seed: Annotated[int, Field(ge=0)] = 0
    engine: EngineSection = EngineSection()
    space: Annotated[dict[str, KnobSection], Field(min_length=1)]
    constraints: ConstraintsSection = ConstraintsSection()
    baseline: dict[str, KnobValue] = {}
    workload: Workload
    workloads: dict[str, Workload] = {}
    load: Load = ClosedLoop(concurrency=1)
    loads: dict[str, Load] = {}
    slo: Slo | None = None
    rate_search: RateSearchSection | None = None
    objective: ObjectiveSection = ObjectiveSection()
    objectives: list[ObjectiveSection] = []
    sampler: SamplerSection = SamplerSection()
    stop: StopSection | None = None
    fidelity: FidelitySection | None = None
    memory: MemorySection | None = None
    storage: str = JOURNAL
    mirror: str | None = None
    trials: Count
    blocks: BlocksSection = BlocksSection()
    confirm: ConfirmSection = ConfirmSection()
    accuracy: AccuracySection
    soak: SoakSection = SoakSection()
    resources: ResourcesSection = ResourcesSection()
    timeouts: TimeoutsSection = TimeoutsSection()

    @model_validator(mode="before")
    @classmethod
    def _with_model(cls, given: Any) -> Any:
        engine = given.get("engine") if isinstance(given, Mapping) else None
        is_lab = isinstance(engine, Mapping) and engine.get("kind") == "kernel_lab"
        return {"model": LAB_MODEL, **given} if is_lab else given

    @model_validator(mode="before")
    @classmethod
    def _with_first_objective(cls, given: Any) -> Any:
        several = given.get("objectives") if isinstance(given, Mapping) else None
        return {"objective": several[0], **given} if isinstance(several, list) and several else given

    @property
    def is_lab(self) -> bool:
        """Whether the kernel lab is the engine."""
        return self.engine.kind == "kernel_lab"

    @property
    def all_objectives(self) -> list[ObjectiveSection]:
        """One or several; ``objective`` is the first of them."""
        return self.objectives or [self.objective]

    def search_space(self) -> Space:
        """The space with every value written out, and what rules points of it out.

        Raises:
            UserError: A set of constraints or a model is not known, or they need an argument that is not given.
            ValueError: An expression cannot be read.
        """
        return build_space(self)

    def baseline_point(self) -> dict[str, KnobValue]:
        """One value for each knob of the engine; None is the value at engine start."""
        return {name: self.baseline.get(name) for name in self.space if not is_load(name)}

    def baseline_at(self, point: Mapping[str, KnobValue]) -> dict[str, KnobValue]:
        """What a point is compared with: the baseline, under the point's workload and load."""
        return {**self.baseline_point(), **{name: value for name, value in point.items() if is_load(name)}}

    def engine_config(self) -> EngineConfig:
        """What every engine of the study has in common. Builds the tiny model if the spec asks for it."""
        model = str(tiny_model(TinyMLAConfig(**self.tiny_model))) if self.model == TINY_MODEL else self.model
        return EngineConfig(model=model, args=self.start_args(), env=self.engine.env, plugin=self.engine.plugin)

    def address(self) -> Address:
        """Where the study is kept: ``journal`` in the run folder, a database's URL, or ``grpc://HOST:PORT``.

        Raises:
            UserError: It is no address, or sqlite.
        """
        return Address.parse(self.storage)

    def start_args(self) -> Mapping[str, Any]:
        """Arguments of the engine as far as they are known before it starts: vLLM keeps its defaults to itself.

        Raises:
            LabError: ``lab-shape``.
        """
        return lab_args(self.engine.args).model_dump() if self.is_lab else self.engine.args

    def pair_plan(self, coin_seed: int) -> PairPlan:
        """When a trial of the search stops measuring. ``coin_seed`` decides which role goes first in each pair, where
        enough pairs are allowed for a verdict."""
        blocks = self.blocks
        can_decide = blocks.max_pairs >= FEWEST_TO_DECIDE
        return PairPlan(
            min_pairs=blocks.min_pairs,
            max_pairs=blocks.max_pairs,
            warmup_blocks=blocks.warmup,
            half_width=blocks.half_width,
            delta=blocks.delta if can_decide else None,
            error=blocks.error,
            coin_seed=coin_seed if can_decide else None,
        )

    def confirm_plan(self) -> PairPlan:
        """A fixed number of pairs: a claim must not depend on when one chose to stop."""
        pairs, starts = self.confirm.pairs, self.confirm.starts
        # Every engine that is started for it has a warm-up of its own.
        warmup = self.blocks.warmup if starts == 1 else 0
        return PairPlan(min_pairs=pairs, max_pairs=pairs, warmup_blocks=warmup, starts=starts)

    def block_workload(self, point: Mapping[str, KnobValue] | None = None) -> WorkloadKind:
        """The workload of a block; without a point, or where the point does not change it, the spec's own."""
        return section_at("workload", self.workload, self.workloads, point or {}, WORKLOADS)

    def accuracy_workload(self) -> WorkloadKind:
        accuracy = self.accuracy
        return RandomTokens(
            prompts=accuracy.prompts,
            input_len=FixedLength(tokens=accuracy.input_len),
            output_len=FixedLength(tokens=accuracy.output_len),
        )

    def block_load(self, point: Mapping[str, KnobValue] | None = None) -> ArrivalKind:
        """The load of a block; without a point, or where the point does not change it, the spec's own."""
        return section_at("load", self.load, self.loads, point or {}, LOADS)

    def to_yaml(self) -> str:
        """The resolved spec: every default is written out, and no password."""
        return yaml.safe_dump({**self.model_dump(), "storage": mask(self.storage)}, sort_keys=False)
