"""What every command has in common: an example, ``--json``, ``--quiet``, errors, colours and completion."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import fsspec
import pytest
import typer
import yaml

from orchestrator import cluster
from orchestrator.analysis.export import FORMATS
from orchestrator.cli import main
from orchestrator.cli.app import app
from orchestrator.cli.output import may_colour
from orchestrator.engines.faulty import FaultyEngine
from tests.analysis.runs import Run
from tests.sweep.studies import content

ROOT = Path(__file__).parents[2]
RUN = str(ROOT / "results/data/cpu-demo")
EARLIER = str(ROOT / "results/data/cpu-demo-earlier")
SPEC = str(ROOT / "search_spaces/cpu_demo.yaml")

READS: dict[str, list[str]] = {
    "best": [RUN],
    "knee": [RUN],
    "sensitivity": [RUN],
    "why": [RUN],
    "compare": [EARLIER, RUN],
    "frontier": ["decoding"],
    "size": ["--model", "kimi-k3"],
    "chunks": ["--seq-lens", "65536x16", "--query-lens", "512x16"],
    "explain": ["point.yaml"],
    "validate": [SPEC],
    "records check": ["copy"],
    "records compact": ["copy"],
    "records merge": ["copy", "--into", "merged"],
    "records export": ["copy", "-o", "tables"],
    "records mirror": ["copy", "--to", "memory://results"],
    "records fetch": ["memory://runs/copy", "--into", "merged"],
}
"""Commands that end within a second or two and start nothing, with what to give them."""

TAKES_LONG = {"doctor", "sweep", "soak", "bench"}
"""Have ``--json`` too: their own tests and the ones below call it."""

NO_JSON = {
    "model": "its answer is a path",
    "report": "its answer is a path",
    "export": "its answer is a file's text",
    "init": "its answer is a spec's path",
    "dashboard": "its answer is an address",
}

NOTES = {
    "knee": "The knee is the smallest workspace",
    "compare": "all intervals hold at once",
    "validate": "cost: engine starts",
}
"""What ``--quiet`` leaves out."""


def commands(group: typer.Typer, prefix: str = "") -> Iterator[str]:
    for command in group.registered_commands:
        yield f"{prefix}{command.name or getattr(command.callback, '__name__', '')}"
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        yield from commands(inner.typer_instance, f"{inner.name!s} ")


ALL = sorted(commands(app))
Print = Callable[..., str]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(RUN, "copy")
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.put("copy", "/runs/", recursive=True)
    decoding = Run(Path("decoding"))
    decoding.finalist(0, 0.9, baseline={"median_tpot_ms": 5.0, "output_throughput": 9.0})
    Path("point.yaml").write_text("model: deepseek-v3\nmax_num_seqs: 64\n")


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Print:
    """Runs a command that ends well; gives what it printed on standard output. On the other it may print notes."""

    def run(name: str, *arguments: str) -> str:
        capsys.readouterr()
        assert main([*name.split(), *arguments]) == 0
        return capsys.readouterr().out

    return run


def test_no_command_is_forgotten_here() -> None:
    assert {*READS, *TAKES_LONG, *NO_JSON, "watch"} == set(ALL)


@pytest.mark.parametrize("name", ALL)
def test_help_shows_an_example_and_the_shared_options(name: str, printed: Print) -> None:
    shown = printed(name, "--help")
    assert f"Example: chunksmith {name} " in f"{' '.join(shown.split())} "
    assert "-q, --quiet" in shown
    assert ("--json" in shown) == (name not in NO_JSON)


@pytest.mark.parametrize("name", READS)
def test_json_is_one_document_with_and_without_quiet(name: str, printed: Print) -> None:
    first = json.loads(printed(name, *READS[name], "--json"))
    if name in ("records merge", "records fetch"):
        shutil.rmtree("merged")
    if name not in ("records compact", "records mirror"):
        assert json.loads(printed(name, *READS[name], "--json", "--quiet")) == first


@pytest.mark.parametrize("name", NOTES)
def test_quiet_leaves_the_answer_alone(name: str, printed: Print) -> None:
    told, quiet = printed(name, *READS[name]), printed(name, *READS[name], "--quiet")
    assert NOTES[name] in told
    assert NOTES[name] not in quiet
    assert quiet.strip()
    assert set(quiet.splitlines()) <= set(told.splitlines())


def test_quiet_ends_with_its_command(printed: Print) -> None:
    quiet = printed("knee", RUN, "-q")
    assert len(printed("knee", RUN)) > len(quiet)


def test_export_and_watch_are_quiet_too(printed: Print, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", RUN, "--quiet", "-o", "serve.sh"]) == 0
    assert capsys.readouterr() == ("", "")
    trials = [json.loads(line) for line in printed("watch", RUN, "--json").splitlines()]
    answer = json.loads(printed("watch", RUN, "--json", "--quiet"))
    assert len(trials) == 25
    assert trials[-1] == answer
    assert answer["trial"] == json.loads(printed("best", RUN, "--json"))["trial"]
    assert printed("watch", RUN, "--quiet") == printed("best", RUN)


@pytest.fixture
def _engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: engines that are none, in place of Ray's."""

    class FaultyRayEngine(FaultyEngine):
        def __init__(self, log_dir: Path, **_: object) -> None:
            super().__init__(None)
            self.engine_id, self.log_path = "faulty-0", str(log_dir / "faulty-0.log")

    monkeypatch.setattr(cluster, "RayEngine", FaultyRayEngine)
    monkeypatch.setattr(cluster, "ray_session", lambda *_, **__: nullcontext())
    monkeypatch.setattr(cluster, "engines_that_fit", lambda most, **_: most)


