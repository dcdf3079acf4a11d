from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from orchestrator.cli.chunks import chunks
from orchestrator.cli.explain import explain
from orchestrator.cli.size import size
from orchestrator.errors import ChunksmithError, UserError

app = typer.Typer()
app.command()(size)
app.command()(chunks)
app.command()(explain)


def run(*arguments: str) -> str:
    """Standard output of a command that succeeds; a user's mistake is raised."""
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def run_json(*arguments: str) -> Any:
    return json.loads(run(*arguments, "--json"))


def test_size_shows_the_rows_of_kimi_k3_before_and_after() -> None:
    flags = ["--model", "kimi-k3", "--block-size", "768", "--dcp", "8", "--max-num-seqs", "1024"]
    found = run_json("size", *flags)
    assert found["rules"]["0.11"]["rows"] == 786_432
    assert found["rules"]["0.28"]["rows"] == 66_048
    assert found["flags"]["tp"] == 8
    assert found["violations"] == []
    gather = {item["name"]: item["bytes"] for item in found["rules"]["0.11"]["buffers"]}["gather buffer"]
    assert gather == 972 * 2**20
    assert found["kv_effect"]["0.11 to 0.28"]["blocks"] == 208
    text = run("size", *flags)
    assert "786,432" in text
    assert "66,048" in text


def test_size_shows_the_regression_of_deepseek_v3() -> None:
    flags = ["--model", "deepseek-v3", "--dcp", "8", "--interleave", "64", "--max-num-seqs", "1024"]
    rules = run_json("size", *flags)["rules"]
    assert [rules[rule]["rows"] for rule in ("pr-50484", "0.28")] == [524_288, 65_536]


def test_size_of_deepseek_v4_is_by_layer_type() -> None:
    found = run_json("size", "--model", "deepseek-v4-flash")
    assert {name: layer["area_limit_rows"] for name, layer in found["layers"].items()} == {
        "swaonly": 33_280,
        "c4a": 1_081_856,
        "c128a": 66_048,
    }
    assert "1,081,856" in run("size", "--model", "deepseek-v4-flash")


def test_size_finds_the_knee_and_what_vllm_rejects() -> None:
    found = run_json("size", "--model", "deepseek-v3", "--tp", "8", "--dcp", "3", "--other-peak-gib", "0.25")
    assert found["knee_rows"] == 32_640
    assert found["violations"][0].startswith("dcp-divides-tp")
    text = run("size", "--model", "deepseek-v3", "--tp", "8", "--dcp", "3", "--other-peak-gib", "0.25")
    assert "below 32,640 rows" in text
    assert "rejects this: dcp-divides-tp" in text


def test_chunks_are_planned_and_drawn() -> None:
    batch = ["--seq-lens", "1048576,512x31", "--query-lens", "4096,132x31", "--max-model-len", "1048576"]
    c4a = run_json("chunks", *batch)["layers"]["c4a"]
    assert [[c["start"], c["end"], c["compressed"], c["width"]] for c in c4a["chunks"]] == [
        [0, 4, 262_144, 266_367],
        [4, 32, 128, 387],
    ]
    assert c4a["fixed"]["chunks"] == 8
    best = run_json("chunks", *batch, "--order", "optimal", "--layer", "c4a")["layers"]["c4a"]
    assert best["area_rows"] < c4a["area_rows"]
    assert best["proven_optimal"]
    assert sorted(best["permutation"]) == list(range(32))
    lines = run("chunks", *batch, "--layer", "c4a").splitlines()
    assert lines[0].startswith("c4a: 2 chunks, 1,076,304 rows; limit 1,081,856 rows a chunk")
    # 98.5 % of the limit, 263 of 267 thousand rows of it compressed: 40 characters and the last one for the window.
    assert f"|{'#' * 39}=|  98.5 %" in lines[1]


