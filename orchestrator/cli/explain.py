"""``chunksmith explain``: what one point means for vLLM, by arithmetic alone."""

from __future__ import annotations

import difflib
import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.arguments import AsJson
from orchestrator.errors import UserError, unknown_name

if TYPE_CHECKING:
    from orchestrator.planning.memory import Gpu
    from orchestrator.planning.shape import EngineShape

_GIB = 1024**3
#: vLLM's names of the flags that :class:`EngineShape` has short names for.
_VLLM_NAMES = {
    "tensor_parallel_size": "tp",
    "pipeline_parallel_size": "pp",
    "data_parallel_size": "dp",
    "decode_context_parallel_size": "dcp",
    "prefill_context_parallel_size": "pcp",
    "cp_kv_cache_interleave_size": "interleave",
}
_GPU_KEYS = ("total_gib", "weights_gib", "other_peak_gib", "graph_gib", "other_gib")


def explain(
    point: Annotated[Path, typer.Argument(help="A YAML file: model, flags by vLLM's names, and perhaps gpu.")],
    as_json: AsJson = False,
) -> None:
    """Explain a point: its workspace step by step, its buffers, the constraints, and whether it fits.

    Example: chunksmith explain point.yaml --json
    """
    values = _read(point)
    gpu = _gpu(point, values.pop("gpu", None))
    shape, unused = _shape(point, values)
    try:
        found = _explain(shape, gpu)
    except ValueError as error:
        raise UserError(f"{point}: {error}") from error
    found["unused"] = unused
    if as_json:
        typer.echo(json.dumps(found, indent=1))
    else:
        _show(found)


def _read(path: Path) -> dict[str, Any]:
    import yaml

    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a folder, not a file") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: no valid YAML: {error}") from error
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise UserError(f"{path}: must be a mapping of names to values")
    return values


def _gpu(path: Path, section: Any) -> Gpu | None:
    from orchestrator.planning.memory import Gpu

    if section is None:
        return None
    if not isinstance(section, dict):
        raise UserError(f"{path}: gpu: must be a mapping, got {section!r}")
    for key, value in section.items():
        if key not in _GPU_KEYS:
            raise unknown_name("key", str(key), _GPU_KEYS, where=f"{path}: gpu")
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e6:
            raise UserError(f"{path}: gpu: {key}: must be a number of GiB, got {value!r}")
    for key in ("total_gib", "weights_gib"):
        if key not in section:
            raise UserError(f"{path}: gpu: {key}: is missing")
    return Gpu(**{key.replace("_gib", "_bytes"): int(value * _GIB) for key, value in section.items()})


def _shape(path: Path, values: dict[str, Any]) -> tuple[EngineShape, list[str]]:
    """Make the engine, and list the keys that the arithmetic does not use. A near miss of a known one is an error."""
    from orchestrator.planning.models import model_named
    from orchestrator.planning.shape import EngineShape

    own = {item.name for item in fields(EngineShape)}
    known = own | set(_VLLM_NAMES)
    unused, flags = [], {}
    for key, value in values.items():
        if key in known:
            name = _VLLM_NAMES.get(key, key)
            if name in flags:
                raise UserError(f"{path}: {key}: is given twice, also as {name}")
            flags[name] = value
        elif difflib.get_close_matches(key, known, n=1, cutoff=0.8):
            raise unknown_name("key", key, known, where=str(path))
        else:
            unused.append(key)
    if "model" not in flags:
        raise UserError(f"{path}: model: is missing")
    try:
        return EngineShape(**{**flags, "model": model_named(str(flags["model"]))}), unused
    except (TypeError, ValueError) as error:
        raise UserError(f"{path}: {error}") from error


