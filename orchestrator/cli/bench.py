"""``chunksmith bench``: one workload on a spec's engine, or on a server that somebody else started."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.arguments import AsJson, complete_spec
from orchestrator.cli.output import progress_console
from orchestrator.cli.ray_options import auth_mode, stop_on_sigterm
from orchestrator.errors import UserError

if TYPE_CHECKING:
    from orchestrator.cluster import AuthMode
    from orchestrator.records import RunFolder
    from orchestrator.sweep import SweepSpec
    from orchestrator.sweep.bench import BenchPlan, BenchTarget, UrlTarget
    from orchestrator.sweep.pool import WarmEngine

VOCAB_SIZE = 10_000
"""Token ids below this are sent to a server whose vocabulary nobody told us."""


def bench(
    spec: Annotated[
        Path | None,
        typer.Argument(
            help="Sweep spec (YAML): its workload and load, and without --url its engine.", autocompletion=complete_spec
        ),
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="OpenAI-compatible server that runs already, for instance http://localhost:8000.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="With --url: the name under which it serves the model.")] = None,
    api_key_env: Annotated[
        str | None, typer.Option(help="With --url: environment variable that holds the API key.")
    ] = None,
    body: Annotated[
        str | None,
        typer.Option(help="With --url: JSON object of further fields of each request, in place of vLLM's own two."),
    ] = None,
    vocab_size: Annotated[
        int | None, typer.Option(help=f"With --url: token ids are below this; {VOCAB_SIZE:,} if omitted.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="With --url: seconds after which a request has failed; 600 if omitted.")
    ] = None,
    input_len: Annotated[int | None, typer.Option(help="Without a spec: tokens of a prompt; 1024 if omitted.")] = None,
    output_len: Annotated[int | None, typer.Option(help="Without a spec: tokens to generate; 128 if omitted.")] = None,
    requests: Annotated[int | None, typer.Option(help="Requests of one block; the spec's, or 100 without one.")] = None,
    rate: Annotated[
        float | None, typer.Option(help="Requests per second, in place of the spec's load; inf sends all at once.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Requests in flight in a closed loop, in place of the spec's load.")
    ] = None,
    blocks: Annotated[
        int, typer.Option(help="Blocks that count; one more in front warms up. Good intervals need 5.")
    ] = 5,
    seed: Annotated[
        int | None, typer.Option(help="Of prompts and arrivals. If omitted the spec's; with --url a fresh one.")
    ] = None,
    slo: Annotated[
        list[str] | None, typer.Option(help="Limits in ms on ttft, tpot and e2el, for instance ttft:500,tpot:50.")
    ] = None,
    slo_share: Annotated[float | None, typer.Option(help="Share of requests that has to keep the SLO.")] = None,
    find_rate: Annotated[
        str | None,
        typer.Option(help="LOW:HIGH: search for the largest rate that keeps the SLO, from LOW (to LOW/16) up to HIGH."),
    ] = None,
    probe_requests: Annotated[
        int | None, typer.Option(help="With --find-rate: requests of one probe; the spec's, else 100.")
    ] = None,
    run: Annotated[Path | None, typer.Option(help="New folder for the records; none are kept if omitted.")] = None,
    as_json: AsJson = False,
    address: Annotated[
        str | None, typer.Option(help="Ray cluster for the engine: auto, or host:port. A local one if omitted.")
    ] = None,
    ray_auth: Annotated[str | None, typer.Option(help="Ray's authentication: token or disabled.")] = None,
) -> None:
    """Put one workload on an engine or a server, and print what `vllm bench serve` does, with intervals.

    Example: chunksmith bench --rate 4 --url http://localhost:8000 --model org/model
    """
    from orchestrator.sweep.bench import Asked, make_plan, refuse

    resolved, plan = make_plan(
        Asked(
            spec=spec,
            is_url=url is not None,
            input_len=input_len,
            output_len=output_len,
            requests=requests,
            rate=rate,
            concurrency=concurrency,
            blocks=blocks,
            seed=seed,
            slo=slo or [],
            slo_share=slo_share,
            find_rate=find_rate,
            probe_requests=probe_requests,
        )
    )
    plan.check(vocab_size=VOCAB_SIZE if vocab_size is None else vocab_size)
    _require_new(run)
    if url is not None:
        refuse({"--address": address, "--ray-auth": ray_auth}, "cannot go with --url, which starts no engine")
        server = _server(url, model, api_key_env, body, vocab_size or VOCAB_SIZE, timeout)
        with _records(run) as folder:
            _measure(plan, server, folder, None, as_json=as_json)
        return
    assert resolved is not None
    only_url = {"--model": model, "--api-key-env": api_key_env, "--body": body, "--vocab-size": vocab_size}
    refuse({**only_url, "--timeout": timeout}, "is only for --url")
    _on_engine(plan, resolved, run, address, auth_mode(ray_auth), as_json=as_json)


def _server(
    url: str, model: str | None, api_key_env: str | None, body: str | None, vocab_size: int, timeout: float | None
) -> UrlTarget:
    """The server, which answers and serves the model. Raises UserError."""
    from orchestrator.measurement.loadgen import VLLM_BODY, Target, check_target
    from orchestrator.sweep.bench import UrlTarget, parse_body

    if model is None:
        raise UserError("--model: is missing; --url needs the name under which the server has the model")
    if api_key_env is not None and api_key_env not in os.environ:
        raise UserError(f"--api-key-env: the environment has no variable {api_key_env}")
    if timeout is not None and not timeout > 0:
        raise UserError(f"--timeout: must be above 0 seconds, got {timeout:g}")
    target = Target(
        url=url,
        model=model,
        api_key=None if api_key_env is None else os.environ[api_key_env],
        body=VLLM_BODY if body is None else parse_body(body),
        timeout_s=600.0 if timeout is None else timeout,
    )
    check_target(target)
    return UrlTarget(target, vocab_size=vocab_size)


def _on_engine(
    plan: BenchPlan, spec: SweepSpec, run: Path | None, address: str | None, auth: AuthMode | None, *, as_json: bool
) -> None:
    from orchestrator.cluster import RayEngine, ray_session
    from orchestrator.sweep.bench import EngineTarget

    started: list[WarmEngine] = []
    # Ray first: it refuses a wrong address before there is a folder.
    with ray_session(address, auth_mode=auth), stop_on_sigterm(), _records(run) as folder, _logs(folder) as logs:

        def make_engine() -> RayEngine:
            has, limits = spec.resources, spec.timeouts.limits()
            return RayEngine(logs, kind=spec.engine.kind, cpus=has.cpus, gpus=has.gpus, timeouts=limits)

        with EngineTarget(spec, make_engine, started.append) as target:
            _measure(plan, target, folder, started[-1], as_json=as_json)


def _measure(
    plan: BenchPlan, target: BenchTarget, run: RunFolder | None, engine: WarmEngine | None, *, as_json: bool
) -> None:
    from rich.console import Console
    from rich.text import Text

    from orchestrator.sweep.bench import Benchmark, BenchRecords, heading, render, render_rate

    console, progress = Console(highlight=False), progress_console(as_json=as_json)

    def say(line: str) -> None:
        progress.print(Text(line), soft_wrap=True)

    say(heading(plan, target.describe()))
    records = None if run is None else BenchRecords(run, plan, target, engine)
    benchmark = Benchmark(plan, target, records, say)
    if plan.find is not None:
        found = benchmark.find_rate(plan.find)
        if as_json:
            typer.echo(json.dumps(found.to_dict()))
        else:
            render_rate(found, console)
    else:
        report = benchmark.measure()
        if as_json:
            typer.echo(json.dumps(report.to_dict()))
        else:
            render(report, console)
    if run is not None:
        say(f"Records: {run.path}")


def _require_new(run: Path | None) -> None:
    """Before anything is started. ``RunFolder.create`` is what decides."""
    if run is not None and (run.is_file() or (run.is_dir() and any(run.iterdir()))):
        raise UserError(f"--run: {run} exists already; every bench has a folder of its own")


@contextmanager
def _records(run: Path | None) -> Iterator[RunFolder | None]:
    """The new run folder, held for this process."""
    from orchestrator.records import RunFolder

    if run is None:
        yield None
        return
    folder = RunFolder.create(run)
    with folder.lock():
        yield folder


@contextmanager
def _logs(run: RunFolder | None) -> Iterator[Path]:
    """Folder of the engine's log. Without a run it is a temporary one, which stays when something went wrong."""
    if run is not None:
        yield run.logs
        return
    folder = Path(tempfile.mkdtemp(prefix="chunksmith-bench-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
