from __future__ import annotations

import errno
import os
import subprocess
import sys
import time

import pytest

from orchestrator.cli import app as cli
from orchestrator.errors import ChunksmithError, UserError


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> int:
    """Exit code of a command line whose (faulty) command raises ``error``."""

    def faulty_app(arguments: list[str], **_: object) -> None:
        raise error

    monkeypatch.setattr(cli, "app", faulty_app)
    return cli.main([])


@pytest.mark.parametrize(
    ("error", "exit_code", "line"),
    [
        (ChunksmithError("engine is gone"), 1, "chunksmith: error: engine is gone\n"),
        (UserError("demo.yaml: no such\n  file"), 2, "chunksmith: error: demo.yaml: no such file\n"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/r/x"),
            1,
            "chunksmith: error: No space left on device: /r/x\n",
        ),
        (OSError(errno.EROFS, "Read-only file system", "/r"), 1, "chunksmith: error: Read-only file system: /r\n"),
        (PermissionError(errno.EACCES, "Permission denied", "/r"), 1, "chunksmith: error: Permission denied: /r\n"),
        (
            ModuleNotFoundError("No module named 'ray.tune'", name="ray.tune"),
            1,
            "chunksmith: error: the library 'ray' is missing; see: chunksmith doctor\n",
        ),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_expected_trouble_is_one_line_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    exit_code: int,
    line: str,
) -> None:
    assert failing(monkeypatch, error) == exit_code
    assert capsys.readouterr() == ("", line)


@pytest.mark.parametrize(
    "error",
    [
        KeyError("bug"),
        OSError(errno.ENOENT, "No such file or directory", "/r"),
        ModuleNotFoundError("No module named 'orchestrator.gone'", name="orchestrator.gone"),
    ],
)
def test_a_programming_error_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    with pytest.raises(type(error)):
        failing(monkeypatch, error)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--hlp"], "No such option: --hlp (Possible options: --help)"),
        (["docter"], "No such command 'docter'. Did you mean 'doctor'?"),
        (["model", "--layer", "3"], "No such option: --layer (Possible options: --layers)"),
        (["model", "--layers", "0"], "layers must be at least 1, got 0"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_with_the_nearest_match(
    capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    assert cli.main(arguments) == 2
    assert capsys.readouterr() == ("", f"chunksmith: error: {line}\n")


def test_without_arguments_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    assert capsys.readouterr().out.startswith("Usage: chunksmith [OPTIONS] COMMAND")


def test_help_is_quick_because_no_heavy_library_is_imported() -> None:
    program = (
        "import sys; from orchestrator.cli import main; code = main(['--help']);"
        "heavy = {'numpy', 'pandas', 'pyarrow', 'ray', 'torch', 'vllm', 'optuna', 'scipy'} & set(sys.modules);"
        "sys.exit(f'imported: {sorted(heavy)}' if heavy else code)"
    )
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "doctor" in done.stdout
    # 0.1 s on an idle machine; the bound leaves room for a busy one, and no heavy library fits into it.
    assert time.monotonic() - started < 2


def test_a_reader_that_goes_away_leaves_no_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator.cli", "--help"], stdout=write, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(write)
    assert done.stderr == b""
