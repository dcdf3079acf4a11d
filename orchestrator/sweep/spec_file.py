"""Read a sweep spec and check it: each mistake is one line that names the file, the key and the value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import yaml
from pydantic import ValidationError

from orchestrator.engines import LIVE_KNOBS, KnobValue
from orchestrator.errors import UserError, unknown_name
from orchestrator.measurement import GOODPUT_AT_SLO, OBJECTIVES, needs_slo, needs_two_tokens
from orchestrator.models import TinyMLAConfig
from orchestrator.records.remote import checked
from orchestrator.records.store import Address
from orchestrator.search import LAB_MODEL
from orchestrator.search.flags import is_nested
from orchestrator.search.vllm_names import vllm_names
from orchestrator.sweep.fidelity_section import check_fidelity
from orchestrator.sweep.lab_spec import check_lab_args, check_lab_values, lab_start_value
from orchestrator.sweep.load_check import check_load_knobs, load_points
from orchestrator.sweep.memory_section import checked_memory
from orchestrator.sweep.search_section import check_search
from orchestrator.sweep.space_builder import TINY_MODEL
from orchestrator.sweep.space_check import check_knobs, check_space
from orchestrator.sweep.spec import SweepSpec, direction_of
from orchestrator.sweep.spec_errors import one_line
from orchestrator.vllm_plugin import CONFIG_KEY
from orchestrator.vllm_plugin.arguments import engine_arguments
from orchestrator.workloads import WorkloadKind

_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")
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
    arguments = check_lab_args(path, spec) if spec.is_lab else _check_vllm_args(path, spec)
    check_knobs(path, spec, arguments)
    for one in spec.all_objectives:
        if one.metric not in OBJECTIVES:
            raise unknown_name("metric", one.metric, OBJECTIVES, where=f"{path}: objective.metric")
    check_search(path, spec)
    Address.parse(spec.storage, where=f"{path}: storage")
    if spec.mirror is not None:
        checked(spec.mirror, where=f"{path}: mirror")
    check_load_knobs(path, spec)
    _check_values(path, spec)
    check_space(path, spec, arguments)
    return spec.model_copy(update={"model": _checked_model(path, spec), "memory": checked_memory(path, spec)})


def _check_vllm_args(path: Path, spec: SweepSpec) -> frozenset[str]:
    """Check the arguments under ``engine``; return the names of all that vLLM has."""
    arguments = engine_arguments() or vllm_names().arguments
    for name in spec.space:
        _check_reserved(path, f"space.{name}", name)
    for name in spec.engine.args:
        _check_reserved(path, f"engine.args.{name}", name)
        if name not in arguments:
            raise unknown_name("engine argument", name, arguments, where=f"{path}: engine.args")
    for name in ("additional_config", *(knob.partition(".")[0] for knob in filter(is_nested, spec.space))):
        value = spec.engine.args.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise UserError(f"{path}: engine.args.{name}: should be a mapping of keys, got {value!r}")
    if CONFIG_KEY in (spec.engine.args.get("additional_config") or {}):
        raise UserError(f"{path}: engine.args.additional_config.{CONFIG_KEY}: belongs to engine.plugin")
    return arguments


def _check_reserved(path: Path, key: str, name: str) -> None:
    if name in _RESERVED_ARGS:
        raise UserError(f"{path}: {key}: belongs to {_RESERVED_ARGS[name]}")


def _check_values(path: Path, spec: SweepSpec) -> None:
    for one in spec.all_objectives:
        if one.direction != (way := direction_of(one.metric)):
            raise UserError(f"{path}: objective.direction: must be {way} for {one.metric}, got {one.direction}")
        _check_objective(path, spec, one.metric)
    check_fidelity(path, spec)
    for name, section in spec.space.items():
        if name in LIVE_KNOBS:
            start = _start_value(spec, name) if section.scope == "live" else None
            _check_live_values(path, f"space.{name}", name, section.all_values(), start)
            _check_live_values(path, f"baseline.{name}", name, [spec.baseline.get(name)], start)
    if spec.is_lab:
        check_lab_values(path, spec)
    parts = [*_workloads(spec), ("accuracy", spec.accuracy_workload())]
    limit = None if "max_model_len" in spec.space else spec.start_args().get("max_model_len")
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


def _workloads(spec: SweepSpec) -> Iterator[tuple[str, WorkloadKind]]:
    """Every workload that a block can have, with what a message calls it."""
    for point in load_points(spec):
        given = [
            f"{name}={value}" for name, value in point.items() if name.startswith("workload") and value is not None
        ]
        yield f"workload at {', '.join(given)}" if given else "workload", spec.block_workload(point)


def _check_objective(path: Path, spec: SweepSpec, metric: str) -> None:
    for key, workload in _workloads(spec):
        length = workload.longest_output()
        if needs_two_tokens(metric) and length is not None and length < 2:
            raise UserError(f"{path}: {key}.output_len: {metric} needs at least 2 output tokens, got {length}")
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
    for point in load_points(spec):
        load = spec.block_load(point)
        if not hasattr(load, "rate"):
            kind = load.model_dump()["kind"]
            raise UserError(
                f"{path}: load.kind: must be constant, poisson or gamma for {GOODPUT_AT_SLO}, got {kind}: the "
                "search sets its rate"
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
