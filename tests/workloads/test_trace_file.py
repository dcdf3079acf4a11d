from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.errors import UserError
from orchestrator.workloads.trace_file import TraceRow, read_trace

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_azure_columns_with_seven_digits_of_a_second(tmp_path: Path) -> None:
    text = AZURE + "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    rows = read_trace(write(tmp_path, "azure.csv", text))
    assert [(row.input_len, row.output_len, row.hash_ids) for row in rows] == [(374, 44, None), (396, 109, None)]
    assert rows[0].at_s == 0
    assert rows[1].at_s == pytest.approx(4.314579, abs=1e-6)


def test_azure_times_with_a_zone_and_without_a_fraction(tmp_path: Path) -> None:
    text = AZURE + "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 02:00:01+02:00,2399,6\n"
    rows = read_trace(write(tmp_path, "azure.csv", text))
    assert rows[1].at_s == pytest.approx(1 - 0.00993, abs=1e-6)


def test_the_mooncake_columns_in_both_formats(tmp_path: Path) -> None:
    record = {"timestamp": 27_482, "input_length": 600, "output_length": 52, "hash_ids": [46, 47]}
    expected = [TraceRow(at_s=0.0, input_len=600, output_len=52, hash_ids=[46, 47])]
    assert read_trace(write(tmp_path, "a.jsonl", json.dumps(record) + "\n\n")) == expected
    text = 'timestamp,input_length,output_length,hash_ids\n27482,600,52,"[46, 47]"\n'
    assert read_trace(write(tmp_path, "a.csv", text)) == expected


def test_a_byte_order_mark_is_no_column(tmp_path: Path) -> None:
    assert len(read_trace(write(tmp_path, "a.csv", "\ufeff" + AZURE + "2023-11-16 18:15:46,3,4\n"))) == 1


def test_requests_come_in_the_order_of_their_times_and_the_limit_counts_lines(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "timestamp,input_length,output_length\n2000,1,1\n500,2,1\n0,3,1\n")
    assert [(row.at_s, row.input_len) for row in read_trace(path)] == [(0.0, 3), (0.5, 2), (2.0, 1)]
    assert [(row.at_s, row.input_len) for row in read_trace(path, limit=2)] == [(0.0, 2), (1.5, 1)]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "time,tokens\n1,2\n", "unknown columns time, tokens; a trace has timestamp, input_length"),
        ("a.jsonl", '{"arrived": 3}\n', r"unknown columns arrived; .*\(Mooncake\) or TIMESTAMP.*\(Azure\)"),
        ("a.csv", "timestamp,input_length,output_length\n1,0,2\n", "line 2: input_length: .* from 1 up, got '0'"),
        ("a.csv", "timestamp,input_length,output_length\n1,4,x\n", "line 2: output_length: .*, got 'x'"),
        ("a.csv", "timestamp,input_length,output_length\n-1,4,1\n", "line 2: timestamp: .* from 0 up, got '-1'"),
        ("a.csv", "timestamp,input_length,output_length\n1,4\n", "line 2: output_length: .*, got None"),
        ("a.csv", AZURE + "yesterday,4,1\n", "line 2: TIMESTAMP: should be a date and time, got 'yesterday'"),
        ("a.jsonl", '{"timestamp":1,"input_length":4,"output_length":1}\n{"timestamp":1}', "line 2: the column"),
        ("a.jsonl", '{"timestamp":1,"input_length":513,"output_length":1,"hash_ids":[1]}', "hash_ids has 1 blocks"),
        ("a.jsonl", '{"timestamp":1,"input_length":4,"output_length":1,"hash_ids":[-1]}', "hash_ids: should be a list"),
        ("a.jsonl", "[1, 2]\n", "line 1: should be an object, got list"),
        ("a.jsonl", "{\n", "line 1: not JSON"),
        ("a.jsonl", "", "the trace holds no request"),
        ("a.csv", "timestamp,input_length,output_length\n", "the trace holds no request"),
        ("a.parquet", "", "a trace is a .csv or .jsonl file, got '.parquet'"),
    ],
)
def test_a_bad_trace_is_one_clear_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = write(tmp_path, name, text)
    with pytest.raises(UserError, match=message) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read the trace: No such file"):
        read_trace(tmp_path / "none.csv")
