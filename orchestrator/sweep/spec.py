"""The sweep spec: what each key holds. ``spec_file`` reads and checks the file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from orchestrator.engines import EngineConfig, KnobValue
from orchestrator.measurement import Direction, PairPlan
from orchestrator.models import TinyMLAConfig, tiny_model
from orchestrator.search import Knob, Scope, Space
from orchestrator.vllm_plugin import PluginSettings
from orchestrator.workloads import Load, Workload

TINY_MODEL = "tiny-mla"
"""In place of a model's folder: the model that ``orchestrator.models`` builds."""

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


def direction_of(metric: str) -> Direction:
    """Which way a metric is better: times are to fall, throughputs to rise."""
    return "minimize" if metric.endswith("_ms") else "maximize"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class EngineSection(_Section):
    """What all engines of the study share. ``args`` are fields of vLLM's ``AsyncEngineArgs``."""

    args: dict[str, Any] = {}
    env: dict[str, str] = {}
    plugin: PluginSettings = PluginSettings()


class KnobSection(_Section):
    """Values of one knob: a list, or a range of whole numbers by ``step`` or by doubling (``log2``)."""

    scope: Scope
    values: Annotated[list[KnobValue], Field(min_length=1)] | None = None
    low: int | None = None
    high: int | None = None
    step: Count | None = None
    log2: bool = False

    @model_validator(mode="after")
    def _one_form(self) -> KnobSection:
        if self.values is not None:
            if (self.low, self.high, self.step) != (None, None, None) or self.log2:
                raise ValueError("give either values, or low and high")
            if len(set(map(repr, self.values))) != len(self.values):
                raise ValueError("values holds one value twice")
            return self
        if self.low is None or self.high is None:
            raise ValueError("give either values, or low and high")
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")
        if self.log2 and self.step is not None:
            raise ValueError("give either step or log2")
        if self.log2 and self.low < 1:
            raise ValueError(f"low must be at least 1 with log2, got {self.low}")
        return self

    def count(self) -> int:
        """How many values there are, without writing them out."""
        if self.values is not None or self.log2:
            return len(self.all_values())
        assert self.low is not None
        assert self.high is not None
        return (self.high - self.low) // (self.step or 1) + 1

    def all_values(self) -> tuple[KnobValue, ...]:
        """The values in their order; with ``log2`` low, 2 low, 4 low, ... up to high."""
        if self.values is not None:
            return tuple(self.values)
        assert self.low is not None
        assert self.high is not None
        if not self.log2:
            return tuple(range(self.low, self.high + 1, self.step or 1))
        values, value = [], self.low
        while value <= self.high:
            values.append(value)
            value *= 2
        return tuple(values)


class WorkloadSection(_Section):
    """Requests of one block; lengths in tokens."""

    prompts: Count = 1
    input_len: Count
    output_len: Count = 1


class LoadSection(_Section):
    """Requests in flight at a time; null sends all at once."""

    concurrency: Count | None = 1


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
    """How long a trial measures; see ``orchestrator.measurement.PairPlan``."""

    warmup: Annotated[int, Field(ge=0)] = 1
    min_pairs: Count = 2
    max_pairs: Count = 4
    half_width: Share = 0.03

    @model_validator(mode="after")
    def _ordered(self) -> BlocksSection:
        if self.min_pairs > self.max_pairs:
            raise ValueError(f"min_pairs {self.min_pairs} is above max_pairs {self.max_pairs}")
        return self


class ConfirmSection(_Section):
    """The best ``points`` are measured again with fresh prompts, ``pairs`` pairs each; 0 points confirms nothing."""

    points: Annotated[int, Field(ge=0)] = 3
    pairs: Annotated[int, Field(ge=2)] = 5


class AccuracySection(_Section):
    """Greedy tokens of fixed prompts, compared with the baseline's.

    ``tolerance`` is a gap between the log probabilities of the baseline's two best tokens: below it another token is
    excused.
    """

    prompts: Count = 4
    input_len: Count
    output_len: Count = 8
    tolerance: Share = 0.1


class ResourcesSection(_Section):
    """What Ray sets aside for one engine."""

    cpus: Share = 1.0
    gpus: Share = 0.0


class SweepSpec(_Section):
    """A sweep. ``baseline`` names the values to compare with; a knob that it leaves out keeps its value at engine
    start there: what ``engine`` gives, else vLLM's own default."""

    version: Literal[1]
    study: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    model: str
    tiny_model: dict[str, int] = {}
    seed: Annotated[int, Field(ge=0)] = 0
    engine: EngineSection = EngineSection()
    space: Annotated[dict[str, KnobSection], Field(min_length=1)]
    baseline: dict[str, KnobValue] = {}
    workload: WorkloadSection
    load: LoadSection = LoadSection()
    objective: ObjectiveSection = ObjectiveSection()
    trials: Count
    blocks: BlocksSection = BlocksSection()
    confirm: ConfirmSection = ConfirmSection()
    accuracy: AccuracySection
    resources: ResourcesSection = ResourcesSection()

    def search_space(self) -> Space:
        """The space with every value written out."""
        knobs = (Knob(name, section.scope, section.all_values()) for name, section in self.space.items())
        return Space(tuple(knobs))

    def baseline_point(self) -> dict[str, KnobValue]:
        """One value for each knob of the space; None is the value at engine start."""
        return {name: self.baseline.get(name) for name in self.space}

    def engine_config(self) -> EngineConfig:
        """What every engine of the study has in common. Builds the tiny model if the spec asks for it."""
        model = str(tiny_model(TinyMLAConfig(**self.tiny_model))) if self.model == TINY_MODEL else self.model
        return EngineConfig(model=model, args=self.engine.args, env=self.engine.env, plugin=self.engine.plugin)

    def pair_plan(self) -> PairPlan:
        """When a trial of the search stops measuring."""
        blocks = self.blocks
        return PairPlan(
            min_pairs=blocks.min_pairs,
            max_pairs=blocks.max_pairs,
            warmup_blocks=blocks.warmup,
            half_width=blocks.half_width,
        )

    def confirm_plan(self) -> PairPlan:
        """A fixed number of pairs: a claim must not depend on when one chose to stop."""
        pairs = self.confirm.pairs
        return PairPlan(min_pairs=pairs, max_pairs=pairs, warmup_blocks=self.blocks.warmup)

    def block_workload(self) -> Workload:
        return Workload(**self.workload.model_dump())

    def accuracy_workload(self) -> Workload:
        return Workload(**self.accuracy.model_dump(exclude={"tolerance"}))

    def block_load(self) -> Load:
        return Load(concurrency=self.load.concurrency)

    def to_yaml(self) -> str:
        """The resolved spec: every default is written out."""
        return yaml.safe_dump(self.model_dump(), sort_keys=False)
