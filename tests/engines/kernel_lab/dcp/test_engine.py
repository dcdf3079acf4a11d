"""The engine over several ranks: the contract over real processes, the same tokens as one rank, and lost ranks."""

from __future__ import annotations

import itertools
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from orchestrator.engines import Engine, EngineConfig, EngineError
from orchestrator.engines.kernel_lab import LabError, lab_args
from orchestrator.engines.kernel_lab.counters import LabBlockResult
from orchestrator.engines.kernel_lab.dcp.group import MakePeers, SpawnedPeers, ThreadPeers
from orchestrator.engines.kernel_lab.dcp.peers import Command, Peers, Step
from orchestrator.engines.kernel_lab.dcp.rank import Rank, RankSetup
from orchestrator.engines.kernel_lab.engine import KernelLabEngine
from orchestrator.engines.testing import ONE_AT_A_TIME, EngineConformance
from orchestrator.vllm_plugin import PluginSettings
from orchestrator.workloads import Request, Schedule, random_requests
from tests.engines.kernel_lab.labs import TINY

ARGS: dict[str, Any] = {
    **TINY,
    "layers": {"dense": 2},
    "heads": 16,
    "max_model_len": 2048,
    "max_num_batched_tokens": 256,
    "max_num_seqs": 4,
    "block_size": 16,
    "dtype": "float32",
}

NUMBERS = itertools.count()


def over(ranks: int, interleave: int = 4) -> dict[str, int]:
    return {"decode_context_parallel_size": ranks, "cp_kv_cache_interleave_size": interleave}


def requests(count: int, length: int, output_len: int = 3) -> list[Request]:
    return random_requests(count, input_len=length, output_len=output_len, seed=[7], vocab_size=1024)


def new_engine(folder: Path, make_peers: MakePeers = SpawnedPeers) -> KernelLabEngine:
    return KernelLabEngine(f"dcp-{next(NUMBERS)}", str(folder / "lab.log"), make_peers=make_peers)


def run(
    folder: Path, args: Mapping[str, Any], make_peers: MakePeers = SpawnedPeers, live: Mapping[str, int] | None = None
) -> LabBlockResult:
    """A block of five requests, on an engine of its own."""
    engine = new_engine(folder, make_peers)
    engine.start(EngineConfig(model="none", args={**ARGS, **args}))
    try:
        engine.retune(live or {})
        return engine.run(requests(5, 400), Schedule())
    finally:
        engine.stop()


def tokens(block: LabBlockResult) -> list[list[int]]:
    return [list(one.output_token_ids) for one in block.requests]


def processes(engine: Engine) -> list[Any]:
    """Those of an engine's other ranks."""
    assert isinstance(engine, KernelLabEngine)
    assert engine._started is not None
    assert isinstance(engine._started.peers, SpawnedPeers)
    return engine._started.peers.processes


class TestTwoRanks(EngineConformance):
    folder: ClassVar[Path]
    made: ClassVar[dict[int, list[Any]]] = {}

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def logs(cls, tmp_path_factory: pytest.TempPathFactory) -> None:
        cls.folder = tmp_path_factory.mktemp("dcp")

    @classmethod
    def make_engine(cls) -> KernelLabEngine:
        kept: list[Any] = []

        def make_peers(setup: RankSetup) -> Peers:
            peers = SpawnedPeers(setup)
            kept.extend(peers.processes)
            return peers

        engine = new_engine(cls.folder, make_peers)
        cls.made[id(engine)] = kept
        return engine

    @classmethod
    def config(cls) -> EngineConfig:
        return EngineConfig(model="none", args={**ARGS, **over(2)})

    @classmethod
    def leftovers(cls, engine: Engine) -> Collection[object]:
        return [process for process in cls.made[id(engine)] if process.is_alive()]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> LabBlockResult:
    return run(tmp_path_factory.mktemp("alone"), {})


@pytest.fixture(scope="module", params=["dense", "sparse"])
def of_a_kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Any]:
    """Arguments of one kind of layer, and the tokens of one rank with them."""
    args: dict[str, Any] = {"layers": {request.param: 2}, "index_topk": 100}
    return args, tokens(run(tmp_path_factory.mktemp("one"), args))


@pytest.mark.parametrize(("ranks", "interleave"), [(2, 1), (4, 16), (8, 4), (16, 1), (16, 16)])
def test_greedy_tokens_are_those_of_one_rank(
    tmp_path: Path, of_a_kind: tuple[dict[str, Any], Any], ranks: int, interleave: int
) -> None:
    args, expected = of_a_kind
    block = run(tmp_path, {**args, **over(ranks, interleave)}, ThreadPeers, {"mla_workspace_rows": 256})
    assert tokens(block) == expected
    assert block.lab.padded_rows >= 0
    assert block.lab.all_gather_bytes >= (ranks - 1) * block.lab.gathered_rows * 48 * 4 // ranks
    assert 0 < block.lab.all_gather_s <= block.lab.gather_s <= block.lab.prefill_s


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.soak)])
def test_processes_give_the_tokens_of_one_rank(tmp_path: Path, alone: LabBlockResult, ranks: int) -> None:
    block = run(tmp_path, over(ranks))
    assert tokens(block) == tokens(alone)
    assert block.lab.gathered_rows == alone.lab.gathered_rows > 0
    assert block.lab.flops * ranks == pytest.approx(alone.lab.flops)
    assert alone.lab.all_gather_bytes == 0


