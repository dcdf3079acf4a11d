"""Failures of vLLM on a CPU, with the tiny model or a spoiled copy of it."""

from __future__ import annotations

from typing import Any

from tools.provoke.case import Case

_SERVE = "{python} -m vllm.entrypoints.cli.main serve {model} --enforce-eager --port 0"
_IN_ONE_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
_SETTINGS = {"enforce_eager": True, "max_model_len": 1024, "max_num_batched_tokens": 1024, "max_num_seqs": 4}


def _engine(**arguments: Any) -> str:
    """A script that starts an engine in this process; ``MODEL`` is its folder."""
    return f"from vllm import LLM\nLLM(model=MODEL, **{ {**_SETTINGS, **arguments}!r})"


def _argument(name: str, words: str) -> Case:
    return Case(name=name, label="bad_argument", phase="start", command=f"{_SERVE} {words}")


def _config(name: str, label: str = "invalid_config", **arguments: Any) -> Case:
    return Case(name=name, label=label, phase="start", script=_engine(**arguments), env=_IN_ONE_PROCESS)


def _model(name: str, model: str, label: str = "model_or_tokenizer_missing") -> Case:
    return Case(name=name, label=label, phase="start", script=_engine(), env=_IN_ONE_PROCESS, model=model)


CASES = (
    Case(name="no-metadata", label="version_mismatch", phase="start", command=_SERVE, named=False),
    _argument("unknown-flag", "--mla-chunk-rows 4096"),
    _argument("not-a-number", "--max-num-seqs many"),
    _argument("no-such-choice", "--dtype float7"),
    _argument("value-forgotten", "--max-model-len"),
    Case(
        name="keyword-of-llm",
        label="bad_argument",
        phase="start",
        script="from vllm import LLM\nLLM(MODEL, chunk_rows=4096)",
    ),
    Case(
        name="additional-config-not-json",
        label="invalid_config",
        phase="start",
        command=f"{_SERVE} --additional-config {{{{workspace",
    ),
    _config("longer-than-derived", max_model_len=1 << 20),
    _config("heads-not-divisible", tensor_parallel_size=3, distributed_executor_backend="mp"),
    _config("negative-tokens", max_num_batched_tokens=-4),
    _config("utilization-above-one", gpu_memory_utilization=1.7),
    _config("tokens-below-seqs", max_num_batched_tokens=8, max_num_seqs=64),
    _config("no-chunks-and-too-few-tokens", enable_chunked_prefill=False, max_num_batched_tokens=512),
    _config("unknown-load-format", load_format="tape"),
    _config("unknown-kv-type", kv_cache_dtype="fp3"),
    _config("dcp-beyond-tp", "unsupported_backend_or_dcp", decode_context_parallel_size=4),
    Case(
        name="numa-nodes",
        label="invalid_config",
        phase="start",
        env={"VLLM_CPU_OMP_THREADS_BIND": "auto"},
        script=_engine(tensor_parallel_size=2),
    ),
    _model("sparse-attention", "sparse", "unsupported_backend_or_dcp"),
    Case(
        name="context-parallel",
        label="unsupported_backend_or_dcp",
        phase="start",
        script=_engine(tensor_parallel_size=2, decode_context_parallel_size=2),
    ),
    _config("unknown-quantization", "quantization_or_kernel_unsupported", quantization="int3"),
    _config("quantization-without-weights", "quantization_or_kernel_unsupported", quantization="awq_marlin"),
    _config("bitsandbytes", "quantization_or_kernel_unsupported", quantization="bitsandbytes"),
    _model("fp8-blocks", "fp8", "quantization_or_kernel_unsupported"),
    _model("no-config", "no-config"),
    _model("torn-config", "torn-config"),
    _model("no-tokenizer", "no-tokenizer"),
    _model("no-weights", "no-weights"),
    _model("cut-weights", "cut-weights"),
    _model("pointer-weights", "pointer-weights"),
    _model("missing-shard", "missing-shard"),
    Case(
        name="no-such-folder",
        label="model_or_tokenizer_missing",
        phase="start",
        script="from vllm import LLM\nLLM('/models/deepseek-v9')",
    ),
    Case(
        name="hub-is-offline",
        label="model_or_tokenizer_missing",
        phase="start",
        script="from vllm import LLM\nLLM('nobody/no-such-model')",
    ),
    Case(
        name="gated-repository",
        label="permission_or_hf_gated",
        phase="start",
        env={"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"},
        script="""
import os, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
class Hub(BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.send_response(403)
        self.send_header('X-Error-Code', 'GatedRepo')
        self.send_header('X-Error-Message', 'Access to model org/gated is restricted. You must log in.')
        self.send_header('Content-Length', '0')
        self.end_headers()
    do_GET = do_POST = do_HEAD
    def log_message(self, *_): pass
hub = HTTPServer(('127.0.0.1', 0), Hub)
threading.Thread(target=hub.serve_forever, daemon=True).start()
os.environ['HF_ENDPOINT'] = f'http://127.0.0.1:{hub.server_port}'
from huggingface_hub import hf_hub_download
hf_hub_download('org/gated', 'config.json')
""",
    ),
    Case(
        name="files-of-another-user",
        label="permission_or_hf_gated",
        phase="start",
        as_nobody=True,
        model="hidden",
        script="from safetensors import safe_open\nimport json\njson.load(open(MODEL + '/config.json'))",
    ),
    _model("unknown-model-type", "new-type", "version_mismatch"),
    _model("unknown-architecture", "new-architecture", "version_mismatch"),
    Case(
        name="kv-cache-for-less-than-one-request",
        label="kv_cache_too_small",
        phase="profile",
        env={"VLLM_CPU_KVCACHE_SPACE": ""},
        script="import os\nos.environ.pop('VLLM_CPU_KVCACHE_SPACE')\n"
        + _engine(kv_cache_memory_bytes=1 << 20, max_model_len=65536, max_num_batched_tokens=65536),
    ),
    Case(
        name="kv-cache-beyond-memory",
        label="no_available_memory_for_cache_blocks",
        phase="profile",
        env={"VLLM_CPU_KVCACHE_SPACE": "4000"},
        script=_engine(),
    ),
    Case(
        name="memory-is-taken",
        label="gpu_memory_busy_at_start",
        phase="start",
        env={"VLLM_CPU_KVCACHE_SPACE": ""},
        script="import os\nos.environ.pop('VLLM_CPU_KVCACHE_SPACE')\n" + _engine(gpu_memory_utilization=1.0),
    ),
    Case(
        name="engine-in-little-shared-memory",
        label="shm_too_small",
        phase="start",
        shared_mb=4,
        script=_engine(tensor_parallel_size=2),
    ),
    Case(
        name="engine-without-a-compiler",
        label="triton_or_compile_failure",
        phase="profile",
        env={**_IN_ONE_PROCESS, "CXX": "/nonexistent/c++", "VLLM_DISABLE_COMPILE_CACHE": "1"},
        script=_engine(enforce_eager=False),
    ),
    Case(
        name="server-port",
        label="port_in_use",
        phase="start",
        script="import os, socket, sys\na = socket.socket(); a.bind(('127.0.0.1', 0)); a.listen()\n"
        "a.set_inheritable(True)\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'vllm.entrypoints.cli.main', 'serve', MODEL, '--host', "
        "'127.0.0.1', '--port', str(a.getsockname()[1])])",
    ),
    Case(
        name="request-too-long",
        label="bad_request_too_long",
        phase="serve",
        env=_IN_ONE_PROCESS,
        script=_engine() + ".generate({'prompt_token_ids': [5] * 3000})",
    ),
    # What sounds as if it could not be, and is.
    _config("healthy-fp8-kv-cache", "none", kv_cache_dtype="fp8"),
    _config("healthy-gpu-attention-backend", "none", attention_backend="FLASHMLA"),
    Case(
        name="healthy-engine",
        label="none",
        phase="stop",
        script=_engine() + ".generate({'prompt_token_ids': [5] * 30})",
    ),
    Case(
        name="healthy-engine-in-one-process",
        label="none",
        phase="stop",
        env=_IN_ONE_PROCESS,
        script=_engine() + ".generate({'prompt_token_ids': [5] * 30})",
    ),
)
