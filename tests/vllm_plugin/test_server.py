"""Who may call the RPC of a server, and what it answers to calls that are none."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.vllm_plugin.protocol import RPC_PREFIX
from orchestrator.vllm_plugin.server import ServerRpc


class Engine:
    """Answers to the one call that needs no other part of vLLM."""

    async def reset_prefix_cache(self) -> bool:
        return True


def ask(path: str, *, method: str = "POST", body: bytes = b"", client: Any = None) -> tuple[int, Any]:
    """Status and JSON of the answer; 0 when the call went on to vLLM."""
    sent: list[Any] = []

    async def vllm(*_args: Any) -> None:
        sent.append({"status": 0})
        sent.append({"body": b"null"})

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    app = SimpleNamespace(state=SimpleNamespace(engine_client=Engine()))
    scope = {"type": "http", "method": method, "path": path, "client": client, "app": app}
    asyncio.run(ServerRpc(vllm)(scope, receive, send))
    return sent[0]["status"], json.loads(sent[1]["body"])


def test_a_call_over_a_unix_socket_is_answered() -> None:
    assert ask(f"{RPC_PREFIX}empty-cache") == (200, {"emptied": True})


def test_nobody_is_answered_over_tcp() -> None:
    assert ask(f"{RPC_PREFIX}empty-cache", client=("127.0.0.1", 40000)) == (403, {"error": "only over a Unix socket"})


@pytest.mark.parametrize("path", ["/v1/completions", "/health", "/chunksmith"])
def test_all_other_paths_are_vllms(path: str) -> None:
    assert ask(path) == (0, None)


@pytest.mark.parametrize(
    ("call", "method", "body", "status"),
    [
        ("shutdown", "POST", b"", 404),
        ("empty-cache", "GET", b"", 404),
        ("retune", "POST", b"{", 400),
        ("retune", "POST", b"{}", 400),
        ("retune", "POST", b"[]", 400),
        # The engine here knows no RPC: whatever vLLM raises is told, and the server lives.
        ("report", "POST", b"", 500),
    ],
)
def test_what_is_no_call_is_refused(call: str, method: str, body: bytes, status: int) -> None:
    found, answer = ask(f"{RPC_PREFIX}{call}", method=method, body=body)
    assert found == status
    assert answer["error"]
