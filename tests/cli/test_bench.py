"""``chunksmith bench``: on the mock server over real sockets, and on the faulty engine in place of Ray's."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from orchestrator import cluster
from orchestrator.cli import main
from orchestrator.engines import EngineError
from orchestrator.engines.faulty import Faults, FaultyEngine
from orchestrator.measurement.testing import MODEL, MockServer, MockSettings
from orchestrator.records import RunFolder
from orchestrator.sweep.bench.render import number
from tests.sweep.bench.blocks import timeline
from tests.sweep.studies import content, read

Outcome = tuple[int, str, str]
Bench = Callable[..., Outcome]

SLO = ("--slo", "ttft:600000")
"""So loose that no load generator is late by 2 % of it."""
QUICK = ("--model", MODEL, "--input-len", "8", "--output-len", "4", "--requests", "6", "--concurrency", "3", *SLO)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def bench(capsys: pytest.CaptureFixture[str]) -> Bench:
    """Runs the command; gives its exit code, its output and the one line of its error."""

    def run(*arguments: str) -> Outcome:
        exit_code = main(["bench", *arguments])
        output, error = capsys.readouterr()
        assert error.count("\n") == (exit_code != 0)
        return exit_code, output, error.removeprefix("chunksmith: error: ").rstrip("\n")

    return run


@pytest.fixture(scope="module")
def server() -> Iterator[MockServer]:
    with MockServer(MockSettings(ttft_s=0.002, itl_s=0.001)) as found:
        yield found


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> list[Faults]:
    """The command on faulty engines in place of Ray's; the list holds the faults of the engines to come."""
    queue: list[Faults] = []

    class FaultyRayEngine(FaultyEngine):
        """Fault: no Ray, and what the list says."""

        def __init__(self, log_dir: Path, **_: object) -> None:
            super().__init__(queue.pop(0) if queue else None)
            self.engine_id, self.log_path = "faulty-0", str(log_dir / "faulty-0.log")

    monkeypatch.setattr(cluster, "RayEngine", FaultyRayEngine)
    monkeypatch.setattr(cluster, "ray_session", lambda *_, **__: nullcontext())
    return queue


def written(**changes: Any) -> str:
    Path("spec.yaml").write_text(yaml.safe_dump(content(**changes), sort_keys=False))
    return "spec.yaml"


def test_a_server_that_we_did_not_start(bench: Bench, server: MockServer) -> None:
    exit_code, output, _ = bench("--url", server.url, *QUICK, "--run", "run")
    assert exit_code == 0
    assert output.startswith(f"bench of mock on {server.url}: closed loop, concurrency 3, seed ")
    assert re.search(r"^Successful requests: +30 *$", output, re.MULTILINE)
    assert "block 5 of 5: 6 requests in " in output
    assert "rest on 5 independent blocks" in output
    run = RunFolder("run")
    assert output.endswith(f"Records: {run.path}\n")
    assert len(pd.read_parquet("run/requests")) == 36
    assert pd.read_parquet("run/blocks")["engine_id"].unique().tolist() == [server.url]
    assert pd.read_parquet("run/trials")["outcome"].tolist() == ["complete"]
    plan = json.loads(Path("run/bench.json").read_text())["plan"]
    assert plan["load"] == {"kind": "closed_loop", "concurrency": 3}


def test_the_workload_and_the_load_of_a_spec_on_a_server(bench: Bench, server: MockServer) -> None:
    spec = written(workload={"prompts": 3, "input_len": 2000, "output_len": 2}, load={"concurrency": 2})
    exit_code, output, _ = bench(
        spec, "--url", server.url, "--model", MODEL, *SLO, "--json", "--quiet", "--blocks", "2"
    )
    assert exit_code == 0
    answer = json.loads(output)
    assert answer["plan"]["workload"]["prompts"] == 3
    assert answer["plan"]["load"] == {"kind": "closed_loop", "concurrency": 2}
    assert (answer["completed"], answer["total_input_tokens"], answer["total_output_tokens"]) == (6, 12000, 12)


