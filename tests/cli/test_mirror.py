"""Records in an object storage, as typed: a sweep that mirrors them, and the commands that read them there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pandas as pd
import pytest
import yaml

from orchestrator import cluster
from orchestrator.cli import main
from orchestrator.engines.faulty import FaultyEngine
from orchestrator.records import SCHEMAS, RunFolder
from orchestrator.records.remote import Place
from tests import s3
from tests.sweep.studies import content, require_no_duplicates

Outcome = tuple[int, str, str]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3.s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a new bucket."""
    s3.use(endpoint, monkeypatch)
    return s3.make_bucket(endpoint, "results")


@pytest.fixture(autouse=True)
def _engines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Fault: engines that are none, in place of Ray's."""
    monkeypatch.chdir(tmp_path)

    class FaultyRayEngine(FaultyEngine):
        def __init__(self, log_dir: Path, **_: object) -> None:
            super().__init__(None)
            self.engine_id, self.log_path = "faulty-0", str(log_dir / "faulty-0.log")

    monkeypatch.setattr(cluster, "RayEngine", FaultyRayEngine)
    monkeypatch.setattr(cluster, "ray_session", lambda *_, **__: nullcontext())
    monkeypatch.setattr(cluster, "engines_that_fit", lambda most, **_: most)
    Path("spec.yaml").write_text(yaml.safe_dump(content(), sort_keys=False))


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs a command; gives its exit code, its output and its errors."""

    def run(*words: str) -> Outcome:
        exit_code = main(list(words))
        return (exit_code, *capsys.readouterr())

    return run


def test_a_sweep_into_s3_and_its_records_read_there(
    typed: Callable[..., Outcome], bucket: str, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exit_code, output, error = typed("sweep", "spec.yaml", "--mirror", f"{bucket}/runs")
    assert (exit_code, error) == (0, "")
    address = f"{bucket}/runs/small"
    assert f"records go to {address} too" in output
    for table in SCHEMAS:
        there = pd.read_parquet(f"{address}/{table}", storage_options={"endpoint_url": endpoint})
        assert len(there) == len(pd.read_parquet(f"runs/small/{table}"))
    for words in (["best"], ["records", "check"]):
        assert typed(*words, address, "--json") == typed(*words, "runs/small", "--json"), words
    assert typed("records", "mirror", "runs/small")[1] == f"{address}: 2 sent\n"
    # No secret is written or shown.
    written = b"".join(path.read_bytes() for path in Path().rglob("*") if path.is_file())
    assert s3.SECRET.encode() not in written
    assert s3.SECRET not in output


def test_every_command_that_reads_takes_an_address(typed: Callable[..., Outcome], tmp_path: Path) -> None:
    target = f"file://{tmp_path}/there"
    assert typed("sweep", "spec.yaml", "--mirror", target)[0] == 0
    address = f"{target}/small"
    for words in (["best"], ["knee"], ["sensitivity"], ["why"], ["records", "check"]):
        assert typed(*words, address, "--json") == typed(*words, "runs/small", "--json"), words
    assert typed("compare", "runs/small", address)[0] == 0
    assert typed("records", "merge", "runs/small", address, "--into", "both")[0] == 0
    assert typed("report", address)[1] == "small.html\n"
    assert Path("small.html").stat().st_size > 10_000
    assert typed("records", "fetch", address, "--into", "copy")[:2] == (0, f"{Path('copy').resolve()}\n")
    require_no_duplicates(RunFolder("copy"))


def test_export_into_s3(typed: Callable[..., Outcome], bucket: str, endpoint: str) -> None:
    assert typed("sweep", "spec.yaml", "--quiet")[0] == 0
    exit_code, output, _ = typed("records", "export", "runs/small", "-o", f"{bucket}/tables", "--format", "parquet")
    assert (exit_code, output.split()) == (0, [f"{bucket}/tables/{table}.parquet" for table in SCHEMAS])
    there = pd.read_parquet(f"{bucket}/tables/blocks.parquet", storage_options={"endpoint_url": endpoint})
    assert len(there) == len(pd.read_parquet("runs/small/blocks"))


@pytest.mark.parametrize(
    ("mirror", "line"),
    [
        ("s4://results/runs", "--mirror: 's4://results/runs': unknown kind of address 's4'; did you mean 's3'?"),
        ("runs", "--mirror: 'runs' is no address; allowed: s3://BUCKET/FOLDER, "),
        (
            "s3://KEY:hushhush@results",
            "--mirror: 's3://KEY@results': a password or key does not belong into an address",
        ),
        ("s3://nobody", "s3://nobody/small: The specified bucket does not exist"),
        ("gs://results", "gs://results/small: its driver is missing: pip install gcsfs"),
    ],
)
def test_a_wrong_address_is_one_line_before_any_engine_starts(
    typed: Callable[..., Outcome], bucket: str, mirror: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "ray_session", None)
    exit_code, _, error = typed("sweep", "spec.yaml", "--mirror", mirror)
    assert exit_code == 2
    assert error.startswith(f"chunksmith: error: {line}")
    assert error.count("\n") == 1
    assert "hushhush" not in error
    assert not Path("runs/small").exists()


def test_a_wrong_address_in_the_spec_names_file_and_key(typed: Callable[..., Outcome]) -> None:
    Path("spec.yaml").write_text(yaml.safe_dump(content(mirror="s3:/results"), sort_keys=False))
    for words in (["sweep"], ["validate"]):
        exit_code, _, error = typed(*words, "spec.yaml")
        assert exit_code == 2
        assert error.startswith("chunksmith: error: spec.yaml: mirror: 's3:/results' is no address; allowed: ")


def test_a_resumed_sweep_goes_on_where_it_was_mirrored(
    typed: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = f"file://{tmp_path}/there"
    Path("spec.yaml").write_text(yaml.safe_dump(content(mirror=target), sort_keys=False))
    assert typed("sweep", "spec.yaml")[0] == 0
    Place(f"{target}/small").remove({"trials/merged-00000.parquet"})
    assert typed("sweep", "spec.yaml", "--resume")[0] == 0
    assert json.loads(typed("best", f"{target}/small", "--json")[1])
    assert typed("sweep", "--resume", "--mirror", f"{target}/2")[0] == 0
    assert json.loads(typed("best", f"{target}/2/small", "--json")[1])
    path = tmp_path / "there/2/small/trials/merged-00000.parquet"
    path.unlink()
    assert typed("sweep", "--resume", "--mirror", "none")[0] == 0
    assert not path.exists()
    assert typed("sweep", "--resume")[0] == 0
    assert len(pd.read_parquet(path.parent)) == len(pd.read_parquet("runs/small/trials"))


def test_another_run_of_the_name_is_turned_away(typed: Callable[..., Outcome], tmp_path: Path) -> None:
    target = f"file://{tmp_path}/there"
    assert typed("sweep", "spec.yaml", "--mirror", target)[0] == 0
    exit_code, _, error = typed("sweep", "spec.yaml", "--run", "other/small", "--mirror", target)
    assert exit_code == 2
    assert error.startswith(f"chunksmith: error: {target}/small: holds the records of another run; ")
    assert not Path("other/small").exists()


@pytest.mark.parametrize("words", [["watch"], ["dashboard"], ["soak"], ["records", "compact"], ["records", "mirror"]])
def test_commands_that_work_in_the_run_folder_say_so(typed: Callable[..., Outcome], words: list[str]) -> None:
    exit_code, _, error = typed(*words, "s3://results/runs/small")
    assert exit_code == 2
    assert error == (
        "chunksmith: error: s3://results/runs/small: is an address; this command needs the run folder itself.\n"
    )


def test_mistakes_about_mirrors_are_one_line(typed: Callable[..., Outcome], tmp_path: Path) -> None:
    RunFolder.create("empty", spec="study: demo\n")
    for words, line in (
        (["records", "mirror", "empty"], "empty: has no mirror yet; say where by --to, for instance "),
        (["records", "mirror", "empty", "--to", "x"], "--to: 'x' is no address; allowed: "),
        (["records", "check", f"file://{tmp_path}/there", "--repair"], f"file://{tmp_path}/there: holds no run; "),
        (["best", f"file://{tmp_path}/there"], f"file://{tmp_path}/there: holds no run; the address of a run ends "),
    ):
        exit_code, _, error = typed(*words)
        assert (exit_code, error.count("\n")) == (2, 1)
        assert error.startswith(f"chunksmith: error: {line}")


def test_damage_at_the_address_is_named_there_and_mended(typed: Callable[..., Outcome], tmp_path: Path) -> None:
    target = f"file://{tmp_path}/there"
    assert typed("sweep", "spec.yaml", "--mirror", target)[0] == 0
    path = tmp_path / "there/small/blocks/merged-00000.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    exit_code, output, error = typed("records", "check", f"{target}/small")
    assert exit_code == 1
    assert f"{target}/small/blocks/merged-00000.parquet is damaged" in output
    assert f"{target}/small/blocks/merged-00000.parquet is damaged" in error
    assert "records mirror RUN --verify" in error
    assert "/chunksmith-" not in output + error
    found = json.loads(typed("records", "check", f"{target}/small", "--json")[1])
    assert [fault["file"] for table in found for fault in table["faults"]] == [
        f"{target}/small/blocks/merged-00000.parquet"
    ]
    exit_code, _, error = typed("records", "check", f"{target}/small", "--repair")
    assert (exit_code, "is an address; --repair needs the run folder" in error) == (2, True)
    assert typed("records", "mirror", "runs/small", "--verify")[0] == 0
    assert path.read_bytes() == whole
    local = Path("runs/small/blocks/merged-00000.parquet")
    local.write_bytes(whole[:-9])
    exit_code, _, error = typed("records", "mirror", "runs/small")
    assert exit_code == 1
    assert "blocks/merged-00000.parquet: is damaged, and was not sent" in error
    assert path.read_bytes() == whole
