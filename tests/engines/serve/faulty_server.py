"""In place of vLLM's program, to inject faults: the plugin's real RPC before an engine that only counts.

Run as ``faulty_server.py --uds SOCKET [FAULT]``. Faults:

``none``; ``no-start``: it ends as vLLM does when it refuses its arguments; ``never-ready``: it does not serve;
``no-rpc``: the plugin's RPC is missing; ``dies``: the process ends in the middle of an answer; ``core-dies``: the
engine core does, the server lives on; ``hangs``: so, but a call is left open; ``restarts``: the engine core is a new
one with its start values after the first block; ``short``: streams end without their last words; ``retune-fails``.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from orchestrator.vllm_plugin import calls
from orchestrator.vllm_plugin.server import ServerRpc

TOKEN_S = 0.01
MOST_TOKENS = 100
START = {"max_num_batched_tokens": 512, "max_num_seqs": 4, "long_prefill_token_threshold": 0}
FACTS = {
    "version": "0.32.0",
    "vocab_size": 1000,
    "max_model_len": MOST_TOKENS,
    "block_size": 16,
    "dcp": 1,
    "interleave": 1,
    "index_topk": None,
    "resolved": {"cache_config": {"enable_prefix_caching": True}},
}


class FaultyCore:
    """What the RPC asks of vLLM's ``AsyncLLM``."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.is_dead = False
        self.unfinished = 0
        self.engine_core = self.output_processor = self
        self.vllm_config = None
        self.begin()

    def begin(self) -> None:
        self.steps = self.blocks = 0
        self.rows: int | None = None
        self.scheduler = dict(START)

    def get_num_unfinished_requests(self) -> int:
        return self.unfinished

    async def collective_rpc(self, _method: str, args: tuple[Any, ...] = ()) -> list[Any]:
        if args:
            if self.fault == "retune-fails":
                raise RuntimeError("it does not fit")
            self.rows = args[0]["mla_workspace_rows"]
            return [None]
        return [await self._report()]

    async def call_utility_async(self, _method: str, values: dict[str, int | None] | None = None) -> Any:
        if values is not None:
            self.scheduler = {name: START[name] if value is None else value for name, value in values.items()}
            return None
        return {
            "refused": None,
            **self.scheduler,
            "steps": self.steps,
            "max_step_tokens": 1,
            "max_running_requests": 1,
            "long_prefill_cuts": 0,
        }

    async def _report(self) -> dict[str, Any]:
        if self.is_dead:
            if self.fault == "hangs":
                await asyncio.Event().wait()
            raise RuntimeError("EngineDeadError")
        rows = self.rows or 128
        return {
            "refused": None,
            "workspace_rows": [rows],
            "workspace_bytes": rows * 10,
            "workspace_alignment": 16,
            "builders": 1,
            "kv_blocks": 8,
            "cpu_chunked_prefill": False,
            "prefill_chunk_size": None,
            "prefill_area_limit": None,
            "context_chunks": self.steps,
            "workspace_entries": 0,
            "area_plans": 0,
            "area_limited": 0,
        }

    async def reset_prefix_cache(self) -> bool:
        self.blocks += 1
        if self.fault == "restarts" and self.blocks == 2:
            self.begin()
        return True

    async def stream(self, asked: dict[str, Any]) -> AsyncIterator[bytes]:
        self.unfinished += 1
        late_steps = 1
        try:
            for number in range(asked["max_tokens"]):
                await asyncio.sleep(TOKEN_S)
                self.steps += 1
                if number == 2 and self.fault in ("dies", "core-dies", "hangs"):
                    if self.fault == "dies":
                        os._exit(1)
                    self.is_dead = True
                    yield _event({"error": {"message": "EngineCore encountered an issue"}})
                    return
                choice: dict[str, Any] = {"text": "", "token_ids": [number]}
                if asked.get("logprobs"):
                    choice["logprobs"] = {"top_logprobs": [{"token_id:1": -0.5, "token_id:2": -2.0}]}
                yield _event({"choices": [choice]})
            if self.fault != "short":
                usage = {"completion_tokens": asked["max_tokens"], "prompt_tokens_details": {"cached_tokens": 7}}
                yield _event({"choices": [], "usage": usage})
                yield b"data: [DONE]\n\n"
            late_steps = 0
        finally:
            # As in vLLM, a request that nobody waits for ends a little later, and may be in a step until then.
            asyncio.get_running_loop().call_later(2 * TOKEN_S, self._forget, late_steps)

    def _forget(self, late_steps: int) -> None:
        self.steps += late_steps
        self.unfinished -= 1


def _event(content: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(content)}\n\n".encode()


def make_app(fault: str) -> Starlette:
    core = FaultyCore(fault)

    async def completions(request: Request) -> Response:
        asked = await request.json()
        if len(asked["prompt"]) > MOST_TOKENS:
            return JSONResponse({"error": {"message": "the prompt is too long"}}, 400)
        return StreamingResponse(core.stream(asked), media_type="text/event-stream")

    async def health(_request: Request) -> Response:
        return Response(status_code=503 if core.is_dead else 200)

    routes = [Route("/v1/completions", completions, methods=["POST"]), Route("/health", health)]
    app = Starlette(routes=routes, middleware=[] if fault == "no-rpc" else [Middleware(ServerRpc)])
    app.state.engine_client = core
    return app


def main(socket: str, fault: str) -> None:
    if fault == "no-start":
        sys.exit("Traceback\nvllm serve: error: argument --max-model-len: invalid value\nHint: none\n")
    calls.facts = lambda _config, _environment: FACTS  # type: ignore[assignment, return-value]
    if fault == "never-ready":
        asyncio.run(asyncio.Event().wait())
    uvicorn.run(make_app(fault), uds=socket, log_level="error")


if __name__ == "__main__":
    main(sys.argv[2], sys.argv[3])
