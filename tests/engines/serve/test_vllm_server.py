"""A real ``vllm serve`` with the tiny model: the contract, and nothing left behind.

Two servers are started and a third is refused, some twenty seconds each.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path
from typing import ClassVar

import pytest

from orchestrator.cluster.reaper import shared_files
from orchestrator.engines import Engine, EngineConfig, EngineError, EngineInfo
from orchestrator.engines.serve import ServeEngine, ServerProcess
from orchestrator.engines.testing import EngineConformance, Started
from orchestrator.models import tiny_model
from tests.engines.test_vllm import ARGS, DEFAULT_ROWS, ENV, ONE_AT_A_TIME, chunks_by_hand, config, requests

pytestmark = [pytest.mark.engine, pytest.mark.soak, pytest.mark.timeout(300)]


class WatchedEngine(ServeEngine):
    """Remembers what its server had."""

    processes: ServerProcess | None = None
    files: Collection[Path] = ()

    def start(self, config: EngineConfig) -> EngineInfo:
        info = super().start(config)
        self.processes = self.server
        assert self.processes is not None
        names = {name for process in self.processes.members() for name in shared_files(process.pid)}
        assert self._folder is not None
        self.files = [self._folder, *map(Path, names)]
        return info

    def context_chunks(self) -> int:
        """Counted so far, also while requests are served."""
        report = self._await(self._call("report"))
        return int(report["workers"][0]["context_chunks"])


class TestServeEngine(EngineConformance):
    log_folder: ClassVar[Path]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def logs(cls, tmp_path_factory: pytest.TempPathFactory) -> None:
        cls.log_folder = tmp_path_factory.mktemp("servers")

    @classmethod
    def make_engine(cls) -> WatchedEngine:
        return WatchedEngine("serve-test", str(cls.log_folder / "server.log"))

    @classmethod
    def config(cls) -> EngineConfig:
        return config()

    @classmethod
    def spare_config(cls) -> EngineConfig:
        return config(mla_workspace_rows=250, prefill_area_limit=900)

    @classmethod
    def leftovers(cls, engine: Engine) -> Collection[object]:
        assert isinstance(engine, WatchedEngine)
        processes = [] if engine.processes is None else engine.processes.members()
        return [*processes, *(path for path in engine.files if path.exists())]

    @classmethod
    def wait_until_serving(cls, engine: Engine) -> None:
        """The worker has planned a chunk of context."""
        assert isinstance(engine, WatchedEngine)
        before, deadline = engine.context_chunks(), time.monotonic() + 60
        while engine.context_chunks() == before:
            assert time.monotonic() < deadline, "nothing is served"

    def test_a_start_that_fails_says_why_and_leaves_nothing(self) -> None:
        engine = self.make_engine()
        wrong = EngineConfig(model=str(tiny_model()), args={**ARGS, "max_model_len": 10**9}, env=ENV)
        with pytest.raises(EngineError, match=r"engine-start: .*max_model_len") as error:
            engine.start(wrong)
        assert not error.value.lost
        self._require_gone(engine)

    @pytest.mark.parametrize("rows", [64, 1024, DEFAULT_ROWS])
    def test_context_chunks_are_those_of_arithmetic(self, started: Started, rows: int) -> None:
        started.engine.retune({"mla_workspace_rows": rows})
        counters = started.engine.run(requests(1, 1500), ONE_AT_A_TIME).counters
        started.engine.retune({})
        assert counters.context_chunks == chunks_by_hand(1500, 256, rows)
        assert counters.max_step_tokens == 256

    def test_what_was_run_is_told(self, started: Started) -> None:
        launch = started.info.resolved["launch"]
        assert launch["command"][:3] == ["vllm", "serve", started.config.model]
        assert launch["environment"]["VLLM_CPU_KVCACHE_SPACE"] == "1"
