"""``chunksmith soak RUN``: does the winner survive the worst batches that the scheduler can form?"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.arguments import AsJson, RunFolderArgument
from orchestrator.cli.output import progress_console
from orchestrator.cli.ray_options import auth_mode, stop_on_sigterm
from orchestrator.errors import ChunksmithError, UserError

if TYPE_CHECKING:
    from orchestrator.cluster import RayEngine
    from orchestrator.records import RunFolder


def soak(
    run: RunFolderArgument,
    trial: Annotated[int | None, typer.Option(min=0, help="Trial to soak; the winner if omitted.")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds; as the run's spec says if omitted.")] = None,
    address: Annotated[
        str | None, typer.Option(help="Ray cluster: auto, or host:port. A local one if omitted.")
    ] = None,
    ray_auth: Annotated[str | None, typer.Option(help="Ray's authentication: token or disabled.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run the worst batches that the scheduler can form beside the normal load, on an engine at the winner's point.

    Example: chunksmith soak runs/cpu-demo --rounds 3
    """
    from rich.text import Text

    from orchestrator.cli.tables import show_json
    from orchestrator.cluster import RayEngine, engines_that_fit, ray_session
    from orchestrator.records import RunFolder, soak_path
    from orchestrator.sweep import load_spec, point_to_soak, soak_trial
    from orchestrator.sweep.progress import describe

    auth = auth_mode(ray_auth)
    folder = RunFolder.open(run)
    spec = load_spec(folder.spec)
    number = _winner(folder) if trial is None else trial
    point = point_to_soak(spec, folder, number)
    wanted = rounds or spec.soak.rounds or 1
    span = "1 round" if wanted == 1 else f"{wanted} rounds"
    console = progress_console(as_json=as_json)

    def say(line: str) -> None:
        console.print(Text(line), soft_wrap=True)

    def make_engine() -> RayEngine:
        has, limits = spec.resources, spec.timeouts.limits()
        engine = RayEngine(folder.logs, kind=spec.engine.kind, cpus=has.cpus, gpus=has.gpus, timeouts=limits)
        say(f"starting {engine.engine_id} (log: {engine.log_path})")
        return engine

    say(f"soak of trial {number}: {describe(point)}: {span}, run {folder.path}")
    with folder.lock(), ray_session(address, auth_mode=auth), stop_on_sigterm():
        engines_that_fit(1, cpus=spec.resources.cpus, gpus=spec.resources.gpus)
        record = soak_trial(spec, folder, make_engine, number, point, rounds=wanted, say=say)
    where = soak_path(folder.path, number)
    if not record.passed:
        raise ChunksmithError(
            f"trial {number} failed its soak at {record.batch!r}: {record.failure}: {record.detail} "
            f"(engine log: {record.engine_log}); reproducer: {where}"
        )
    if as_json:
        show_json({**asdict(record), "file": str(where)})
    else:
        typer.echo(
            f"trial {number} passed its soak: {record.blocks} blocks in {record.seconds:.0f} s, no failure ({where})"
        )


def _winner(folder: RunFolder) -> int:
    from orchestrator.analysis import best

    answer = best(folder.path)
    if answer.decision != "winner" or answer.trial is None:
        raise UserError(f"{folder.path}: there is no winner to soak ({answer.reason}); name a trial with --trial")
    return answer.trial