def test_blocks_are_for_the_tokens_of_all_ranks() -> None:
    assert lab_args({**ARGS, "max_model_len": 2050}).blocks == 4 * 129
    assert lab_args({**ARGS, "max_model_len": 2050, **over(8)}).blocks == 4 * 17


def test_what_is_in_force_and_told(tmp_path: Path) -> None:
    engine = new_engine(tmp_path, ThreadPeers)
    plugin = PluginSettings(mla_workspace_rows=100)
    info = engine.start(EngineConfig(model="none", args={**ARGS, **over(8, 16)}, plugin=plugin))
    engine.stop()
    assert (info.dcp, info.interleave, info.block_size) == (8, 16, 16)
    force = info.in_force
    assert (force.workspace_rows, force.workspace_alignment) == (128, 128)
    assert force.workspace_bytes == (128 + 128 // 8) * 48 * 4


def check_lost(error: EngineError, message: str) -> None:
    assert error.label == "rank-lost"
    assert error.lost
    assert "\n" not in str(error)
    assert re.search(message, str(error)), str(error)


def test_a_rank_that_was_killed_ends_the_next_block(tmp_path: Path) -> None:
    engine = new_engine(tmp_path)
    engine.start(EngineConfig(model="none", args={**ARGS, **over(2)}))
    (process,) = processes(engine)
    os.kill(process.pid, signal.SIGKILL)
    process.join(10.0)
    with pytest.raises(EngineError) as error:
        engine.run(requests(1, 300), ONE_AT_A_TIME)
    check_lost(error.value, r"rank 1 of 2 ended with signal SIGKILL")
    with pytest.raises(EngineError):
        engine.run([], ONE_AT_A_TIME)


@pytest.mark.soak
def test_a_rank_that_is_killed_in_a_block_ends_it_and_the_other_ranks(tmp_path: Path) -> None:
    engine = new_engine(tmp_path)
    engine.start(EngineConfig(model="none", args={**ARGS, **over(3), "heads": 6}))
    ranks = processes(engine)
    killer = threading.Timer(0.3, os.kill, (ranks[1].pid, signal.SIGKILL))
    killer.start()
    with pytest.raises(EngineError) as error:
        engine.run(requests(400, 400, output_len=40), Schedule())
    killer.join()
    check_lost(error.value, r"rank 2 of 3 ended with signal SIGKILL")
    assert not any(process.is_alive() for process in ranks)


@pytest.fixture
def failing_rank(monkeypatch: pytest.MonkeyPatch) -> Callable[[Exception], None]:
    """Has every rank but the first fail in its third step."""

    def inject(error: Exception) -> None:
        real, steps = Rank.handle, itertools.count()

        def handle(self: Rank, command: Command) -> None:
            if isinstance(command, Step) and next(steps) >= 2:
                raise error
            real(self, command)

        monkeypatch.setattr(Rank, "handle", handle)

    return inject


@pytest.mark.parametrize(
    ("error", "label"),
    [
        (LabError("workspace-locked", "too many rows"), "workspace-locked"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: too many rows"), "out-of-memory"),
    ],
)
def test_what_another_rank_says_is_the_failure_of_the_block(
    tmp_path: Path, failing_rank: Callable[[Exception], None], error: Exception, label: str
) -> None:
    failing_rank(error)
    with pytest.raises(EngineError, match=rf"{label}: .*rank 1 of 2: .*too many rows") as failure:
        run(tmp_path, over(2), ThreadPeers)
    assert (failure.value.label, failure.value.lost) == (label, False)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({**over(2), "layers": {"c4a": 1}}, "decode_context_parallel_size must be 1 with c4a layers, got 2"),
        (over(3), "decode_context_parallel_size must divide heads 16, got 3"),
        (over(2, 3), "cp_kv_cache_interleave_size must divide block_size 16, got 3"),
        (over(2, 0), "cp_kv_cache_interleave_size: Input should be greater than or equal to 1, got 0"),
        ({**over(2), "vllm": "0.27.0"}, "decode_context_parallel_size above 1 needs vllm 0.28.0 or later"),
    ],
)
def test_vllms_rules_are_refused_in_one_line(tmp_path: Path, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineError, match=re.escape(message)) as error:
        new_engine(tmp_path).start(EngineConfig(model="none", args={**ARGS, **wrong}))
    assert error.value.label == "lab-shape"
    assert "\n" not in str(error.value)


STARTS_AND_WAITS = """
import json, sys
from orchestrator.engines import EngineConfig
from orchestrator.engines.kernel_lab.engine import KernelLabEngine

if __name__ == "__main__":
    engine = KernelLabEngine("dcp-orphans", sys.argv[1])
    engine.start(EngineConfig(model="none", args=json.loads(sys.argv[2])))
    print(*[process.pid for process in engine._started.peers.processes], flush=True)
    sys.stdin.read()
"""


@pytest.mark.soak
def test_ranks_end_when_the_process_of_their_engine_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "starts_and_waits.py"
    script.write_text(STARTS_AND_WAITS)
    command = [sys.executable, str(script), str(tmp_path / "lab.log"), json.dumps({**ARGS, **over(2)})]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout is not None
        watched = os.pidfd_open(int(engine.stdout.readline()))
        engine.kill()
    readable, _, _ = select.select([watched], [], [], 20.0)
    os.close(watched)
    assert readable, "the rank goes on"
