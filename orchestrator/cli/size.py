"""``chunksmith size``: rows and bytes of the prefill workspace, under each rule that vLLM has had."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.arguments import AsJson, complete_model
from orchestrator.errors import UserError

if TYPE_CHECKING:
    from orchestrator.planning.shape import EngineShape

_RULES = {
    "0.8": "vLLM 0.8 to 0.10",
    "0.11": "vLLM 0.11 to 0.27",
    "pr-50484": "main, eleven days",
    "0.28": "vLLM 0.28 and later",
}


def size(
    model: Annotated[
        str, typer.Option(help="A shipped model, for instance deepseek-v3 or kimi-k3.", autocompletion=complete_model)
    ],
    max_model_len: Annotated[int | None, typer.Option(help="Tokens; the model's own if omitted.")] = None,
    max_num_seqs: Annotated[int, typer.Option(help="Requests.")] = 256,
    max_num_batched_tokens: Annotated[int, typer.Option(help="Tokens in a step.")] = 8192,
    block_size: Annotated[int, typer.Option(help="Tokens in a KV cache block.")] = 64,
    tp: Annotated[int | None, typer.Option(help="Tensor parallel ranks; as many as --dcp if omitted.")] = None,
    pp: Annotated[int, typer.Option(help="Pipeline stages.")] = 1,
    dcp: Annotated[int, typer.Option(help="Decode context parallel ranks.")] = 1,
    interleave: Annotated[int, typer.Option(help="Consecutive tokens that a rank keeps.")] = 1,
    kv_cache_dtype: Annotated[str, typer.Option(help="auto, fp8 or fp8_ds_mla.")] = "auto",
    speculative_tokens: Annotated[int, typer.Option(help="Drafted tokens a step.")] = 0,
    prefill_chunk_size: Annotated[int, typer.Option(help="DeepSeek-V4's class constant.")] = 4,
    cap: Annotated[int | None, typer.Option(help="Cap of the workspace in rows; the rule's own if omitted.")] = None,
    direct_dcp: Annotated[bool, typer.Option("--direct-dcp", help="Count symmetric-memory buffers of DCP.")] = False,
    dcp_comm_backend: Annotated[str, typer.Option(help="ag_rs or a2a.")] = "ag_rs",
    other_peak_gib: Annotated[float, typer.Option(help="Largest other transient of the memory profile.")] = 0.0,
    vllm: Annotated[str, typer.Option(help="The vLLM version whose other buffers count.")] = "0.32.0",
    as_json: AsJson = False,
) -> None:
    """Size the MLA prefill workspace for a model and flags: rows and bytes, before and after the fix of vLLM 0.28.

    Example: chunksmith size --model kimi-k3 --block-size 768 --dcp 8 --max-num-seqs 1024
    """
    from orchestrator.planning.models import model_named
    from orchestrator.planning.shape import EngineShape

    try:
        shape = EngineShape(
            model=model_named(model),
            vllm=vllm,
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            block_size=block_size,
            tp=max(dcp, 1) if tp is None else tp,
            pp=pp,
            dcp=dcp,
            interleave=interleave,
            kv_cache_dtype=kv_cache_dtype,
            num_speculative_tokens=speculative_tokens,
            prefill_chunk_size=prefill_chunk_size,
            mla_workspace_rows=cap,
            direct_dcp=direct_dcp,
            dcp_comm_backend=dcp_comm_backend,
        )
        if other_peak_gib < 0:
            raise ValueError(f"other_peak_gib must be at least 0, got {other_peak_gib}")
        found = _layers(shape) if shape.model.is_v4 else _rules(shape, int(other_peak_gib * 1024**3))
    except ValueError as error:
        raise UserError(str(error)) from error
    if as_json:
        typer.echo(json.dumps(found, indent=1))
    elif shape.model.is_v4:
        _show_layers(found)
    else:
        _show_rules(found)


def _head(shape: EngineShape) -> dict[str, Any]:
    from orchestrator.planning.constraints import violations

    names = ("max_num_seqs", "max_num_batched_tokens", "block_size", "tp", "pp", "dcp", "interleave", "kv_cache_dtype")
    return {
        "model": shape.model.name,
        "vllm": shape.vllm,
        "flags": {"max_model_len": shape.length, **{name: getattr(shape, name) for name in names}},
        "violations": [f"{rule.name}: {rule.message(shape)}" for rule in violations(shape)],
    }


def _rules(shape: EngineShape, other_peak: int) -> dict[str, Any]:
    from orchestrator.planning.memory import buffers_of, knee, kv_effect

    shapes = {rule: replace(shape, rule=rule) for rule in _RULES}
    rules = {
        rule: {
            "versions": _RULES[rule],
            "rows": sized.workspace_rows(),
            "profiled_rows": sized.workspace_rows(sparse=False),
            "buffers": [asdict(buffer) for buffer in buffers_of(sized)],
        }
        for rule, sized in shapes.items()
    }
    effects = {
        f"{before} to 0.28": asdict(kv_effect(shapes[before], shapes["0.28"], other_peak_bytes=other_peak))
        for before in _RULES
        if before != "0.28"
    }
    return {
        **_head(shape),
        "rules": rules,
        "kv_effect": effects,
        "knee_rows": knee(shape, other_peak_bytes=other_peak) if other_peak else None,
    }


def _layers(shape: EngineShape) -> dict[str, Any]:
    from orchestrator.planning.memory import area_of, buffers_of, reserved_bytes, worst_bytes

    layers = {
        kind.name: {
            "layers": count,
            "area_limit_rows": area_of(shape, kind),
            "reserved_bytes": reserved_bytes(shape, kind),
            "worst_bytes": worst_bytes(shape, kind),
        }
        for kind, count in shape.model.layer_types
    }
    return {**_head(shape), "layers": layers, "buffers": [asdict(buffer) for buffer in buffers_of(shape)]}


def _show_head(found: dict[str, Any]) -> None:
    flags = " ".join(f"{name}={value}" for name, value in found["flags"].items())
    typer.echo(f"{found['model']}  {flags}\n")


def _show_tail(found: dict[str, Any]) -> None:
    for line in found["violations"]:
        typer.echo(f"vLLM {found['vllm']} rejects this: {line}")


def _show_rules(found: dict[str, Any]) -> None:
    _show_head(found)
    typer.echo(f"{'rule':<10}{'for':<22}{'rows':>10}{'profiled':>10}   MiB of each buffer on a rank")
    for rule, sized in found["rules"].items():
        sizes = ", ".join(f"{item['name']} {item['bytes'] / 2**20:,.1f}" for item in sized["buffers"])
        typer.echo(f"{rule:<10}{sized['versions']:<22}{sized['rows']:>10,}{sized['profiled_rows']:>10,}   {sizes}")
    typer.echo("")
    for item in found["rules"]["0.28"]["buffers"]:
        typer.echo(f"  {item['name']:<24}{item['counted']}")
    typer.echo("")
    for change, effect in found["kv_effect"].items():
        typer.echo(
            f"{change + ':':<18}{effect['blocks']:+,} KV blocks ({effect['tokens']:+,} tokens) a rank,"
            f" {effect['headroom_bytes'] / 2**20:+,.1f} MiB outside the KV cache"
            + ("; another transient is the peak" if effect["saturated"] else "")
        )
    if found["knee_rows"] is not None:
        typer.echo(f"below {found['knee_rows']:,} rows a smaller workspace gains no more KV cache")
    _show_tail(found)


def _show_layers(found: dict[str, Any]) -> None:
    _show_head(found)
    typer.echo(f"{'layers':<12}{'count':>6}{'area limit, rows':>20}{'reserved, MiB':>16}{'worst batch, MiB':>19}")
    for name, layer in found["layers"].items():
        typer.echo(
            f"{name:<12}{layer['layers']:>6}{layer['area_limit_rows']:>20,}"
            f"{layer['reserved_bytes'] / 2**20:>16,.1f}{layer['worst_bytes'] / 2**20:>19,.1f}"
        )
    typer.echo("")
    for item in found["buffers"]:
        typer.echo(f"  {item['name']:<20}{item['bytes'] / 2**20:>10,.1f} MiB  {item['counted']}")
    _show_tail(found)
