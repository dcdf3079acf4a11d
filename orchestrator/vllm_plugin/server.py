"""The plugin's RPC in a process of ``vllm serve``: an ASGI middleware, for vLLM's ``--middleware``.

It answers four paths under ``RPC_PREFIX`` and leaves all others to vLLM. Both sides speak JSON; nothing is unpickled,
and no caller chooses a method of the engine. It answers over a Unix socket alone, where the folder's permissions say
who may ask: on a TCP port, whoever reaches it could retune the server.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from orchestrator.vllm_plugin import calls
from orchestrator.vllm_plugin.protocol import RPC_PREFIX

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_App = Callable[[_Scope, _Receive, _Send], Awaitable[None]]

_OK: Final = 200
_BAD_REQUEST: Final = 400
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_FAILED: Final = 500


class ServerRpc:
    """See the module. The answer to a call that failed is its error, under ``error``."""

    def __init__(self, app: _App) -> None:
        self._app = app

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        path = scope.get("path", "")
        if scope["type"] != "http" or not path.startswith(RPC_PREFIX):
            await self._app(scope, receive, send)
            return
        status, answer = await _answered(scope, path.removeprefix(RPC_PREFIX), receive)
        body = json.dumps(answer).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def _answered(scope: _Scope, name: str, receive: _Receive) -> tuple[int, dict[str, Any]]:
    if scope.get("client") is not None:
        return _FORBIDDEN, {"error": "only over a Unix socket"}
    call = _CALLS.get(name)
    if call is None or scope["method"] != "POST":
        return _NOT_FOUND, {"error": f"no such call; there are: POST {', '.join(sorted(_CALLS))}"}
    try:
        given = json.loads(await _body(receive) or b"{}")
    except ValueError as error:
        return _BAD_REQUEST, {"error": f"not JSON: {error}"}
    try:
        return _OK, await call(scope["app"].state.engine_client, given)
    except (KeyError, TypeError) as error:
        return _BAD_REQUEST, {"error": f"{type(error).__name__}: {error}"}
    except Exception as error:  # noqa: BLE001 (vLLM passes on whatever its other processes raised; the caller is told)
        return _FAILED, {"error": f"{type(error).__name__}: {error}"}


async def _body(receive: _Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b""  # nobody waits for the answer
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


async def _facts(engine: Any, given: dict[str, Any]) -> dict[str, Any]:
    return dict(calls.facts(engine.vllm_config, given["environment"]))


async def _report(engine: Any, _given: dict[str, Any]) -> dict[str, Any]:
    # The requests first: one that was cancelled is known to the engine core before it is asked for its report.
    unfinished = engine.output_processor.get_num_unfinished_requests()
    workers, scheduler = await calls.reports(engine)
    return {"workers": workers, "scheduler": scheduler, "unfinished": unfinished}


async def _retune(engine: Any, given: dict[str, Any]) -> dict[str, Any]:
    await calls.retune(engine, given["values"])
    return {}


async def _empty_cache(engine: Any, _given: dict[str, Any]) -> dict[str, Any]:
    return {"emptied": bool(await engine.reset_prefix_cache())}


_CALLS: Final = {"facts": _facts, "report": _report, "retune": _retune, "empty-cache": _empty_cache}