def test_prompts_are_new_to_a_server_unless_a_seed_is_given(bench: Bench, server: MockServer) -> None:
    """It may still have those of an earlier bench in its prefix cache."""
    arguments = ("--url", server.url, *QUICK, "--blocks", "1", "--json", "--quiet")
    seeds = [json.loads(bench(*arguments)[1])["plan"]["seed"] for _ in range(2)]
    assert seeds[0] != seeds[1]
    assert json.loads(bench(*arguments, "--seed", "7")[1])["plan"]["seed"] == 7


def test_a_specs_engine_gives_the_same_in_the_table_and_as_json(bench: Bench, faults: list[Faults]) -> None:
    """The faulty engine makes up the same times for one seed."""
    spec = written(workload={"prompts": 3, "input_len": 2048, "output_len": 4}, load={"concurrency": 2})
    exit_code, table, _ = bench(spec, "--run", "run", *SLO)
    assert exit_code == 0
    assert table.startswith("bench of org/model on faulty-0 at its baseline (mla_workspace_rows=default, ")
    exit_code, output, _ = bench(spec, *SLO, "--json", "--quiet")
    assert exit_code == 0
    answer = json.loads(output)
    assert answer["target"]["kind"] == "engine"
    assert answer["plan"]["seed"] == 0
    for label, key in {
        "Request throughput (req/s):": "request_throughput",
        "Mean TTFT (ms):": "mean_ttft_ms",
        "P99 E2EL (ms):": "p99_e2el_ms",
    }.items():
        figure = answer["metrics"][key]
        ends = [number(end) if end is not None else "unbounded" for end in (figure["low"], figure["high"])]
        line = rf"^{re.escape(label)} +{re.escape(number(figure['value']))} +{re.escape(' to '.join(ends))} *$"
        assert re.search(line, table, re.MULTILINE), label
    assert read(RunFolder("run"), "trials")[0]["engine_log"] == "faulty-0.log"


def test_figures_per_gpu_when_the_spec_has_gpus(bench: Bench, faults: list[Faults]) -> None:
    spec = written(resources={"gpus": 4.0})
    exit_code, output, _ = bench(spec, *SLO)
    assert exit_code == 0
    assert "Per GPU, of 4" in output
    answer = json.loads(bench(spec, *SLO, "--json", "--quiet")[1])
    metrics = answer["metrics"]
    assert metrics["output_throughput_per_gpu"]["value"] == pytest.approx(metrics["output_throughput"]["value"] / 4)


def test_the_options_take_the_place_of_the_spec(bench: Bench, faults: list[Faults]) -> None:
    spec = written(slo={"ttft_ms": 9.0}, load={"kind": "constant", "rate": 1.0})
    exit_code, output, _ = bench(
        spec,
        "--rate",
        "50",
        "--seed",
        "3",
        "--requests",
        "20",
        *SLO,
        "--slo-share",
        "0.5",
        "--blocks",
        "2",
        "--json",
        "--quiet",
    )
    assert exit_code == 0
    answer = json.loads(output)
    assert answer["plan"]["load"] == {"kind": "constant", "rate": 50.0}
    assert (answer["plan"]["seed"], answer["completed"]) == (3, 40)
    assert answer["plan"]["slo"] == {"ttft_ms": 600000.0, "tpot_ms": None, "e2el_ms": None, "share": 0.5}


def test_the_largest_rate(bench: Bench, faults: list[Faults]) -> None:
    spec = written(slo={"ttft_ms": 60.0, "share": 0.9})
    arguments = (spec, "--find-rate", "10:2000", "--probe-requests", "100")
    exit_code, output, _ = bench(*arguments, "--run", "run")
    assert exit_code == 0
    lines = output.splitlines()
    assert lines[0].endswith("search for a rate from 10 to 2000/s, seed 0")
    assert lines[2].startswith("probe at 10/s: 100 of 100 requests kept the SLO, enough for 0.9")
    assert re.search(r"Largest rate at which the SLO holds: \S+ requests/s \(95 % interval: \S+ to \S+\)", output)
    answer = json.loads(bench(*arguments, "--json", "--quiet")[1])
    found = answer["find_rate"]
    assert found["rate"] == pd.read_parquet("run/blocks")["goodput_at_slo"].dropna().item()
    assert f"holds: {found['rate']:.4g} requests/s" in output
    assert len(answer["probes"]) == sum(line.startswith("probe at ") for line in lines)


