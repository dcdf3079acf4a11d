from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import Any

import pytest

from orchestrator.measurement.testing import MODEL, MockServer, MockSettings

FAST = MockSettings(ttft_s=0.01, itl_s=0.002)


def complete(server: MockServer, **body: Any) -> list[Any]:
    """The events of one streamed answer."""
    body = {"model": MODEL, "prompt": [1, 2, 3], "max_tokens": 4, "stream": True, **body}
    request = urllib.request.Request(
        f"{server.url}/v1/completions", data=json.dumps(body).encode(), headers={"X-Request-Id": "mine"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        lines = answer.read().decode().split("\n\n")
    assert lines[-1] == ""
    return [line.removeprefix("data: ") for line in lines[:-1]]


def test_an_answer_has_the_asked_tokens_and_counts() -> None:
    with MockServer(FAST) as server:
        *events, usage, done = complete(server, return_token_ids=True, stream_options={"include_usage": True})
    choices = [json.loads(event)["choices"][0] for event in events]
    assert [choice["token_ids"] for choice in choices] == [[11], [12], [13], [14]]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "length"]
    assert json.loads(usage)["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    assert done == "[DONE]"


def test_ids_and_counts_come_only_where_they_are_asked_for() -> None:
    with MockServer(FAST) as server:
        events = complete(server, prompt="two words")
        assert len(events) == 5
        assert "token_ids" not in events[0]
    with MockServer(MockSettings(ttft_s=0.0, itl_s=0.0, send_usage=False)) as server:
        assert len(complete(server, stream_options={"include_usage": True})) == 5


def test_no_token_is_early_and_the_truth_is_kept() -> None:
    with MockServer(FAST) as server:
        before = time.perf_counter()
        complete(server)
        after = time.perf_counter()
        (truth,) = server.truth()
    assert truth.request_id == "mine"
    assert before <= truth.arrival_s <= truth.written_s[0]
    assert truth.written_s[-1] <= after
    assert len(truth.written_s) == 4
    for number, written in enumerate(truth.written_s):
        assert written >= truth.arrival_s + FAST.ttft_s + number * FAST.itl_s


def test_faults_hit_the_requests_that_they_name() -> None:
    settings = MockSettings(ttft_s=0.0, itl_s=0.0, refuse={0}, short={1}, slow={2}, slow_s=0.05, die_at=3)
    with MockServer(settings) as server:
        with pytest.raises(urllib.error.HTTPError, match="503"):
            complete(server)
        assert len(complete(server)) == 2 + 1
        assert len(complete(server)) == 4 + 1
        refused, _, slow = server.truth()
        assert refused.written_s == []
        assert slow.written_s[0] >= slow.arrival_s + 0.05
        with pytest.raises((OSError, urllib.error.URLError)):
            complete(server)


@pytest.mark.parametrize(
    ("path", "data", "status"), [("/v1/completions", b"{}", 400), ("/v1/completions", b"{", 400), ("/v1/x", None, 404)]
)
def test_what_it_does_not_know_it_refuses(path: str, data: bytes | None, status: int) -> None:
    with MockServer(FAST) as server, pytest.raises(urllib.error.HTTPError, match=str(status)):
        urllib.request.urlopen(server.url + path, data=data, timeout=30)


def test_it_lists_its_model() -> None:
    with MockServer(FAST) as server, urllib.request.urlopen(f"{server.url}/v1/models", timeout=30) as answer:
        assert [model["id"] for model in json.load(answer)["data"]] == [MODEL]


def test_the_process_ends_with_the_block() -> None:
    with MockServer(FAST) as server:
        pid = server.pid
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_process_ends_with_the_one_that_started_it() -> None:
    program = (
        "import sys, time\nfrom orchestrator.measurement.testing import MockServer\n"
        "with MockServer() as server:\n    print(server.url, flush=True)\n    time.sleep(600)"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child.stdout:
        url = child.stdout.readline().strip()
        urllib.request.urlopen(f"{url}/health", timeout=30).close()
        child.send_signal(signal.SIGKILL)
        child.wait()
        # Its end of our pipe closes when the server, which inherited nothing else of ours, is gone too.
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                urllib.request.urlopen(f"{url}/health", timeout=30).close()
            except (urllib.error.URLError, ConnectionError):
                return
            time.sleep(0.02)
    pytest.fail("the server outlived the process that started it")


def test_negative_times_are_refused() -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        MockSettings(itl_s=-1.0)