def test_chunks_can_be_drawn_as_a_picture(tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    batch = ["--seq-lens", "9000x3", "--query-lens", "50x3", "--svg", str(picture)]
    run("chunks", *batch, "--layer", "c4a")
    assert "3 x 2,427 = 7,281" in picture.read_text(encoding="utf-8")
    with pytest.raises(ChunksmithError, match=r"^/dev/full: cannot write: No space left on device\.$"):
        run("chunks", *batch[:-1], "/dev/full", "--layer", "c4a")
    with pytest.raises(UserError, match="--svg: draws one layer type"):
        run("chunks", *batch)


def test_chunks_flag_a_request_wider_than_the_limit() -> None:
    text = run("chunks", "--seq-lens", "100000", "--query-lens", "9", "--layer", "c4a", "--area-limit", "100")
    assert "alone: wider than the limit" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["size", "--model", "kimi-k4"], "did you mean 'kimi-k"),
        (["size", "--model", "kimi-k3", "--block-size", "0"], "block_size must be at least 1, got 0"),
        (["size", "--model", "kimi-k3", "--dcp", "8", "--interleave", "48"], "interleave must divide block_size"),
        (["size", "--model", "kimi-k3", "--other-peak-gib", "-1"], "other_peak_gib must be at least 0"),
        (["size", "--model", "kimi-k3", "--vllm", "new"], "version must look like"),
        (["chunks", "--seq-lens", "5,b", "--query-lens", "5"], "--seq-lens: 'b' is no length"),
        (["chunks", "--seq-lens", "5x999999", "--query-lens", "5"], "--seq-lens: more than 100000 requests"),
        (["chunks", "--seq-lens", "5", "--query-lens", "6"], "query_lens must not exceed seq_lens"),
        (["chunks", "--seq-lens", "5", "--query-lens", "5", "--layer", "c5a"], "unknown layer type 'c5a'"),
        (["chunks", "--seq-lens", "5", "--query-lens", "5", "--order", "best"], "order must be one of"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        run(*arguments)
    assert "\n" not in str(caught.value)


POINT = """\
model: deepseek-v3
vllm: 0.32.0
tensor_parallel_size: 8
max_num_seqs: 1024
mla_workspace_rows: 8192
dtype: bfloat16
gpu: {total_gib: 141, weights_gib: 85, other_peak_gib: 2}
"""


def test_explain_shows_the_steps_the_buffers_and_the_verdict(tmp_path: Path) -> None:
    point = tmp_path / "point.yaml"
    point.write_text(POINT, encoding="utf-8")
    found = run_json("explain", str(point))
    assert found["gpus"] == 8
    assert found["workspace"]["rows"] == 8192
    assert found["fits"]["serves"]
    assert found["unused"] == ["dtype"]
    text = run("explain", str(point))
    assert "8 * max_model_len = 1310720" in text
    assert "= 8,192 rows" in text
    assert "starts: yes" in text
    assert "not part of this arithmetic: dtype" in text


def test_explain_of_deepseek_v4_says_what_a_lower_limit_leaves(tmp_path: Path) -> None:
    point = tmp_path / "point.yaml"
    point.write_text("model: deepseek-v4-flash\nprefill_area_limit: 50000\n", encoding="utf-8")
    steps = run_json("explain", str(point))["workspace"]["steps"]
    assert steps[1] == (
        "21 c4a layers: 1081856 rows reserved, as many for a chunk;"
        " lowered to 50000 rows a chunk, the reservation stays"
    )
    assert "lowered" not in steps[0]


def test_explain_names_what_vllm_rejects(tmp_path: Path) -> None:
    point = tmp_path / "point.yaml"
    point.write_text(POINT + "decode_context_parallel_size: 8\ncp_kv_cache_interleave_size: 48\n", encoding="utf-8")
    found = run_json("explain", str(point))
    assert found["constraints"]["violations"][0].startswith("interleave-divides-block")
    assert found["workspace"] is None
    assert "interleave must divide block_size" in run("explain", str(point))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1", "must be a mapping"),
        ("model: [", "no valid YAML"),
        ("vllm: 0.32.0", "model: is missing"),
        (POINT.replace("max_num_seqs", "max_num_seq"), "unknown key 'max_num_seq'; did you mean 'max_num_seqs'"),
        (POINT + "tp: 4\n", "tp: is given twice"),
        (POINT.replace("1024", "lots"), "max_num_seqs must be a whole number, got 'lots'"),
        (POINT.replace("total_gib", "totl_gib"), "gpu: unknown key 'totl_gib'; did you mean 'total_gib'"),
        (POINT.replace("141", "-1"), "gpu: total_gib: must be a number of GiB, got -1"),
        (POINT.replace("total_gib: 141, ", ""), "gpu: total_gib: is missing"),
        ("model: kimi-k3\ngpu: 5", "gpu: must be a mapping, got 5"),
    ],
)
def test_a_bad_point_names_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    point = tmp_path / "point.yaml"
    point.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message) as caught:
        run("explain", str(point))
    assert str(point) in str(caught.value)


def test_a_missing_point_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        run("explain", str(tmp_path / "none.yaml"))
    with pytest.raises(UserError, match="is a folder"):
        run("explain", str(tmp_path))
