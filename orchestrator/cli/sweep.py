"""``chunksmith sweep``: run a study, or go on with one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.arguments import AsJson, complete_run, complete_spec
from orchestrator.cli.output import progress_console
from orchestrator.cli.ray_options import auth_mode, stop_on_sigterm
from orchestrator.cli.resume_command import resume_command
from orchestrator.cli.slots import room_for
from orchestrator.errors import ChunksmithError, UserError

if TYPE_CHECKING:
    from rich.console import Console

    from orchestrator.cluster import AuthMode
    from orchestrator.cluster.engine_actor import EngineKind
    from orchestrator.records import RunFolder
    from orchestrator.sweep import SweepSpec

DEFAULT_RUNS = Path("runs")


class Interrupted(ChunksmithError):
    """The user stopped the sweep."""

    exit_code = 130


def sweep(
    spec: Annotated[
        Path | None,
        typer.Argument(
            help="Sweep spec (YAML). With --resume it may be left out: the latest run goes on.",
            autocompletion=complete_spec,
        ),
    ] = None,
    run: Annotated[
        Path | None, typer.Option(help="Run folder; runs/<study> if omitted.", autocompletion=complete_run)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an earlier run.")] = False,
    trials: Annotated[int | None, typer.Option(min=1, help="In place of the spec's number of trials.")] = None,
    parallel: Annotated[
        int | None, typer.Option(min=1, help="Trials measured at a time, in place of the spec's resources.parallel.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="Ray cluster: auto, or host:port. A local one if omitted.")
    ] = None,
    ray_auth: Annotated[str | None, typer.Option(help="Ray's authentication: token or disabled.")] = None,
    dashboard_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Show Ray's dashboard of a local cluster on this port.")
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(help="Where Optuna keeps the study, in place of the spec's storage: journal, or a URL."),
    ] = None,
    mirror: Annotated[
        str | None,
        typer.Option(
            help="Address of a folder in an object storage, s3://BUCKET/FOLDER, to which the records go too, in place "
            "of the spec's mirror; none for no mirror."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the command and environment of every engine; start nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a sweep: measure, record, confirm the best, and say which configuration to deploy.

    Example: chunksmith sweep search_spaces/cpu_demo.yaml
    """
    if dry_run:
        if as_json:
            raise UserError("--json: cannot go with --dry-run, whose answer is commands for a shell")
        _print_engines(spec)
        return
    auth = auth_mode(ray_auth)
    folder, resolved, made_here = _open(spec, run, resume, trials, storage, mirror)
    console = progress_console(as_json=as_json)
    go_on = resume_command(folder.path, address=address, ray_auth=ray_auth, parallel=parallel)
    try:
        with folder.lock():
            _run(folder, resolved, console, address, auth, dashboard_port, parallel or resolved.resources.parallel)
    except UserError:
        # Before the sweep began: the same command, mended, shall not find a run in its way.
        if not resume and not folder.provenance.exists():
            _remove(folder, made_here)
        raise
    except KeyboardInterrupt as error:
        raise Interrupted(
            f"stopped; what has ended is kept, and the trial in hand is measured again. Go on with: {go_on}"
        ) from error
    except OSError as error:
        where = error.filename or folder.path
        raise ChunksmithError(f"{where}: {error.strerror or error}. Mend that, then: {go_on}") from error
    except ChunksmithError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        raise ChunksmithError(f"{error} Mend that, then: {go_on}") from error
    _print_answer(folder, as_json=as_json)


def _print_engines(spec: Path | None) -> None:
    from orchestrator.cli.dry_run import engine_lines
    from orchestrator.sweep import load_spec

    if spec is None:
        raise UserError("sweep --dry-run: give a spec, for instance search_spaces/cpu_demo.yaml")
    for line in engine_lines(load_spec(spec)):
        typer.echo(line)


def _run(
    folder: RunFolder,
    spec: SweepSpec,
    console: Console,
    address: str | None,
    auth: AuthMode | None,
    dashboard_port: int | None,
    parallel: int | None,
) -> None:
    from orchestrator.cluster import NodeWatch, RayEngine, engines_that_fit, ray_session
    from orchestrator.sweep import Progress, Sweep

    progress = Progress(console, total=spec.trials, finalists=spec.confirm.points)
    size = spec.search_space().size
    console.print(f"study {spec.study}: {spec.trials} trials of {size} points, run {folder.path}")

    nodes, limits = NodeWatch(progress.say), spec.timeouts.limits()

    def make_engine(kind: EngineKind = spec.engine.kind) -> RayEngine:
        has = spec.resources
        engine = RayEngine(folder.logs, kind=kind, cpus=has.cpus, gpus=has.gpus, timeouts=limits, nodes=nodes)
        progress.engine_state(f"starting {engine.engine_id} (log: {engine.log_path})")
        return engine

    with _mirrored(folder, spec, progress.say), progress:
        progress.engine_state("starting Ray" if address is None else f"joining Ray at {address}")
        # Inside, because `ray.init` sets a handler of its own, which ends the process.
        with ray_session(address, auth_mode=auth, dashboard_port=dashboard_port), stop_on_sigterm():
            has, growth_s = spec.resources, limits.growth_s
            # With an engine-scope knob the baseline's engine stays warm beside the candidate's, if both fit.
            wanted = 2 if len(spec.search_space().groups()) > 1 else 1
            engines = engines_that_fit(wanted, cpus=has.cpus, gpus=has.gpus, nodes=nodes, growth_s=growth_s)
            if engines < wanted:
                progress.say("the cluster has room for one engine: pairs across two are measured in alternated starts")
            room = room_for(spec, engines, parallel=parallel, is_local=address is None, say=progress.say)
            make_lab = partial(make_engine, "kernel_lab")
            # The two of a start may begin together where nobody else wants the room: slots of the search would.
            at_once = engines
            if room is None and has.gpus == 0 and spec.confirm.starts > 1:
                at_once = engines_that_fit(2, cpus=has.cpus, gpus=has.gpus, nodes=nodes)
            sweep = Sweep(
                spec, folder, make_engine, progress, engines=engines, at_once=at_once, make_lab=make_lab, room=room
            )
            sweep.run()


