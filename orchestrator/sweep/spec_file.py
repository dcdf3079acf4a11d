"""Read a sweep spec and check it: each mistake is one line that names the file, the key and the value."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml
from pydantic import ValidationError

from orchestrator.engines import LIVE_KNOBS, KnobValue
from orchestrator.engines.kernel_lab import LAB_LIVE_KNOBS
from orchestrator.errors import UserError, unknown_name
from orchestrator.measurement import GOODPUT_AT_SLO, OBJECTIVES, needs_slo, needs_two_tokens
from orchestrator.models import TinyMLAConfig
from orchestrator.search.knobs import LAB_MODEL
from orchestrator.sweep.lab_spec import check_lab_args, check_lab_values, lab_start_value
from orchestrator.sweep.spec import TINY_MODEL, SweepSpec, direction_of
from orchestrator.sweep.spec_errors import one_line
from orchestrator.vllm_plugin import CONFIG_KEY
from orchestrator.vllm_plugin.arguments import engine_arguments

_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")
_MOST_POINTS = 100_000
"""The sampler lists all points of a group whenever it is asked for one."""

_RESERVED_ARGS = {"model": "the key model", "worker_extension_cls": "nobody: Chunksmith sets it"}


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
        raise one_line(path, error) from error
    _check_names(path, spec)
    _check_values(path, spec)
    return spec.model_copy(update={"model": _checked_model(path, spec)})


def _check_names(path: Path, spec: SweepSpec) -> None:
    if spec.is_lab:
        arguments = check_lab_args(path, spec)
    else:
        arguments = engine_arguments()
        _check_vllm_args(path, spec, arguments)
    live_knobs = {*LIVE_KNOBS, *(LAB_LIVE_KNOBS if spec.is_lab else ())}
    for name, section in spec.space.items():
        if name in live_knobs:
            continue
        if arguments and name not in arguments:
            raise unknown_name("knob", name, {*live_knobs, *arguments}, where=f"{path}: space")
        if section.scope == "live":
            live = ", ".join(sorted(live_knobs))
            raise UserError(f"{path}: space.{name}.scope: must be engine; live is possible for {live}")
    for name in spec.baseline:
        if name not in spec.space:
            raise unknown_name("knob", name, spec.space, where=f"{path}: baseline")
    if spec.objective.metric not in OBJECTIVES:
        raise unknown_name("metric", spec.objective.metric, OBJECTIVES, where=f"{path}: objective.metric")


def _check_vllm_args(path: Path, spec: SweepSpec, arguments: frozenset[str]) -> None:
    for name in spec.space:
        _check_reserved(path, f"space.{name}", name)
        if name == "additional_config":
            raise UserError(f"{path}: space.additional_config: belongs to engine.args; it cannot be a knob")
    for name in spec.engine.args:
        _check_reserved(path, f"engine.args.{name}", name)
        if arguments and name not in arguments:
            raise unknown_name("engine argument", name, arguments, where=f"{path}: engine.args")
    additional = spec.engine.args.get("additional_config")
    if additional is not None and not isinstance(additional, Mapping):
        raise UserError(f"{path}: engine.args.additional_config: should be a mapping of keys, got {additional!r}")
    if CONFIG_KEY in (additional or {}):
        raise UserError(f"{path}: engine.args.additional_config.{CONFIG_KEY}: belongs to engine.plugin")


def _check_reserved(path: Path, key: str, name: str) -> None:
    if name in _RESERVED_ARGS:
        raise UserError(f"{path}: {key}: belongs to {_RESERVED_ARGS[name]}")


def _check_values(path: Path, spec: SweepSpec) -> None:
    _check_size(path, spec)
    metric, direction = spec.objective.metric, spec.objective.direction
    if direction != direction_of(metric):
        raise UserError(f"{path}: objective.direction: must be {direction_of(metric)} for {metric}, got {direction}")
    _check_objective(path, spec)
    for name, section in spec.space.items():
        if name in LIVE_KNOBS:
            start = _start_value(spec, name) if section.scope == "live" else None
            _check_live_values(path, f"space.{name}", name, section.all_values(), start)
            _check_live_values(path, f"baseline.{name}", name, [spec.baseline.get(name)], start)
    if spec.is_lab:
        check_lab_values(path, spec)
    limit = spec.start_args().get("max_model_len")
    parts = (("workload", spec.block_workload()), ("accuracy", spec.accuracy_workload()))
    for key, part in parts:
        needed = part.longest_request()
        if isinstance(limit, int) and needed is not None and needed > limit:
            raise UserError(f"{path}: {key}: {needed} tokens of input and output exceed max_model_len {limit}")
    if "mla_workspace_rows" in spec.space and (step := _largest_step(spec)) is not None:
        for key, part in parts:
            length = part.longest_input()
            if length is not None and length <= step:
                raise UserError(
                    f"{path}: {key}.input_len: must be above {step}, the tokens of a scheduler step: a prompt that "
                    f"fits into one step never reaches the workspace of mla_workspace_rows; got {length}"
                )


def _check_objective(path: Path, spec: SweepSpec) -> None:
    metric, length = spec.objective.metric, spec.workload.longest_output()
    if needs_two_tokens(metric) and length is not None and length < 2:
        raise UserError(f"{path}: workload.output_len: {metric} needs at least 2 output tokens, got {length}")
    if needs_slo(metric) and spec.slo is None:
        raise UserError(f"{path}: slo: is missing; {metric} counts the requests that keep it")
    if metric.endswith("_per_gpu") and spec.resources.gpus == 0:
        raise UserError(f"{path}: resources.gpus: must be above 0 for {metric}, got 0")
    if metric != GOODPUT_AT_SLO:
        if spec.rate_search is not None:
            raise UserError(f"{path}: rate_search: is only for the metric {GOODPUT_AT_SLO}, got {metric}")
        return
    if spec.rate_search is None:
        raise UserError(f"{path}: rate_search: is missing; {GOODPUT_AT_SLO} searches between two rates")
    if not hasattr(spec.load, "rate"):
        raise UserError(
            f"{path}: load.kind: must be constant, poisson or gamma for {GOODPUT_AT_SLO}, got {spec.load.kind}: the "
            "search sets its rate"
        )


def _check_size(path: Path, spec: SweepSpec) -> None:
    counts = {name: section.count() for name, section in spec.space.items()}
    points, most = math.prod(counts.values()), max(counts, key=counts.__getitem__)
    if points > _MOST_POINTS:
        raise UserError(
            f"{path}: space: {points} points, at most {_MOST_POINTS} are allowed; {most} has the most values, "
            f"{counts[most]}: thin it out by log2 or step"
        )


def _largest_step(spec: SweepSpec) -> int | None:
    """The most tokens that a prompt may get in one scheduler step of any block; None where vLLM's default decides."""
    budgets = _values_in_use(spec, "max_num_batched_tokens")
    shares = _values_in_use(spec, "long_prefill_token_threshold")
    if None in budgets:
        return None
    # A threshold of 0, vLLM's default, lets a prompt have the whole budget.
    most = max(budget or 0 for budget in budgets)
    return min(most, max(share or 0 for share in shares)) if all(shares) else most


