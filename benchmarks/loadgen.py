"""Is the load generator on time, and does it add to the latencies that it reports?

The shipped mock server (``orchestrator.measurement.testing``) answers with known latencies and notes when each request
really arrived and each token was really written. Against it run, one after the other on the same server: our load
generator with constant and with Poisson arrivals, ``vllm bench serve`` and ``guidellm``. All send the same number of
requests of the same lengths over the loopback interface; the other two and the rows compared with them at a constant
rate.

* ``slip``: send minus intended arrival, as our generator reports it.
* ``lag at the server``: the i-th arrival minus ``i / rate``, less the smallest such value. It needs nothing from the
  client, so it holds for all of them; a client that falls behind its schedule shows it here.
* ``rate error``: arrivals per second at the server over the rate, minus 1. For Poisson arrivals over the schedule's.
* ``TTFT added``: a percentile of the TTFT that the client reports, minus the same percentile of what the server did
  (first token written minus request read).

Not equal: ours sends token ids and the others text, about as long; GuideLLM uses as many processes as it likes, the
others one. All share the machine's cores with the server, so a client that needs more of them also slows the server;
``added`` counts only what the server did not see. Bounds are for our rows alone.

Run as ``python -m benchmarks.loadgen`` from the repository's root, on a machine that does nothing else. The exit code
is 1 when a bound is missed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks._load_clients import ClientRun, OfferedLoad, make_guidellm, run_guidellm, run_vllm_bench
from benchmarks._report import Bound, report
from orchestrator.errors import ChunksmithError
from orchestrator.measurement import DispatchSlip
from orchestrator.measurement.loadgen import Target, run_load
from orchestrator.measurement.testing import MODEL, MockServer, MockSettings, Truth
from orchestrator.models import tiny_model
from orchestrator.workloads import ArrivalKind, ConstantRate, FixedLength, PoissonArrivals, RandomTokens

SETTINGS = MockSettings(ttft_s=0.02, itl_s=0.005)
INPUT_LEN, OUTPUT_LEN = 32, 8
CLIENTS = ("chunksmith", "vllm", "guidellm")

SLIP_P50_US = 100.0
SLIP_P99_US = 1000.0
RATE_ERROR = 0.001
TTFT_P99_MS = 1.0


@dataclass(frozen=True, kw_only=True)
class Row:
    """One client's figures; ``slip`` where it reports one, the lag where arrivals were to be even."""

    requests: int
    failed: int
    slip: DispatchSlip | None
    lag_us: tuple[float, float] | None
    rate_error: float
    client_ms: tuple[float, float]
    server_ms: tuple[float, float]

    @property
    def added_ms(self) -> tuple[float, float]:
        """Median and p99."""
        return self.client_ms[0] - self.server_ms[0], self.client_ms[1] - self.server_ms[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the clients and report them."""
    options = _parser().parse_args(arguments)
    seconds = 5.0 if options.quick else options.seconds
    load = OfferedLoad(
        rate=options.rate, requests=round(options.rate * seconds), input_len=INPUT_LEN, output_len=OUTPUT_LEN
    )
    console = Console(highlight=False, width=120)
    with tempfile.TemporaryDirectory(prefix="loadgen-") as name:
        folder = Path(name)
        clients = _clients(options, load, folder, console)
        rows, load_before = {}, os.getloadavg()[0]
        with MockServer(SETTINGS) as server:
            for client, run in clients.items():
                rows[client] = run(server)
                console.print(f"{client}: {rows[client].requests} requests")
    figures = {
        "rate": load.rate,
        "seconds": seconds,
        "cores": os.cpu_count(),
        "load_before": load_before,
        "clients": {name: _figures(row) for name, row in rows.items()},
    }
    return report("loadgen", [_table(rows)], figures, _bounds(rows), console)


def server_row(
    truth: Sequence[Truth], load: OfferedLoad, said: ClientRun, *, slip: DispatchSlip | None, is_even: bool
) -> Row:
    """Compare what a client says with what the server saw.

    Args:
        truth: What the server saw of this client; more records than ``load.requests`` when it sent a first request to
            try the server, which is left out.
        is_even: Whether the arrivals were to be at even distances.

    Raises:
        ChunksmithError: The client sent fewer requests than it was asked to, or none ended well.
    """
    seen = sorted(truth, key=lambda record: record.arrival_s)[-load.requests :]
    if len(seen) < load.requests or not said.ttft_ms:
        raise ChunksmithError(f"{len(seen)} of {load.requests} requests came, {len(said.ttft_ms)} ended well")
    arrivals = np.array([record.arrival_s for record in seen])
    served = [(record.written_s[0] - record.arrival_s) * 1e3 for record in seen if record.written_s]
    lags = arrivals - np.arange(len(seen)) / load.rate
    seen_rate = (len(seen) - 1) / float(arrivals[-1] - arrivals[0])
    return Row(
        requests=len(seen),
        failed=said.failed,
        slip=slip,
        lag_us=_middle_and_tail((lags - lags.min()) * 1e6) if is_even else None,
        rate_error=seen_rate / load.rate - 1 if is_even or slip is None else slip.rate_error or 0.0,
        client_ms=_middle_and_tail(said.ttft_ms),
        server_ms=_middle_and_tail(served),
    )


def _clients(
    options: argparse.Namespace, load: OfferedLoad, folder: Path, console: Console
) -> dict[str, Callable[[MockServer], Row]]:
    """What is to be run; everything that takes time beforehand is done here."""
    clients: dict[str, Callable[[MockServer], Row]] = {}
    if "chunksmith" in options.clients:
        kinds: dict[str, ArrivalKind] = {"constant": ConstantRate(rate=load.rate)}
        kinds["Poisson"] = PoissonArrivals(rate=load.rate)
        for name, kind in kinds.items():
            clients[f"chunksmith, {name}"] = _ours(kind, load)
    if "vllm" in options.clients:
        tokenizer = tiny_model()
        clients["vllm bench serve"] = _theirs(load, lambda url: run_vllm_bench(url, MODEL, load, tokenizer, folder))
    if "guidellm" in options.clients:
        place = options.guidellm_venv or folder / "venv"
        console.print(f"guidellm: environment in {place}")
        command, words = make_guidellm(place.absolute()), tiny_model()
        clients["guidellm"] = _theirs(load, lambda url: run_guidellm(command, url, MODEL, load, words, folder))
    return clients


def _ours(arrivals: ArrivalKind, load: OfferedLoad) -> Callable[[MockServer], Row]:
    workload = RandomTokens(
        prompts=load.requests,
        input_len=FixedLength(tokens=load.input_len),
        output_len=FixedLength(tokens=load.output_len),
    )

    def run(server: MockServer) -> Row:
        requests = workload.draw([0], vocab_size=10_000)
        before = len(server.truth())
        result = run_load(Target(url=server.url, model=MODEL), requests, arrivals.schedule(requests, [0]))
        ended = [r for r in result.requests if r.error is None and r.first_token_s is not None]
        said = ClientRun(
            ttft_ms=[(r.first_token_s - r.send_s) * 1e3 for r in ended if r.first_token_s is not None],
            failed=len(result.requests) - len(ended),
        )
        return server_row(
            server.truth()[before:], load, said, slip=result.slip, is_even=isinstance(arrivals, ConstantRate)
        )

    return run


def _theirs(load: OfferedLoad, client: Callable[[str], ClientRun]) -> Callable[[MockServer], Row]:
    def run(server: MockServer) -> Row:
        before = len(server.truth())
        said = client(server.url)
        return server_row(server.truth()[before:], load, said, slip=None, is_even=True)

    return run


def _middle_and_tail(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Median and p99."""
    median, tail = np.percentile(values, [50, 99])
    return float(median), float(tail)


def _figures(row: Row) -> dict[str, Any]:
    return {
        "requests": row.requests,
        "failed": row.failed,
        "slip_p50_us": row.slip and row.slip.p50_s * 1e6,
        "slip_p99_us": row.slip and row.slip.p99_s * 1e6,
        "lag_p50_us": row.lag_us and row.lag_us[0],
        "lag_p99_us": row.lag_us and row.lag_us[1],
        "rate_error": row.rate_error,
        "client_ttft_p50_ms": row.client_ms[0],
        "client_ttft_p99_ms": row.client_ms[1],
        "server_ttft_p50_ms": row.server_ms[0],
        "server_ttft_p99_ms": row.server_ms[1],
        "added_ttft_p50_ms": row.added_ms[0],
        "added_ttft_p99_ms": row.added_ms[1],
    }


def _bounds(rows: Mapping[str, Row]) -> list[Bound]:
    bounds = []
    for name, row in rows.items():
        if row.slip is None:
            continue
        bounds += [
            Bound(name=f"{name}: slip p50, us", value=row.slip.p50_s * 1e6, bound=SLIP_P50_US),
            Bound(name=f"{name}: slip p99, us", value=row.slip.p99_s * 1e6, bound=SLIP_P99_US),
            Bound(name=f"{name}: rate error", value=abs(row.rate_error), bound=RATE_ERROR),
            Bound(name=f"{name}: TTFT p99 added, ms", value=row.added_ms[1], bound=TTFT_P99_MS),
        ]
    return bounds


def _table(rows: Mapping[str, Row]) -> Table:
    table = Table(title="p50 / p99")
    table.add_column("client")
    for column in (
        "failed",
        "slip, us",
        "lag at server, us",
        "rate error",
        "TTFT client, ms",
        "server, ms",
        "added, ms",
    ):
        table.add_column(column, justify="right")
    for name, row in rows.items():
        slip = (row.slip.p50_s * 1e6, row.slip.p99_s * 1e6) if row.slip else None
        table.add_row(
            name,
            str(row.failed),
            _pair(slip, ".0f"),
            _pair(row.lag_us, ".0f"),
            f"{row.rate_error:+.3%}",
            *(_pair(values, ".2f") for values in (row.client_ms, row.server_ms, row.added_ms)),
        )
    return table


def _pair(values: tuple[float, float] | None, form: str) -> str:
    return "-" if values is None else f"{values[0]:{form}} / {values[1]:{form}}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="loadgen", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rate", type=_positive, default=1000.0, help="requests per second")
    parser.add_argument("--seconds", type=_positive, default=30.0, help="length of each run")
    parser.add_argument("--quick", action="store_true", help="5 seconds each")
    parser.add_argument("--clients", type=_names, default=CLIENTS, help=f"which of {','.join(CLIENTS)}")
    parser.add_argument("--guidellm-venv", type=Path, help="folder of GuideLLM's environment, made if it is missing")
    return parser


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be above 0, got {text}")
    return value


def _names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in CLIENTS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not one of {', '.join(CLIENTS)}")
    return names


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ChunksmithError as error:
        sys.exit(f"loadgen: {error}")