def _mirrored(folder: RunFolder, spec: SweepSpec, say: Callable[[str], None]) -> AbstractContextManager[object]:
    """While it is entered, what is recorded goes to the spec's mirror too."""
    from orchestrator.records.remote import Following, open_mirror

    if spec.mirror is None:
        return nullcontext()
    return Following(folder, open_mirror(folder, spec.mirror), say, partial(typer.echo, err=True))


def _open(
    spec_path: Path | None,
    run: Path | None,
    resume: bool,
    trials: int | None,
    storage: str | None,
    mirror: str | None = None,
) -> tuple[RunFolder, SweepSpec, bool]:
    """The run folder, the spec to go by, and whether the folder was made here. A new run gets its resolved spec."""
    from orchestrator.records import RunFolder
    from orchestrator.records.remote import Claim, checked
    from orchestrator.records.store import Place
    from orchestrator.sweep import load_spec

    given = load_spec(spec_path) if spec_path is not None else None
    if given is not None and trials is not None:
        given = given.model_copy(update={"trials": trials})
    at: dict[str, str | None] = {} if storage is None else {"storage": _checked_storage(storage)}
    if mirror is not None:
        at["mirror"] = None if mirror == "none" else checked(mirror, where="--mirror")
    if given is not None:
        given = given.model_copy(update=at)
    if not resume:
        if given is None:
            raise UserError("sweep: give a spec, for instance search_spaces/cpu_demo.yaml, or --resume")
        path = run or DEFAULT_RUNS / given.study
        made_here = not path.exists()
        return RunFolder.create(path, spec=given.to_yaml()), given, made_here
    if run is None:
        run = DEFAULT_RUNS / given.study if given is not None else _latest_run()
    folder = RunFolder.open(run)
    recorded = load_spec(folder.spec)
    if (place := Place.read(folder)).run:
        # A database that was moved is where the last process found it.
        recorded = recorded.model_copy(update={"storage": place.address})
    # A mirror is no part of the study: it may come, and go elsewhere.
    last = (given and given.mirror) or Claim.read(folder).target or recorded.mirror
    recorded = recorded.model_copy(update={"mirror": last, **at})
    if given is not None:
        given = given.model_copy(update={"mirror": recorded.mirror})
        _require_same(given, recorded, spec_path, folder)
        # What is recorded has no password.
        recorded = recorded.model_copy(update={"storage": given.storage})
    elif trials not in (None, recorded.trials):
        raise UserError(f"--trials {trials}: the run has {recorded.trials} trials, and a resumed run keeps its spec")
    return folder, recorded, False


def _checked_storage(given: str) -> str:
    from orchestrator.records.store import Address

    Address.parse(given, where="--storage")
    return given


def _remove(folder: RunFolder, made_here: bool) -> None:
    """Remove a run that has not begun, and its folder too unless the user made that."""
    for entry in folder.path.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    if made_here:
        folder.path.rmdir()


def _require_same(given: SweepSpec, recorded: SweepSpec, path: Path | None, folder: RunFolder) -> None:
    """A run is one study: another spec would mix what cannot be compared."""
    import yaml

    new, old = yaml.safe_load(given.to_yaml()), yaml.safe_load(recorded.to_yaml())
    for key in new:
        if new[key] != old[key]:
            raise UserError(
                f"{path}: {key}: {new[key]!r} differs from {old[key]!r} in {folder.spec}; a resumed run keeps its "
                "spec: leave the spec out, or choose another run folder with --run"
            )


def _latest_run() -> Path:
    from orchestrator.records import RunFolder

    specs = [run.spec for run in map(RunFolder, DEFAULT_RUNS.glob("*")) if run.is_run() and run.spec.is_file()]
    if not specs:
        raise UserError(f"{DEFAULT_RUNS}: holds no run to resume; give --run, or start one with a spec")
    return max(specs, key=lambda spec: spec.stat().st_mtime).parent


def _print_answer(folder: RunFolder, *, as_json: bool) -> None:
    from rich.console import Console

    from orchestrator.analysis import best
    from orchestrator.analysis.render import render

    answer = best(folder.path)
    if as_json:
        typer.echo(answer.to_json())
    else:
        render(answer, Console(highlight=False))