def _values_in_use(spec: SweepSpec, name: str) -> list[int | None]:
    """Values of an engine argument in the blocks of the study, the baseline's included; None is vLLM's default."""
    start = spec.start_args().get(name)
    used: list[KnobValue] = [start]
    if name in spec.space:
        given = [*spec.space[name].all_values(), spec.baseline.get(name)]
        used = [start if value is None else value for value in given]
    return [value if isinstance(value, int) else None for value in used]


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
                f"{path}: {key}: {value} is above {start}, the value under engine at which the engine starts; "
                "a live knob can only be lowered from there"
            )


def _start_value(spec: SweepSpec, name: str) -> int | None:
    """Upper bound of a live knob, where the spec gives it: what the engine's buffers are made for."""
    if spec.is_lab:
        return lab_start_value(spec, name)
    bounds = {
        "max_num_batched_tokens": spec.engine.args.get("max_num_batched_tokens"),
        "max_num_seqs": spec.engine.args.get("max_num_seqs"),
        "prefill_chunk_size": spec.engine.plugin.prefill_chunk_size,
    }
    start = bounds.get(name)
    return start if isinstance(start, int) else None


def _checked_model(path: Path, spec: SweepSpec) -> str:
    """The model for an engine in any working folder: a folder's path is made absolute."""
    if spec.is_lab:
        if spec.model != LAB_MODEL or spec.tiny_model:
            key, given = ("model", spec.model) if spec.model != LAB_MODEL else ("tiny_model", spec.tiny_model)
            raise UserError(f"{path}: {key}: the kernel lab has no model: leave it out; got {given!r}")
        return spec.model
    if spec.model == TINY_MODEL:
        try:
            TinyMLAConfig(**spec.tiny_model)
        except TypeError:
            known = set(TinyMLAConfig.__dataclass_fields__)
            unknown = next(name for name in spec.tiny_model if name not in known)
            raise unknown_name("key", unknown, known, where=f"{path}: tiny_model") from None
        except ValueError as error:
            raise UserError(f"{path}: tiny_model: {error}") from error
        return spec.model
    if spec.tiny_model:
        raise UserError(f"{path}: tiny_model: only for model {TINY_MODEL}, got model {spec.model!r}")
    folder = Path(spec.model).expanduser()
    if (folder / "config.json").is_file():
        return str(folder.resolve())
    if folder.exists():
        raise UserError(f"{path}: model: {spec.model!r} has no config.json; a model is a folder with one")
    if not _HUB_NAME.fullmatch(spec.model) or (folder.parent.is_dir() and folder.parent != Path()):
        raise UserError(
            f"{path}: model: {spec.model!r} does not exist; allowed: {TINY_MODEL}, a model's folder, or a hub name "
            "org/name"
        )
    return spec.model
