"""The sweep spec: a YAML file, checked strictly, with every default written out once it is resolved."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from orchestrator.engines import EngineConfig, KnobValue
from orchestrator.errors import UserError, unknown_name
from orchestrator.measurement import METRIC_NAMES, PairPlan, needs_two_tokens
from orchestrator.models import TinyMLAConfig, tiny_model
from orchestrator.search import LIVE_KNOBS, Knob, Scope, Space
from orchestrator.vllm_plugin import PluginSettings
from orchestrator.vllm_plugin.arguments import engine_arguments
from orchestrator.workloads import Load, Workload

TINY_MODEL = "tiny-mla"
"""In place of a model's folder: the model that ``orchestrator.models`` builds."""

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0.0)]
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")
_RESERVED_ARGS = {"model": "model", "worker_extension_cls": "nothing: Chunksmith sets it"}


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
    """The figure whose ratio to the baseline is optimised: a column of the blocks table."""

    metric: str = "median_ttft_ms"
    direction: Literal["minimize", "maximize"] = "minimize"


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
    """A sweep. ``baseline`` names the values to compare with; a knob that it leaves out has vLLM's own default
    there."""

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
        """One value for each knob of the space; None is vLLM's own default."""
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


def load_spec(path: Path) -> SweepSpec:
    """Read and check a spec.

    Raises:
        UserError: One line that names the file, the key, the value and what is allowed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot read the spec: {getattr(error, 'strerror', None) or error}") from error
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, Mapping):
        raise UserError(f"{path}: a spec is a mapping of keys, got {type(content).__name__}")
    try:
        spec = SweepSpec.model_validate(content)
    except ValidationError as error:
        raise _one_line(path, error) from error
    _check_names(path, spec)
    _check_values(path, spec)
    _check_model(path, spec)
    return spec


def _one_line(path: Path, error: ValidationError) -> UserError:
    """The first finding of pydantic as one line; an unknown key gets its nearest neighbour."""
    findings = error.errors()
    first = findings[0]
    keys = [str(part) for part in first["loc"]]
    where = f"{path}: {'.'.join(keys[:-1])}" if len(keys) > 1 else str(path)
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    if first["type"] == "extra_forbidden":
        unknown = unknown_name("key", keys[-1], _keys_at(first["loc"][:-1]), where=where)
        return UserError(f"{unknown}{more}")
    message = first["msg"].removeprefix("Value error, ")
    value = first["input"]
    got = f", got {value!r}" if isinstance(value, (bool, int, float, str)) and repr(value) not in message else ""
    return UserError(f"{path}: {'.'.join(keys)}: {message[0].lower()}{message[1:]}{got}{more}")


def _keys_at(location: tuple[int | str, ...]) -> list[str]:
    """Keys that the spec knows at a place."""
    model: Any = SweepSpec
    for part in location:
        model = KnobSection if model is SweepSpec and part == "space" else model
        if model is KnobSection and part != "space":
            continue
        field = model.model_fields.get(str(part)) if model is not KnobSection else None
        if field is not None and isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            model = field.annotation
    return list(model.model_fields)


def _check_names(path: Path, spec: SweepSpec) -> None:
    arguments = engine_arguments()
    for name, section in spec.space.items():
        if name in LIVE_KNOBS:
            continue
        if arguments and name not in arguments:
            known = {*LIVE_KNOBS, *arguments}
            raise unknown_name("knob", name, known, where=f"{path}: space")
        if section.scope == "live":
            live = ", ".join(sorted(LIVE_KNOBS))
            raise UserError(f"{path}: space.{name}: scope live is not possible, only for {live}")
    for name in spec.engine.args:
        if name in _RESERVED_ARGS:
            raise UserError(f"{path}: engine.args.{name}: belongs to {_RESERVED_ARGS[name]}")
        if arguments and name not in arguments:
            raise unknown_name("engine argument", name, arguments, where=f"{path}: engine.args")
    for name in spec.baseline:
        if name not in spec.space:
            raise unknown_name("knob", name, spec.space, where=f"{path}: baseline")
    if spec.objective.metric not in METRIC_NAMES:
        raise unknown_name("metric", spec.objective.metric, METRIC_NAMES, where=f"{path}: objective")


def _check_values(path: Path, spec: SweepSpec) -> None:
    if needs_two_tokens(spec.objective.metric) and spec.workload.output_len < 2:
        metric, length = spec.objective.metric, spec.workload.output_len
        raise UserError(f"{path}: workload.output_len: {metric} needs at least 2 output tokens, got {length}")
    for name, section in spec.space.items():
        if name in LIVE_KNOBS:
            _check_live_values(
                path, f"space.{name}", name, section.all_values(), _start_value(spec, name, section.scope)
            )
            _check_live_values(path, f"baseline.{name}", name, [spec.baseline.get(name)], None)
    limit = spec.engine.args.get("max_model_len")
    for key, part in (("workload", spec.workload), ("accuracy", spec.accuracy)):
        needed = part.input_len + part.output_len
        if isinstance(limit, int) and needed > limit:
            raise UserError(f"{path}: {key}: {needed} tokens of input and output exceed max_model_len {limit}")


def _check_live_values(path: Path, key: str, name: str, values: Iterable[KnobValue], start: int | None) -> None:
    """A live value is a whole number in the range that the engine, as it is started, can take."""
    low = 0 if name == "long_prefill_token_threshold" else 1
    for value in values:
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            raise UserError(f"{path}: {key}: must be a whole number from {low} up, got {value!r}")
        if start is not None and value > start:
            raise UserError(
                f"{path}: {key}: {value} is above {start}, the value in engine.args at which the engine starts; "
                "a live knob can only be lowered from there"
            )


def _start_value(spec: SweepSpec, name: str, scope: Scope) -> int | None:
    """Upper bound of a live scheduler knob: what the engine's buffers were made for."""
    start = spec.engine.args.get(name)
    bounded = scope == "live" and name in ("max_num_batched_tokens", "max_num_seqs")
    return start if bounded and isinstance(start, int) else None


def _check_model(path: Path, spec: SweepSpec) -> None:
    if spec.model == TINY_MODEL:
        try:
            TinyMLAConfig(**spec.tiny_model)
        except TypeError:
            known = set(TinyMLAConfig.__dataclass_fields__)
            unknown = next(name for name in spec.tiny_model if name not in known)
            raise unknown_name("key", unknown, known, where=f"{path}: tiny_model") from None
        except ValueError as error:
            raise UserError(f"{path}: tiny_model: {error}") from error
        return
    if spec.tiny_model:
        raise UserError(f"{path}: tiny_model: only for model {TINY_MODEL}, got model {spec.model!r}")
    folder = Path(spec.model).expanduser()
    if (folder / "config.json").is_file():
        return
    if folder.exists():
        raise UserError(f"{path}: model: {spec.model!r} has no config.json; a model is a folder with one")
    looks_like_path = spec.model.startswith(("/", ".", "~")) or not _HUB_NAME.fullmatch(spec.model)
    if looks_like_path or (folder.parent.is_dir() and folder.parent != Path()):
        raise UserError(
            f"{path}: model: {spec.model!r} does not exist; allowed: {TINY_MODEL}, a model's folder, or a hub name "
            "org/name"
        )
