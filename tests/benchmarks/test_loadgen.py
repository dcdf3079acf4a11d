from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks._load_clients import ClientRun, OfferedLoad
from benchmarks.loadgen import main, server_row
from orchestrator.errors import ChunksmithError
from orchestrator.measurement.testing import Truth

LOAD = OfferedLoad(rate=100.0, requests=4, input_len=1, output_len=1)


def truth(*arrivals: float, ttft: float = 0.02) -> list[Truth]:
    return [Truth(request_id="", arrival_s=arrival, written_s=[arrival + ttft]) for arrival in arrivals]


def row(seen: list[Truth], *ttft_ms: float, **keys: Any) -> Any:
    return server_row(seen, LOAD, ClientRun(ttft_ms=ttft_ms, failed=0), **{"slip": None, "is_even": True, **keys})


def test_lag_is_counted_from_the_earliest_against_the_even_schedule() -> None:
    found = row(truth(5.003, 5.010, 5.0205, 5.030), 21.0)
    assert found.lag_us == pytest.approx((250.0, 2925.0), abs=1)
    assert found.rate_error == pytest.approx(3 / 0.027 / 100 - 1)


def test_added_is_what_the_server_did_not_see() -> None:
    assert row(truth(1.0, 1.01, 1.02, 1.03), 20.5, 20.5).added_ms == pytest.approx((0.5, 0.5))


def test_a_first_request_that_tries_the_server_does_not_count() -> None:
    with_trial = row(truth(1.0, 7.0, 7.01, 7.02, 7.03), 20.0)
    assert with_trial.requests == 4
    assert with_trial.rate_error == pytest.approx(0)


def test_a_client_that_sent_too_little_is_no_comparison() -> None:
    with pytest.raises(ChunksmithError, match=r"3 of 4 requests came, 1 ended well"):
        row(truth(1.0, 1.01, 1.02), 20.0)
    with pytest.raises(ChunksmithError, match=r"4 of 4 requests came, 0 ended well"):
        row(truth(1.0, 1.01, 1.02, 1.03))


def test_our_own_rows_run_and_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rate", "50", "--seconds", "0.5", "--clients", "chunksmith"]) in (0, 1)
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    clients = line["figures"]["clients"]
    assert [(name, found["requests"], found["failed"]) for name, found in clients.items()] == [
        ("chunksmith, constant", 25, 0),
        ("chunksmith, Poisson", 25, 0),
    ]
    assert len(line["bounds"]) == 8


@pytest.mark.parametrize("words", [["--rate", "0"], ["--seconds", "-1"], ["--clients", "wrk"]])
def test_a_wrong_word_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert words[1] in capsys.readouterr().err
