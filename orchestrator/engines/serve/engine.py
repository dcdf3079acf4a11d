"""``vllm serve`` as an engine: a subprocess that is measured over HTTP and tuned through the plugin's RPC."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import resource
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from orchestrator.engines.contract import BlockResult, EngineConfig, EngineError, EngineInfo, StopRule
from orchestrator.engines.plugin_engine import DEATH_POLL_S, PluginEngine
from orchestrator.engines.reports import Reports, counters, in_force
from orchestrator.engines.serve.command import server_command
from orchestrator.engines.serve.completions import completion_body, completion_chunks
from orchestrator.engines.serve.http import SocketClient, StatusError
from orchestrator.engines.serve.process import ServerProcess, names_environment
from orchestrator.engines.streaming import RequestFailed, StreamChunk, drive
from orchestrator.engines.vllm import engine_environment, recorded
from orchestrator.vllm_plugin import RPC_PREFIX
from orchestrator.workloads import Prompt, Request, Schedule

SOCKET_NAME: Final = "vllm.sock"

_START_POLL_S: Final = 0.1
_HEALTH_S: Final = 5.0
_IDLE_TIMEOUT_S: Final = 30.0
_IDLE_POLL_S: Final = 0.02
_ERROR = re.compile(r"(Error|Exception|error):")
_NO_CAUSE: Final = "See root cause above"
"""In vLLM's line that only says that the cause stands elsewhere."""


