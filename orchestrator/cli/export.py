"""``chunksmith export RUN``: the winner as something to deploy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.arguments import RunArgument, complete_from
from orchestrator.cli.output import note
from orchestrator.errors import ChunksmithError

if TYPE_CHECKING:
    from orchestrator.analysis.export import Deployment, Placement

_FORMATS = ("vllm-serve", "yaml", "kubernetes", "ray-serve", "llm-d")


def export(
    run: RunArgument,
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            help="vllm-serve, yaml, kubernetes, ray-serve or llm-d.",
            autocompletion=complete_from(lambda: _FORMATS),
        ),
    ] = "vllm-serve",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; standard output if left out.")
    ] = None,
    trial: Annotated[int | None, typer.Option(help="Trial to export; the winner if left out.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the deployment; the study's if left out.")] = None,
    image: Annotated[str | None, typer.Option(help="Container image with vLLM, and Chunksmith if needed.")] = None,
    model: Annotated[str | None, typer.Option(help="Model there; the run's if left out.")] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the server.")] = 8000,
    gpus_per_node: Annotated[int, typer.Option(min=1, help="Most GPUs of one pod.")] = 8,
    check: Annotated[
        bool, typer.Option("--check", help="Let the installed vLLM parse the arguments first (some seconds).")
    ] = False,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure", help="Start it and the baseline under vllm serve first, and measure the ratio again (minutes)."
        ),
    ] = False,
) -> None:
    """Write the winner of a run as a script, a config file or a manifest.

    Example: chunksmith export runs/cpu-demo --format kubernetes --image registry/vllm-chunksmith:0.32 -o deploy.yaml
    """
    from orchestrator.analysis.export import Placement, deployment, write

    what = deployment(run, trial)
    where = Placement(
        name=name if name is not None else _name_of(what.study),
        image=image,
        model=model,
        port=port,
        gpus_per_node=gpus_per_node,
    )
    text = write(format_, what, where)
    if check:
        from orchestrator.cli.export_check import check_arguments

        version = check_arguments([where.model or what.model, *what.words], what.env)
        note(f"checked: vLLM {version} accepts the arguments", err=True)
    if measure:
        _measure(run, what, where)
    if output is None:
        typer.echo(text, nl=False)
        return
    from orchestrator.cli.output import write_output

    write_output(output, text)
    if format_ == "vllm-serve" and output.is_file():
        output.chmod(0o755)
    note(f"{output}: trial {what.trial}, {what.verdict}", err=True)


def _measure(run: Path, what: Deployment, where: Placement) -> None:
    """Measure, and say what was found. Raises ChunksmithError when it contradicts the run."""
    from orchestrator.cli.export_measure import lines, measure

    found = measure(run, what, where)
    if found.is_contradiction:
        raise ChunksmithError("; ".join(lines(found)))
    for line in lines(found):
        typer.echo(line, err=True)


def _name_of(study: str) -> str:
    """The study's name as Kubernetes can take it."""
    return re.sub(r"[^a-z0-9-]+", "-", study.lower())[:63].strip("-")
