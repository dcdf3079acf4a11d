"""``chunksmith init``: a spec for the user's own model, machines and load."""

from __future__ import annotations

import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from orchestrator.cli.architectures import ARCHITECTURES, TINY, architecture_of
from orchestrator.cli.arguments import complete_from
from orchestrator.cli.output import note, write_output
from orchestrator.errors import UserError, unknown_name

if TYPE_CHECKING:
    from orchestrator.sweep import SweepSpec

T = TypeVar("T", int, str)

_TRIALS = {True: 24, False: 80}
"""Trials if nothing is said; True is for the tiny model."""
_FEWEST_TRIALS = 4


def init(
    model: Annotated[
        str | None,
        typer.Option(
            help=f"Folder of a model, its name on the hub, or one of {', '.join(ARCHITECTURES)}.",
            autocompletion=complete_from(lambda: sorted(ARCHITECTURES)),
        ),
    ] = None,
    architecture: Annotated[
        str | None,
        typer.Option(
            help="One of the names above, where the model's own does not tell it.",
            autocompletion=complete_from(lambda: sorted(ARCHITECTURES)),
        ),
    ] = None,
    gpus_per_node: Annotated[int | None, typer.Option(min=1, help="GPUs of a node.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes; 1 if omitted.")] = None,
    tp: Annotated[
        int | None, typer.Option(min=1, help="Tensor parallel ranks; the largest power of two on a node if omitted.")
    ] = None,
    dcp: Annotated[
        int | None, typer.Option(min=1, help="Decode context parallel ranks; searched if omitted, where vLLM has it.")
    ] = None,
    input_len: Annotated[int | None, typer.Option(min=1, help="Tokens of a typical prompt.")] = None,
    output_len: Annotated[int | None, typer.Option(min=1, help="Tokens of its answer; 128 if omitted.")] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Requests in flight; 4 if omitted.")] = None,
    rate: Annotated[float | None, typer.Option(min=1e-3, help="Requests per second, in place of that.")] = None,
    slo: Annotated[
        list[str] | None, typer.Option(help="Limits in ms on ttft, tpot and e2el, for instance ttft:500,tpot:50.")
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            help="Metric to improve. If omitted median_ttft_ms; with --slo output_throughput, and with --rate too "
            "goodput_at_slo, the largest rate within it."
        ),
    ] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Trials; 80 if omitted, 24 of the tiny model.")] = None,
    minutes: Annotated[
        float | None, typer.Option(min=1, help="As many trials as fit into this, by the estimate of validate.")
    ] = None,
    study: Annotated[str | None, typer.Option(help="Name of the study; made from model and GPUs if omitted.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; <study>.yaml if omitted.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
) -> None:
    """Write a sweep spec for your model and machines, with the reason of each knob. On a terminal it asks what is
    missing.

    Example: chunksmith init --model kimi-k3 --gpus-per-node 8 --input-len 65536
    """
    from orchestrator.cli.init_spec import Wishes, spec_text

    if trials is not None and minutes is not None:
        raise UserError("--minutes: cannot go with --trials; both say how long the sweep is")
    if rate is not None and concurrency is not None:
        raise UserError("--rate: cannot go with --concurrency; both say how large the load is")
    is_tiny = model is not None and model.lower() == TINY
    missing = model is None or input_len is None or (gpus_per_node is None and not is_tiny)
    ask = _Asker(is_allowed=missing)
    model = ask("--model", "Model (a folder, a name on the hub, or an architecture)", model, TINY)
    kind = _architecture(model, architecture)
    is_tiny = kind == TINY
    gpus = 1 if is_tiny else ask("--gpus-per-node", "GPUs of a node", gpus_per_node, 8)
    nodes = 1 if is_tiny else ask.optional("Nodes", nodes, 1)
    most = 1 << (gpus.bit_length() - 1)
    tp = 1 if is_tiny else ask.optional("Tensor parallel ranks", tp, most)
    input_len = ask("--input-len", "Tokens of a typical prompt", input_len, 8192 if is_tiny else 32768)
    output_len = ask.optional("Tokens of its answer", output_len, 1 if is_tiny else 128)
    if rate is None:
        concurrency = ask.optional("Requests in flight", concurrency, 1 if is_tiny else 4)
    limits = _limits(slo or [])
    if minutes is None:
        trials = ask.optional("Trials", trials, _TRIALS[is_tiny])
    name = study or _study(kind, model, tp, is_tiny=is_tiny)
    path = output or Path(f"{name}.yaml")
    if path.is_file() and not force:
        raise UserError(f"{path}: exists already; --force replaces it, --output chooses another file")
    wish = Wishes(
        architecture=kind,
        model=ARCHITECTURES[kind].weights if model.lower() in ARCHITECTURES else model,
        study=name,
        nodes=nodes,
        gpus_per_node=gpus,
        tp=tp,
        dcp=dcp,
        input_len=input_len,
        output_len=output_len,
        concurrency=concurrency,
        rate=rate,
        slo=limits,
        objective=objective or _objective(limits, rate),
        trials=trials or _TRIALS[is_tiny],
    )
    if wish.objective == "goodput_at_slo" and (rate is None or not limits):
        raise UserError("--objective: goodput_at_slo needs --slo, and --rate as the rate to begin at")
    spec = _check(spec_text(wish), path)
    if minutes is not None:
        wish = replace(wish, trials=_trials_within(spec, minutes))
        spec = _check(spec_text(wish), path)
    write_output(path, spec_text(wish))
    typer.echo(str(path))
    note(f"next: chunksmith validate {path}", err=True)


class _Asker:
    """Asks on a terminal, where something is missing; elsewhere the defaults stand, and what has none is an error."""

    def __init__(self, *, is_allowed: bool) -> None:
        self._asks = is_allowed and sys.stdin.isatty()

    def __call__(self, option: str, question: str, given: T | None, default: T) -> T:
        """An answer that has no default unless somebody is there to confirm it."""
        if given is None and not self._asks:
            raise UserError(f"{option}: is missing; give it, or run `chunksmith init` on a terminal, which asks")
        return self.optional(question, given, default)

    def optional(self, question: str, given: T | None, default: T) -> T:
        """An answer that has a default."""
        if given is not None or not self._asks:
            return default if given is None else given
        answer: Any = typer.prompt(question, default=default, type=type(default), err=True)
        return answer  # type: ignore[no-any-return]


def _architecture(model: str, given: str | None) -> str:
    if given is not None:
        if given.lower() not in ARCHITECTURES:
            raise unknown_name("architecture", given, ARCHITECTURES, where="--architecture")
        return given.lower()
    if "/" not in model and not Path(model).exists() and model.lower() not in ARCHITECTURES:
        raise unknown_name("model", model, ARCHITECTURES, where="--model")
    found = architecture_of(model)
    if found is None:
        raise UserError(f"--architecture: is missing, and {model!r} does not tell it; {', '.join(ARCHITECTURES)}")
    return found


def _limits(texts: list[str]) -> dict[str, float]:
    from orchestrator.sweep.bench.options import parse_slo

    found = parse_slo(texts, None, None)
    named = {} if found is None else {"ttft": found.ttft_ms, "tpot": found.tpot_ms, "e2el": found.e2el_ms}
    return {name: limit for name, limit in named.items() if limit is not None}


def _objective(limits: dict[str, float], rate: float | None) -> str:
    if not limits:
        return "median_ttft_ms"
    return "output_throughput" if rate is None else "goodput_at_slo"


def _study(kind: str, model: str, tp: int, *, is_tiny: bool) -> str:
    stem = kind if model.lower() in ARCHITECTURES else Path(model).name
    plain = re.sub(r"[^a-z0-9.]+", "-", stem.lower()).strip("-.")
    return plain if is_tiny else f"{plain}-tp{tp}"


def _check(text: str, path: Path) -> SweepSpec:
    """The spec as a sweep would read it. Raises UserError where a wish makes no valid one."""
    from orchestrator.sweep import load_spec

    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / path.name
        draft.write_text(text, encoding="utf-8")
        try:
            return load_spec(draft)
        except UserError as error:
            raise UserError(str(error).replace(str(draft), str(path))) from error


def _trials_within(spec: SweepSpec, minutes: float) -> int:
    """The most trials whose upper estimate fits, at least a few; times of an earlier run of the study count."""
    from orchestrator.sweep.cost import cost_of, seconds_of

    space, seconds = spec.search_space(), seconds_of(spec)
    low, high = _FEWEST_TRIALS, 1000
    while low < high:
        middle = (low + high + 1) // 2
        cost = cost_of(spec.model_copy(update={"trials": middle}), space, seconds)
        low, high = (middle, high) if cost.minutes[1] <= minutes else (low, middle - 1)
    return low
