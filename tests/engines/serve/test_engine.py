"""What the engine makes of a server that fails: each fault is injected by a program in place of vLLM's."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from orchestrator.engines import BlockResult, EngineConfig, EngineError
from orchestrator.engines.serve import ServeEngine
from orchestrator.engines.serve import engine as engine_module
from orchestrator.engines.serve.process import ServerProcess
from orchestrator.workloads import Request, Schedule, random_requests

FAULTY_SERVER = Path(__file__).with_name("faulty_server.py")
CONFIG = EngineConfig(model="org/model", env={"SOME_API_KEY": "secret", "OMP_NUM_THREADS": "1"})
ONE_AT_A_TIME = Schedule(concurrency=1)

Make = Callable[[str], ServeEngine]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes engines whose server has a fault; afterwards nothing of them is left."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("orchestrator.engines.serve.process.TERM_TIMEOUT_S", 1.0)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    made: list[ServeEngine] = []
    servers: list[ServerProcess] = []

    def make_engine(fault: str) -> ServeEngine:
        def command(_config: EngineConfig, socket: str) -> list[str]:
            return [sys.executable, str(FAULTY_SERVER), "--uds", socket, fault]

        monkeypatch.setattr(engine_module, "server_command", command)
        made.append(ServeEngine("test-engine", str(tmp_path / "engine.log")))
        return made[-1]

    def noted(*args: object) -> ServerProcess:
        servers.append(ServerProcess(*args))  # type: ignore[arg-type]
        return servers[-1]

    monkeypatch.setattr(engine_module, "ServerProcess", noted)
    yield make_engine
    for engine in made:
        engine.stop()
    assert servers
    assert not [process for server in servers for process in server.members()]
    assert not list(tmp_path.glob("serve-*"))


def requests(count: int, length: int = 5, output_len: int = 4) -> list[Request]:
    return random_requests(count, input_len=length, output_len=output_len, seed=[3], vocab_size=1000)


def ended_with(run: Callable[[], object]) -> EngineError:
    with pytest.raises(EngineError) as caught:
        run()
    return caught.value


def test_a_block_over_http_is_a_block(make: Make) -> None:
    engine = make("none")
    info = engine.start(CONFIG)
    assert info.kind == "vllm_serve"
    assert engine.retune({"mla_workspace_rows": 64, "max_num_seqs": 2}) < 1.0
    too_long = requests(1, length=101)
    block = engine.run([*requests(2), *too_long], ONE_AT_A_TIME, top2=True)
    assert (block.in_force.workspace_rows, block.in_force.max_num_seqs) == (64, 2)
    assert block.counters.scheduler_steps == 8
    for one in block.requests[:2]:
        assert (one.error, list(one.output_token_ids), one.cached_tokens) == (None, [0, 1, 2, 3], 7)
        assert one.top2_gaps == [1.5] * 4
        assert list(one.token_times_s) == sorted(one.token_times_s)
    assert block.requests[2].error == "HTTP 400: the prompt is too long"
    engine.retune({})
    assert engine.run(requests(1), ONE_AT_A_TIME).in_force == info.in_force
    # What was run is kept, and no secret.
    launch = info.resolved["launch"]
    assert launch["command"][:2] == [sys.executable, str(FAULTY_SERVER)]
    assert launch["environment"]["SOME_API_KEY"] == "***"
    assert launch["environment"]["OMP_NUM_THREADS"] == "1"
    assert launch["environment"]["VLLM_NO_USAGE_STATS"] == "1"


def test_a_server_that_refuses_its_arguments_says_why(make: Make) -> None:
    error = ended_with(lambda: make("no-start").start(CONFIG))
    assert error.detail.startswith("vllm serve ended with exit code 1 before it served: vllm serve: error: argument")
    assert (error.label, error.lost) == ("engine-start", False)


def test_without_the_program_the_start_fails_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(engine_module, "server_command", lambda *_: ["/no/such/vllm"])
    engine = ServeEngine("test-engine", str(tmp_path / "engine.log"))
    error = ended_with(lambda: engine.start(CONFIG))
    assert (error.label, error.lost) == ("engine-start", False)
    assert "/no/such/vllm" in error.detail
    assert not list(tmp_path.glob("serve-*"))


def test_a_server_without_the_plugin_is_refused(make: Make) -> None:
    assert ended_with(lambda: make("no-rpc").start(CONFIG)).label == "plugin-refused"


@pytest.mark.parametrize("fault", ["dies", "core-dies", "hangs"])
def test_a_server_that_dies_in_a_block_is_lost_and_leaves_its_timelines(make: Make, fault: str) -> None:
    engine = make(fault)
    engine.start(CONFIG)
    error = ended_with(lambda: engine.run(requests(2), ONE_AT_A_TIME))
    assert (error.label, error.lost) == ("engine-dead", True)
    assert [len(one.output_token_ids) for one in error.partial] == [2, 0]
    assert ended_with(lambda: engine.run(requests(1), ONE_AT_A_TIME)).lost


def test_an_engine_that_was_started_again_is_lost_and_not_its_knobs_alone(make: Make) -> None:
    engine = make("restarts")
    engine.start(CONFIG)
    engine.retune({"mla_workspace_rows": 64})
    assert engine.run(requests(1), ONE_AT_A_TIME).in_force.workspace_rows == 64
    error = ended_with(lambda: engine.run(requests(1), ONE_AT_A_TIME))
    assert (error.lost, error.detail) == (True, "the engine was started again, without what was tuned")


def test_a_stream_that_ends_early_fails_its_request_alone(make: Make) -> None:
    engine = make("short")
    engine.start(CONFIG)
    (one,) = engine.run(requests(1), ONE_AT_A_TIME).requests
    assert one.error == "bad_answer: the stream ended without [DONE]"


def test_a_retune_that_fails_inside_is_told_and_the_engine_lives(make: Make) -> None:
    engine = make("retune-fails")
    engine.start(CONFIG)
    error = ended_with(lambda: engine.retune({"mla_workspace_rows": 64}))
    assert (error.label, error.lost) == ("engine-error", False)
    assert "it does not fit" in error.detail
    assert engine.run(requests(1), ONE_AT_A_TIME).requests[0].error is None


def test_a_block_that_is_ended_early_leaves_no_request_to_the_next(make: Make) -> None:
    engine = make("none")
    engine.start(CONFIG)
    block = engine.run(requests(3, output_len=500), Schedule(), stop=_after_a_second)
    assert block.stopped == "enough"
    assert {one.error for one in block.requests} == {"cancelled: the block was ended early"}
    # No step of a request that was cancelled falls into the next block.
    assert engine.run(requests(1), ONE_AT_A_TIME).counters.scheduler_steps == 4


def _after_a_second(
    send_s: Sequence[float], first_token_s: Sequence[float], end_s: Sequence[float], now_s: float
) -> str | None:
    return "enough"


@pytest.mark.parametrize("fault", ["never-ready", "none"])
def test_abort_ends_a_start_and_a_block(make: Make, fault: str) -> None:
    engine = make(fault)
    ended: list[BlockResult | EngineError] = []

    def serve() -> None:
        try:
            engine.start(CONFIG)
            ended.append(engine.run(requests(1, output_len=1000), ONE_AT_A_TIME))
        except EngineError as error:
            ended.append(error)

    serving = threading.Thread(target=serve)
    serving.start()
    deadline = time.monotonic() + 30
    while engine.server is None or (fault == "none" and not engine._start_values.kv_blocks):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    engine.abort()
    serving.join(30)
    assert not serving.is_alive()
    assert isinstance(ended[0], EngineError)
    assert ended[0].label in ("engine-dead", "engine-start")