def _explain(shape: EngineShape, gpu: Gpu | None) -> dict[str, Any]:
    from orchestrator.planning.constraints import CONSTRAINTS, violations
    from orchestrator.planning.memory import buffers_of, fits

    broken = violations(shape)
    found: dict[str, Any] = {
        "model": shape.model.name,
        "vllm": shape.vllm,
        "gpus": shape.gpus,
        "constraints": {
            "checked": [rule.name for rule in CONSTRAINTS if rule.applies(shape.release)],
            "violations": [f"{rule.name}: {rule.message(shape)}" for rule in broken],
        },
    }
    if broken:
        # What vLLM rejects is never allocated, and its sizes may not even be defined.
        return {**found, "workspace": None, "buffers": [], "fits": None}
    found["workspace"] = _layer_steps(shape) if shape.model.is_v4 else _row_steps(shape)
    found["buffers"] = [asdict(buffer) for buffer in buffers_of(shape)]
    found["fits"] = None if gpu is None else asdict(fits(shape, gpu))
    return found


def _row_steps(shape: EngineShape) -> dict[str, Any]:
    from orchestrator.planning.workspace import DEFAULT_CAP, workspace_alignment

    step = workspace_alignment(block_size=shape.block_size, dcp=shape.dcp, interleave=shape.interleave)
    pages = 4 * shape.max_num_seqs * shape.block_size
    lines = [
        f"8 * max_model_len = {8 * shape.length}; 4 * max_num_seqs * block_size = {pages}; the larger counts",
        f"cap: {shape.mla_workspace_rows or (131_072 if shape.sizing_rule == '0.8' else DEFAULT_CAP)} rows",
    ]
    if shape.model.is_sparse:
        lines.append(
            f"sparse: at most max_num_seqs * index_topk = {shape.max_num_seqs * (shape.model.index_topk or 0)}"
        )
    floors = {
        "0.28": f"at least one step, a multiple of {step}",
        "pr-50484": f"at least max_num_seqs * {step} = {shape.max_num_seqs * step}, a multiple of {step}",
    }
    floor = f"at least max_num_seqs * block_size = {shape.max_num_seqs * shape.block_size}, not aligned"
    lines.append(f"rule {shape.sizing_rule}: {floors.get(shape.sizing_rule, floor)}")
    return {"rule": shape.sizing_rule, "rows": shape.workspace_rows(), "alignment": step, "steps": lines}


def _layer_steps(shape: EngineShape) -> dict[str, Any]:
    from orchestrator.planning.memory import area_of

    lines = []
    for kind, count in shape.model.layer_types:
        limit = area_of(shape, kind)
        line = f"{count} {kind.name} layers: {limit} rows reserved, as many for a chunk"
        if shape.prefill_area_limit is not None and shape.prefill_area_limit < limit:
            line += f"; lowered to {shape.prefill_area_limit} rows a chunk, the reservation stays"
        lines.append(line)
    return {"rule": "prefill_chunk_size * (compressed + window + max_num_batched_tokens)", "steps": lines}


def _show(found: dict[str, Any]) -> None:
    typer.echo(f"{found['model']} on vLLM {found['vllm']}, {found['gpus']} GPUs")
    checked, broken = found["constraints"]["checked"], found["constraints"]["violations"]
    typer.echo(f"\nconstraints: {len(checked)} checked, {len(broken)} broken")
    for line in broken:
        typer.echo(f"  {line}")
    if found["workspace"] is not None:
        typer.echo("\nworkspace")
        for line in found["workspace"]["steps"]:
            typer.echo(f"  {line}")
        if "rows" in found["workspace"]:
            typer.echo(f"  = {found['workspace']['rows']:,} rows")
        typer.echo("\nbuffers on a rank")
        for item in found["buffers"]:
            typer.echo(f"  {item['name']:<24}{item['bytes'] / 2**20:>12,.1f} MiB  {item['counted']}")
    if found["fits"] is not None:
        verdict = found["fits"]
        starts, serves = ("yes" if verdict[key] else "no" for key in ("starts", "serves"))
        typer.echo(f"\nstarts: {starts}; its worst batch fits: {serves}; KV cache {verdict['kv_bytes'] / _GIB:.2f} GiB")
        for line in verdict["reasons"]:
            typer.echo(f"  {line}")
    if found["unused"]:
        typer.echo(f"\nnot part of this arithmetic: {', '.join(found['unused'])}")
