"""The server that is put under load."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from orchestrator.errors import UserError, unknown_name
from orchestrator.workloads import Prompt

VLLM_BODY: Mapping[str, Any] = {"ignore_eos": True, "return_token_ids": True}
"""Two fields that vLLM adds to the protocol: generate all tokens that were asked for, and send their ids."""

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, kw_only=True)
class Target:
    """An OpenAI-compatible server, which may well be one that somebody else started.

    Attributes:
        url: For instance ``http://localhost:8000``, with or without ``/v1``. Only http and https; no proxy is used.
        model: Name under which it serves the model.
        api_key: Sent as a bearer token where given.
        body: Further fields of every request. A server that refuses vLLM's needs other ones, for instance ``{}``.
        timeout_s: A request that has not ended so many seconds after its send has failed, and is closed.
        connect_timeout_s: A connection has to open within so many seconds.

    Raises:
        UserError: The URL is none, or a time is not above 0.
    """

    url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    body: Mapping[str, Any] = field(default_factory=lambda: VLLM_BODY)
    timeout_s: float = 600.0
    connect_timeout_s: float = 5.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in _PORTS or not parts.hostname or port == -1 or parts.query or parts.fragment:
            raise UserError(f"url: must be http://HOST[:PORT][/PATH] or https://..., got {self.url!r}")
        for name in ("timeout_s", "connect_timeout_s"):
            if not 0 < getattr(self, name) < float("inf"):
                raise UserError(f"{name}: must be above 0, got {getattr(self, name)}")

    @property
    def is_tls(self) -> bool:
        return urlsplit(self.url).scheme == "https"

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or _PORTS[parts.scheme]

    @property
    def root(self) -> str:
        """The path in front of ``/v1``, without a slash at its end."""
        return urlsplit(self.url).path.rstrip("/").removesuffix("/v1")

    def encode(self, prompt: Prompt, request_id: str) -> bytes:
        """The whole HTTP request, ready to be written to a socket."""
        body = json.dumps(
            {
                "temperature": 0,
                **self.body,
                "model": self.model,
                "prompt": list(prompt.token_ids),
                "max_tokens": prompt.output_len,
                "stream": True,
                "stream_options": {"include_usage": True},
            },
            separators=(",", ":"),
        ).encode()
        head = [
            f"POST {self.root}/v1/completions HTTP/1.1",
            f"Host: {urlsplit(self.url).netloc.rpartition('@')[2]}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            "Accept: text/event-stream",
            "Accept-Encoding: identity",
            f"X-Request-Id: {request_id}",
        ]
        if self.api_key is not None:
            head.append(f"Authorization: Bearer {self.api_key}")
        return "\r\n".join([*head, "", ""]).encode("latin-1") + body


def check_target(target: Target) -> None:
    """Ask the server for its models.

    Raises:
        UserError: It cannot be reached, is not ready, or does not serve the model; one line.
    """
    try:
        models = [str(model["id"]) for model in json.loads(_ask_for_models(target))["data"]]
    except urllib.error.HTTPError as error:
        raise UserError(f"{target.url}: not ready: /v1/models answers {error.code} {error.reason}") from error
    except OSError as error:
        raise UserError(f"{target.url}: cannot be reached: {_reason(error)}") from error
    except (ValueError, KeyError, TypeError, HTTPException) as error:
        raise UserError(f"{target.url}: /v1/models does not answer as an OpenAI-compatible server does") from error
    if target.model not in models:
        raise unknown_name("model", target.model, models, where=target.url)


def no_answer_reason(target: Target) -> str | None:
    """Why nothing answers there; None when something does, whatever it says."""
    try:
        _ask_for_models(target)
    except urllib.error.HTTPError:
        return None
    except OSError as error:  # before HTTPException: a connection that is closed without an answer is both
        return _reason(error)
    except HTTPException:
        return None
    return None


def _ask_for_models(target: Target) -> bytes:
    headers = {} if target.api_key is None else {"Authorization": f"Bearer {target.api_key}"}
    base = target.url.rstrip("/").removesuffix("/v1")
    request = urllib.request.Request(f"{base}/v1/models", headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=target.connect_timeout_s) as answer:
        body: bytes = answer.read()
    return body


def _reason(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error)
