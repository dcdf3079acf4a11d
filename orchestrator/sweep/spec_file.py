"""Read a sweep spec and check it: each mistake is one line that names the file, the key and the value."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from orchestrator.engines import LIVE_KNOBS, KnobValue
from orchestrator.errors import UserError, unknown_name
from orchestrator.measurement import METRIC_NAMES, needs_two_tokens
from orchestrator.models import TinyMLAConfig
from orchestrator.sweep.spec import TINY_MODEL, KnobSection, SweepSpec, direction_of
from orchestrator.vllm_plugin import CONFIG_KEY
from orchestrator.vllm_plugin.arguments import engine_arguments

_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")
_MESSAGES = {
    "missing": "is missing",
    "model_type": "should be a mapping of keys",
    "dict_type": "should be a mapping of keys",
    "too_short": "should not be empty",
}
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
        raise _one_line(path, error) from error
    _check_names(path, spec)
    _check_values(path, spec)
    return spec.model_copy(update={"model": _checked_model(path, spec)})


def _one_line(path: Path, error: ValidationError) -> UserError:
    """The first finding of pydantic as one line; an unknown key gets its nearest neighbour."""
    findings = {_place(finding): finding for finding in reversed(error.errors())}
    keys, first = list(findings.items())[-1]
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    if first["type"] == "extra_forbidden":
        where = f"{path}: {'.'.join(keys[:-1])}" if len(keys) > 1 else str(path)
        return UserError(f"{unknown_name('key', keys[-1], _keys_at(keys[:-1]), where=where)}{more}")
    value = first["input"]
    message = _MESSAGES.get(first["type"], first["msg"].removeprefix("Value error, ").replace("Input should", "should"))
    if len(keys) < len(first["loc"]):
        message = "should be a number, true, false, text or null"
    is_shown = first["type"] not in ("missing", "value_error")
    got = f", got {value!r}" if is_shown and repr(value) not in message else ""
    return UserError(f"{path}: {'.'.join(keys)}: {message[0].lower()}{message[1:]}{got}{more}")


def _place(finding: ErrorDetails) -> tuple[str, ...]:
    """Keys of the file that lead to a finding; of a knob's value pydantic also names the type that it tried."""
    keys = tuple(str(part) for part in finding["loc"])
    return keys[:-1] if keys[0] in ("space", "baseline") and keys[-1] in ("bool", "int", "float", "str") else keys


def _keys_at(location: Sequence[str]) -> list[str]:
    """Keys that the spec knows at a place."""
    if len(location) == 2 and location[0] == "space":
        return list(KnobSection.model_fields)
    model: type[BaseModel] = SweepSpec
    for part in location:
        section = model.model_fields[part].annotation
        assert isinstance(section, type)
        assert issubclass(section, BaseModel)
        model = section
    return list(model.model_fields)


def _check_names(path: Path, spec: SweepSpec) -> None:
    arguments = engine_arguments()
    for name, section in spec.space.items():
        _check_reserved(path, f"space.{name}", name)
        if name == "additional_config":
            raise UserError(f"{path}: space.additional_config: belongs to engine.args; it cannot be a knob")
        if name in LIVE_KNOBS:
            continue
        if arguments and name not in arguments:
            raise unknown_name("knob", name, {*LIVE_KNOBS, *arguments}, where=f"{path}: space")
        if section.scope == "live":
            live = ", ".join(sorted(LIVE_KNOBS))
            raise UserError(f"{path}: space.{name}.scope: must be engine; live is possible for {live}")
    for name in spec.engine.args:
        _check_reserved(path, f"engine.args.{name}", name)
        if arguments and name not in arguments:
            raise unknown_name("engine argument", name, arguments, where=f"{path}: engine.args")
    additional = spec.engine.args.get("additional_config")
    if additional is not None and not isinstance(additional, Mapping):
        raise UserError(f"{path}: engine.args.additional_config: should be a mapping of keys, got {additional!r}")
    if CONFIG_KEY in (additional or {}):
        raise UserError(f"{path}: engine.args.additional_config.{CONFIG_KEY}: belongs to engine.plugin")
    for name in spec.baseline:
        if name not in spec.space:
            raise unknown_name("knob", name, spec.space, where=f"{path}: baseline")
    if spec.objective.metric not in METRIC_NAMES:
        raise unknown_name("metric", spec.objective.metric, METRIC_NAMES, where=f"{path}: objective.metric")


def _check_reserved(path: Path, key: str, name: str) -> None:
    if name in _RESERVED_ARGS:
        raise UserError(f"{path}: {key}: belongs to {_RESERVED_ARGS[name]}")


def _check_values(path: Path, spec: SweepSpec) -> None:
    _check_size(path, spec)
    metric, direction = spec.objective.metric, spec.objective.direction
    if direction != direction_of(metric):
        raise UserError(f"{path}: objective.direction: must be {direction_of(metric)} for {metric}, got {direction}")
    if needs_two_tokens(spec.objective.metric) and spec.workload.output_len < 2:
        length = spec.workload.output_len
        raise UserError(f"{path}: workload.output_len: {metric} needs at least 2 output tokens, got {length}")
    for name, section in spec.space.items():
        if name in LIVE_KNOBS:
            start = _start_value(spec, name) if section.scope == "live" else None
            _check_live_values(path, f"space.{name}", name, section.all_values(), start)
            _check_live_values(path, f"baseline.{name}", name, [spec.baseline.get(name)], start)
    limit = spec.engine.args.get("max_model_len")
    for key, part in (("workload", spec.workload), ("accuracy", spec.accuracy)):
        needed = part.input_len + part.output_len
        if isinstance(limit, int) and needed > limit:
            raise UserError(f"{path}: {key}: {needed} tokens of input and output exceed max_model_len {limit}")
    if "mla_workspace_rows" in spec.space and (step := _largest_step(spec)) is not None:
        for key, length in (("workload", spec.workload.input_len), ("accuracy", spec.accuracy.input_len)):
            if length <= step:
                raise UserError(
                    f"{path}: {key}.input_len: must be above {step}, the tokens of a scheduler step: a prompt that "
                    f"fits into one step never reaches the workspace of mla_workspace_rows; got {length}"
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
    start = spec.engine.args.get(name)
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
    bounds = {
        "max_num_batched_tokens": spec.engine.args.get("max_num_batched_tokens"),
        "max_num_seqs": spec.engine.args.get("max_num_seqs"),
        "prefill_chunk_size": spec.engine.plugin.prefill_chunk_size,
    }
    start = bounds.get(name)
    return start if isinstance(start, int) else None


def _checked_model(path: Path, spec: SweepSpec) -> str:
    """The model for an engine in any working folder: a folder's path is made absolute."""
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