class ServeEngine(PluginEngine):
    """The contract of ``orchestrator.engines.Engine``. One server for one object.

    The server listens on a Unix socket in a folder that only this user can enter: no port is taken, and nobody else can
    send requests or retune. It is never started again: one that died, or that counts from 0 again, is lost, and with it
    whatever was tuned. ``abort`` ends a start and a block that another thread waits for.
    """

    kind = "vllm_serve"

    def __init__(self, engine_id: str, log_path: str) -> None:
        super().__init__(engine_id, log_path)
        self._folder: Path | None = None
        self._server: ServerProcess | None = None
        self._client = SocketClient("")
        self._model = ""
        self._caches = False
        self._last: Reports | None = None

    @property
    def server(self) -> ServerProcess | None:
        """The processes; None when the engine is not running."""
        return self._server

    def start(self, config: EngineConfig) -> EngineInfo:
        begin = time.perf_counter()
        names = config.args.get("served_model_name") or config.model
        self._model = names if isinstance(names, str) else names[0]
        try:
            self._server, launch = self._launched(config)
            info = self._await(self._start(self._server, tuple(config.env), begin))
        except (OSError, ImportError) as error:
            # There is no such program, no room for its files, or no vLLM at all.
            self.stop()
            raise EngineError("engine-start", f"vllm serve: {error}", log_path=self._log_path) from error
        except BaseException:
            self.stop()
            raise
        self._start_values = info.in_force
        return dataclasses.replace(info, resolved={**info.resolved, "launch": launch})

    def _launched(self, config: EngineConfig) -> tuple[ServerProcess, dict[str, Any]]:
        """The server's processes, and with what they were started."""
        _allow_many_files()
        self._folder = Path(tempfile.mkdtemp(prefix="serve-"))
        socket_path = str(self._folder / SOCKET_NAME)
        self._client = SocketClient(socket_path)
        command = server_command(config, socket_path)
        environment = {**engine_environment(config), **names_environment(self._folder)}
        inherited = dict(os.environ)
        # A key for the server is for its own clients; over the socket the folder decides who is one.
        inherited.pop("VLLM_API_KEY", None)
        server = ServerProcess(command, {**inherited, **environment}, self._log_path)
        return server, {"command": command, "environment": recorded(environment)}

    def stop(self) -> None:
        self._remove(is_orderly=True)

    def abort(self) -> None:
        server = self._server
        if server is not None:
            server.kill()
        self._loop.cancel_all()
        self._remove(is_orderly=False)

    async def _start(self, server: ServerProcess, names: Sequence[str], begin: float) -> EngineInfo:
        facts = await self._facts(server, names)
        self._caches = bool(facts["resolved"]["cache_config"]["enable_prefix_caching"])
        return self._info(await self._reports(), begin, facts)

    async def _facts(self, server: ServerProcess, names: Sequence[str]) -> dict[str, Any]:
        """What the server says of itself, once it serves."""
        while True:
            if (code := server.exit_code) is not None:
                detail = f"vllm serve ended with exit code {code} before it served: {_cause(server.log_lines())}"
                raise EngineError("engine-start", detail, log_path=self._log_path)
            try:
                facts: dict[str, Any] = await self._client.call(f"{RPC_PREFIX}facts", {"environment": list(names)})
            except ConnectionError:
                await asyncio.sleep(_START_POLL_S)
            except StatusError as error:
                detail = f"the server does not know the plugin's RPC: {error}"
                raise EngineError("plugin-refused", detail, log_path=self._log_path) from error
            else:
                return facts

    @property
    def _is_running(self) -> bool:
        return self._server is not None

    async def _retune(self, values: Mapping[str, int | None]) -> None:
        await self._call("retune", {"values": dict(values)})

    async def _run(
        self, requests: Sequence[Request], schedule: Schedule, top2: bool, stop: StopRule | None
    ) -> BlockResult:
        if self._caches and not (await self._call("empty-cache"))["emptied"]:
            raise EngineError("cache-reset", "vLLM did not empty its prefix cache", log_path=self._log_path)
        # Encoded before the clock runs: a long prompt takes milliseconds.
        bodies = [completion_body(self._model, request.prompt, top2=top2) for request in requests]
        cached = [0] * len(requests)

        def stream(index: int, _prompt: Prompt) -> AsyncIterator[StreamChunk]:
            return self._stream(bodies[index], index, cached)

        before = await self._reports()
        started_at = datetime.now(UTC)
        driven = await drive(stream, requests, schedule, stop=stop)
        after = await self._reports()
        return BlockResult(
            started_at=started_at,
            duration_s=driven.duration_s,
            # How much came from the cache is told after the last token.
            requests=[dataclasses.replace(one, cached_tokens=cached[one.index]) for one in driven.timelines],
            in_force=in_force(after),
            counters=counters(before, after),
            stopped=driven.stopped,
        )

    async def _stream(self, body: bytes, index: int, cached: list[int]) -> AsyncIterator[StreamChunk]:
        try:
            async with aclosing(self._client.events("/v1/completions", body)) as events:
                async for chunk in completion_chunks(events):
                    if isinstance(chunk, StreamChunk):
                        yield chunk
                    else:
                        cached[index] = chunk
        except ConnectionError as error:
            raise self._dead(f"the server {error}") from error
        except (StatusError, RequestFailed) as error:
            if not await self._is_healthy():
                raise self._dead(str(error)) from error
            raise RequestFailed(str(error)) from error

    async def _reports(self) -> Reports:
        """The reports, once no request of an earlier block is left.

        Raises:
            EngineError: Another engine answers than the one that was asked last, and it has its start values.
        """
        deadline = time.monotonic() + _IDLE_TIMEOUT_S
        while True:
            found = await self._call("report")
            if not found["unfinished"]:
                break
            if time.monotonic() > deadline:
                detail = f"{found['unfinished']} requests that nobody waits for do not end"
                raise EngineError("engine-error", detail, lost=True, log_path=self._log_path)
            await asyncio.sleep(_IDLE_POLL_S)
        reports: Reports = (found["workers"], found["scheduler"])
        if self._last is not None and _counts(reports) < _counts(self._last):
            raise self._dead("the engine was started again, without what was tuned")
        self._last = reports
        return reports

    async def _call(self, name: str, given: Mapping[str, Any] | None = None) -> Any:
        """One call of the plugin's RPC. vLLM leaves it open for ever when the engine core dies before it answers."""
        task = asyncio.ensure_future(self._client.call(f"{RPC_PREFIX}{name}", given or {}))
        try:
            while not (await asyncio.wait({task}, timeout=DEATH_POLL_S))[0]:
                if not await self._is_healthy():
                    raise self._dead()
            return task.result()
        except ConnectionError as error:
            raise self._dead(f"the server {error}") from error
        except StatusError as error:
            if not await self._is_healthy():
                raise self._dead(str(error)) from error
            raise EngineError("engine-error", f"{name}: {error}", log_path=self._log_path) from error
        finally:
            task.cancel()

    async def _is_healthy(self) -> bool:
        """Whether the server says so. One that does not answer in time may only be busy."""
        if self._server is None or self._server.exit_code is not None:
            return False
        try:
            await asyncio.wait_for(self._client.get("/health"), _HEALTH_S)
        except (ConnectionError, StatusError):
            return False
        except TimeoutError:
            return True
        return True

    def _remove(self, *, is_orderly: bool) -> None:
        (server, self._server), (folder, self._folder) = (self._server, None), (self._folder, None)
        if server is not None:
            server.end() if is_orderly else server.kill()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        self._loop.close()


def _allow_many_files() -> None:
    """Each request has a connection of its own; the usual 1,024 files end an overload at its beginning."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _counts(reports: Reports) -> int:
    """Steps since the engine core began: it only grows."""
    return reports[1]["steps"]


def _cause(lines: Sequence[str]) -> str:
    """The last error of a log with the two lines behind it, which say more of vLLM's; else the last line."""
    found = [at for at, line in enumerate(lines) if _ERROR.search(line) and _NO_CAUSE not in line]
    shown = lines[found[-1] : found[-1] + 3] if found else lines[-1:]
    return " ".join(" ".join(shown).split())[:400] or "it printed nothing"