@pytest.mark.usefixtures("_engines")
def test_a_sweep_and_a_soak_keep_standard_output_for_the_answer(
    printed: Print, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("spec.yaml").write_text(yaml.safe_dump(content(), sort_keys=False))
    answer = json.loads(printed("sweep", "spec.yaml", "--json"))
    assert answer == json.loads(printed("best", "runs/small", "--json"))
    assert main(["sweep", "spec.yaml", "--run", "again", "--json"]) == 0
    assert "trial 5 (6 of " in capsys.readouterr().err
    quiet = printed("sweep", "spec.yaml", "--run", "quiet", "--quiet")
    assert quiet.startswith(("Winner", "No clear winner"))
    assert capsys.readouterr().err == ""
    soaked: dict[str, Any] = json.loads(printed("soak", "runs/small", "--trial", "0", "--json", "--quiet"))
    assert (soaked["trial"], soaked["batch"]) == (0, None)


def on_a_terminal(*arguments: str, **env: str) -> bytes:
    """What the command writes to a terminal."""
    ours, theirs = pty.openpty()
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrator.cli", *arguments],
        stdout=theirs,
        stderr=theirs,
        stdin=theirs,
        cwd=ROOT,
        env={**plain, "TERM": "xterm", **env},
    )
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:
        pass  # how Linux tells that the other side of a terminal is closed
    finally:
        os.close(ours)
        process.wait(60)
    return shown


def test_an_error_is_coloured_on_a_terminal_alone() -> None:
    assert on_a_terminal("docter") == (
        b"chunksmith: \x1b[31m\x1b[1merror:\x1b[0m No such command 'docter'. Did you mean 'doctor'?\r\n"
    )
    assert b"\x1b" not in on_a_terminal("docter", NO_COLOR="1")


@pytest.mark.parametrize(
    ("env", "may"), [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)]
)
def test_what_may_be_coloured(env: dict[str, str], may: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty NO_COLOR is none, by the convention's own words."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        assert may_colour(terminal) == may
    os.close(ours)
    with Path("file").open("w") as file:
        assert not may_colour(file)


def test_an_answer_has_no_colour_with_no_color() -> None:
    # Bold is no colour.
    assert b"\x1b[1mWinner" in on_a_terminal("best", RUN, NO_COLOR="1")


def completed(words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What bash would be offered after these words; the last one is what was typed of the next."""
    parts = ["chunksmith", *words.split(" ")]
    monkeypatch.setenv("_CHUNKSMITH_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(parts))
    monkeypatch.setenv("COMP_CWORD", str(len(parts) - 1))
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main([])
    return capsys.readouterr().out.split()


def test_the_shell_completes_commands_runs_specs_and_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def offered(words: str) -> list[str]:
        return completed(words, monkeypatch, capsys)

    shutil.copytree("copy", "runs/one")
    Path("runs/notes").mkdir()
    Path("mine.yaml").touch()
    Path("search_spaces").mkdir()
    Path("search_spaces/theirs.yaml").touch()
    assert offered("va") == ["validate"]
    assert offered("records c") == ["check", "compact"]
    assert offered("best ") == ["runs/one"]
    assert offered("best co") == ["copy"]
    assert offered("records check runs/") == ["runs/one"]
    assert offered("validate ") == ["mine.yaml", "point.yaml", "search_spaces/theirs.yaml"]
    assert offered("size --model kimi") == ["kimi-k2", "kimi-k3"]
    assert sorted(offered("export copy --format ")) == sorted(FORMATS)
    assert offered("best copy --js") == ["--json"]