def test_a_server_that_dies_is_one_line_that_says_where_the_records_are(bench: Bench) -> None:
    with MockServer(MockSettings(ttft_s=0.002, itl_s=0.001, die_at=15)) as dying:
        exit_code, output, error = bench("--url", dying.url, *QUICK, "--run", "run")
    assert exit_code == 1
    assert error.startswith(f"server-gone: {dying.url}: the server is gone: ")
    assert error.endswith(f"the records are in {RunFolder('run').path}")
    assert "Successful requests" not in output
    blocks = pd.read_parquet("run/blocks").sort_values("block")
    assert blocks["outcome"].tolist() == ["complete", "complete", "failed"]
    requests = pd.read_parquet("run/requests").query("block == 2")
    assert len(requests) == 6
    assert requests["error"].isna().any()


def test_an_engine_that_dies_is_one_line_too(bench: Bench, faults: list[Faults]) -> None:
    error = EngineError("engine-dead", "EngineCore died", lost=True)
    error.partial = [timeline(0, 0.0, 0.1)]
    faults.append(Faults(run_errors={1: error}))
    exit_code, _, line = bench(written(), "--run", "run", *SLO)
    assert exit_code == 1
    assert line.startswith("engine-dead: EngineCore died (engine log: ")
    assert line.endswith(f"the records are in {RunFolder('run').path}")
    assert pd.read_parquet("run/requests")["block"].tolist() == [0, 0, 1]


def test_an_engine_that_does_not_start(bench: Bench, faults: list[Faults]) -> None:
    refused = EngineError("engine-start", "no memory", log_path="e.log")
    faults.extend([Faults(start_error=refused), Faults(start_error=refused)])
    exit_code, _, line = bench(written(), *SLO)
    assert exit_code == 1
    assert line.startswith("the baseline's engine does not start: engine-start: no memory (engine log: e.log)")


def test_ctrl_c_keeps_the_blocks_that_have_ended(bench: Bench, faults: list[Faults], capsys: Any) -> None:
    faults.append(Faults(run_errors={2: KeyboardInterrupt()}))
    assert main(["bench", written(), "--run", "run", *SLO]) == 130
    assert capsys.readouterr().err == ""
    assert pd.read_parquet("run/blocks")["outcome"].tolist() == ["complete", "complete"]


def test_a_server_that_is_not_there(bench: Bench) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        exit_code, output, error = bench("--url", url, *QUICK, "--run", "run")
    assert (exit_code, output) == (2, "")
    assert error.startswith(f"{url}: cannot be reached: ")
    assert not Path("run").exists()


def test_a_model_that_the_server_has_not(bench: Bench, server: MockServer) -> None:
    exit_code, _, error = bench("--url", server.url, *QUICK, "--model", "mick", "--run", "run")
    assert (exit_code, error) == (2, f"{server.url}: unknown model 'mick'; did you mean 'mock'? Allowed: mock.")
    assert not Path("run").exists()


