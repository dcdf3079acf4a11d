"""Other load generators, each run as its own command against a server that is already there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from benchmarks._vllm_side import _vllm
from orchestrator.engines.serve import names_environment
from orchestrator.engines.vllm import QUIET_ENV
from orchestrator.errors import ChunksmithError

GUIDELLM = "guidellm==0.8.1"
"""The version whose command line and report are known here."""

_TIMEOUT_S = 1800.0


@dataclass(frozen=True, kw_only=True)
class OfferedLoad:
    """Requests at even distances; lengths in tokens."""

    rate: float
    requests: int
    input_len: int
    output_len: int


@dataclass(frozen=True, kw_only=True)
class ClientRun:
    """What a client says of itself: TTFT in milliseconds of the requests that ended well, and how many did not."""

    ttft_ms: Sequence[float]
    failed: int


def run_vllm_bench(url: str, model: str, load: OfferedLoad, tokenizer: Path, folder: Path) -> ClientRun:
    """``vllm bench serve`` with random prompts at a constant rate (burstiness inf). Raises ChunksmithError."""
    words = ["bench", "serve", "--backend", "openai", "--base-url", url, "--model", model]
    words += ["--tokenizer", str(tokenizer), "--dataset-name", "random", "--num-prompts", str(load.requests)]
    words += ["--random-input-len", str(load.input_len), "--random-output-len", str(load.output_len)]
    words += ["--request-rate", str(load.rate), "--burstiness", "inf", "--ignore-eos", "--disable-tqdm"]
    words += ["--ready-check-timeout-sec", "0", "--save-result", "--save-detailed"]
    words += ["--result-dir", str(folder), "--result-filename", "vllm.json"]
    _run([_vllm(), *words], {**os.environ, **QUIET_ENV, **names_environment(folder)}, folder / "vllm.log", folder)
    result = json.loads((folder / "vllm.json").read_text())
    ended = [ttft for ttft, error in zip(result["ttfts"], result["errors"], strict=True) if not error]
    return ClientRun(ttft_ms=[ttft * 1e3 for ttft in ended], failed=int(result["failed"]))


def make_guidellm(folder: Path) -> Path:
    """A virtual environment with GuideLLM; an existing one is used as it is. Returns its command."""
    command = folder / "bin" / "guidellm"
    if command.exists():
        return command
    log = folder.with_suffix(".log")
    _run([sys.executable, "-m", "venv", str(folder)], dict(os.environ), log, folder.parent)
    # GuideLLM needs torch for its data loader alone: the build that is here already spares gigabytes of CUDA.
    torch = f"torch=={metadata.version('torch')}"
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", GUIDELLM, torch]
    _run(pip, dict(os.environ), log, folder.parent)
    return command


def run_guidellm(command: Path, url: str, model: str, load: OfferedLoad, tokenizer: Path, folder: Path) -> ClientRun:
    """``guidellm run`` with the constant profile. Its prompts come from a file: its own synthetic ones need a tokenizer
    that knows English words. Raises ChunksmithError."""
    prompts, report = folder / "prompts.jsonl", folder / "guidellm.json"
    with prompts.open("w") as lines:
        for number in range(load.requests):
            text = " ".join(f"w{number + word}" for word in range(load.input_len))
            lines.write(json.dumps({"prompt": text, "output_tokens_count": load.output_len}) + "\n")
    words = ["run", "--backend", f"kind=openai_http,target={url},model={model},request_format=/v1/completions"]
    words += ["--profile", f"kind=constant,rate={load.rate:g}", "--data", f"kind=json_file,path={prompts}"]
    words += ["--constraint", f"kind=max_requests,count={load.requests}"]
    words += ["--tokenizer", f"kind=huggingface_auto,model={tokenizer}"]
    words += ["--output", f"kind=json,path={report}", "--disable-console"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    _run([str(command), *words], environment, folder / "guidellm.log", folder)
    (benchmark,) = json.loads(report.read_text())["benchmarks"]
    ended = [float(request["time_to_first_token_ms"]) for request in benchmark["requests"]["successful"]]
    failed = sum(len(benchmark["requests"][kind]) for kind in ("errored", "incomplete"))
    return ClientRun(ttft_ms=ended, failed=failed)


def _run(command: Sequence[str], environment: Mapping[str, str], log: Path, folder: Path) -> None:
    with log.open("a") as output:
        done = subprocess.run(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            cwd=folder,
            timeout=_TIMEOUT_S,
            check=False,
        )
    if done.returncode != 0:
        lines = log.read_text(errors="replace").strip().splitlines() or [""]
        raise ChunksmithError(f"{Path(command[0]).name}: exit code {done.returncode}: {lines[-1]} (output: {log})")