URL = ("--url", "http://localhost:1", "--model", "m")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "bench: give a spec, for instance search_spaces/cpu_demo.yaml, or --url and --model"),
        ((*URL, "--requests", "0", "--rate", "1"), "--requests: must be 1 or more, got 0"),
        ((*URL, "--rate", "0"), "--rate: must be above 0 requests per second, got 0"),
        ((*URL, "--rate", "-2"), "--rate: must be above 0 requests per second, got -2"),
        ((*URL, "--blocks", "0", "--rate", "1"), "--blocks: must be 1 or more, got 0"),
        ((*URL, "--seed", "-1", "--rate", "1"), "--seed: must be 0 or more, got -1"),
        ((*URL, "--rate", "1", "--slo", "ttf:3"), "--slo: unknown metric 'ttf'; did you mean 'ttft'?"),
        ((*URL, "--find-rate", "4:4", *SLO), "--find-rate: low 4 must be below high 4"),
        ((*URL, "--find-rate", "1:4"), "--find-rate: needs an SLO; give --slo, for instance --slo ttft:500"),
        ((*URL, "--find-rate", "1:4", *SLO, "--rate", "2"), "--rate: cannot go with --find-rate, which sets the rate"),
        ((*URL, "--rate", "1", "--probe-requests", "9"), "--probe-requests: is only for --find-rate"),
        ((*URL, "--rate", "1", "--vocab-size", "3"), "--vocab-size: vocab_size must be above 10, got 3"),
        ((*URL, "--rate", "1", "--timeout", "-1"), "--timeout: must be above 0 seconds, got -1"),
        ((*URL, "--rate", "1", "--address", "auto"), "--address: cannot go with --url, which starts no engine"),
        ((*URL, "--rate", "1", "--api-key-env", "NO_SUCH_KEY"), "--api-key-env: the environment has no variable NO_"),
        ((*URL, "--rate", "1", "--body", "{"), "--body: not JSON: "),
        (("--url", "localhost", "--model", "m", "--rate", "1"), "url: must be http://HOST[:PORT][/PATH] or https://"),
        (("--url", "http://localhost:1", "--rate", "1"), "--model: is missing; "),
        (("gone.yaml",), "gone.yaml: cannot read the spec: No such file or directory"),
        (("spec.yaml", "--model", "m"), "--model: is only for --url"),
        (("spec.yaml", "--input-len", "8"), "--input-len: is only for a bench without a spec"),
        (("spec.yaml", "--ray-auth", "tokens"), "--ray-auth: must be token or disabled, got 'tokens'"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(bench: Bench, arguments: tuple[str, ...], line: str) -> None:
    written()
    exit_code, output, error = bench(*arguments, "--run", "run")
    assert (exit_code, output) == (2, "")
    assert error.startswith(line)
    assert not Path("run").exists()


@pytest.mark.parametrize("url", [(), URL])
def test_a_trace_with_other_columns_is_told_before_anything_starts(bench: Bench, url: tuple[str, ...]) -> None:
    Path("trace.csv").write_text("when,in,out\n1,2,3\n")
    spec = written(workload={"kind": "trace", "path": "trace.csv"}, load={"kind": "trace_time"})
    exit_code, _, error = bench(spec, *url, "--run", "run")
    assert exit_code == 2
    assert error.startswith("trace.csv: unknown columns when, in, out; a trace has timestamp, ")
    assert not Path("run").exists()


@pytest.mark.parametrize("url", [(), URL])
def test_a_run_folder_that_exists_is_left_alone(bench: Bench, url: tuple[str, ...]) -> None:
    RunFolder.create("run").spec.write_text("before")
    exit_code, _, error = bench(written(), *url, "--run", "run")
    assert (exit_code, error) == (2, "--run: run exists already; every bench has a folder of its own")
    assert Path("run/spec.yaml").read_text() == "before"


def test_a_key_goes_to_the_server_and_into_no_record(
    bench: Bench, server: MockServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_KEY", "sesame-open")
    arguments = ("--url", server.url, *QUICK, "--blocks", "1", "--api-key-env", "BENCH_KEY", "--run", "run")
    exit_code, output, _ = bench(*arguments)
    assert exit_code == 0
    assert "sesame-open" not in output
    assert all(b"sesame-open" not in path.read_bytes() for path in Path("run").rglob("*") if path.is_file())


def test_no_option_is_without_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--help"]) == 0
    shown = capsys.readouterr().out
    options = re.findall(r"^  (--[a-z-]+)( <\S+>)? {2,}\S", shown, re.MULTILINE)
    assert len(options) == shown.count("\n  --")
