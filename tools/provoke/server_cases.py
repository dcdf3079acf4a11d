"""What happens to a server that is up: it or its parts are killed, stopped, asked for too much, or ended in order."""

from __future__ import annotations

from tools.provoke.case import Case

_SERVER = """
import json, os, signal, socket, subprocess, sys, threading, time, urllib.request
import psutil
with socket.socket() as s:
    s.bind(('127.0.0.1', 0))
    port = s.getsockname()[1]
words = [sys.executable, '-m', 'vllm.entrypoints.cli.main', 'serve', MODEL, '--enforce-eager', '--host', '127.0.0.1',
         '--port', str(port), '--max-model-len', '2048', '--max-num-batched-tokens', '2048', '--served-model-name',
         'tiny']
server = subprocess.Popen(words, start_new_session=True)
def ask(tokens, most=400):
    body = json.dumps({'model': 'tiny', 'prompt': [7] * tokens, 'max_tokens': most, 'ignore_eos': True}).encode()
    headers = {'Content-Type': 'application/json'}
    request = urllib.request.Request(f'http://127.0.0.1:{port}/v1/completions', body, headers)
    try:
        return urllib.request.urlopen(request, timeout=60).status
    except OSError as error:
        return error
def part(name):
    for child in psutil.Process(server.pid).children(recursive=True):
        if name in ' '.join(child.cmdline()) or name in child.name():
            return child
    raise SystemExit(f'no process {name}')
try:
    for _ in range(400):
        time.sleep(1)
        try:
            urllib.request.urlopen(f'http://127.0.0.1:{port}/health', timeout=2)
            break
        except OSError:
            if server.poll() is not None:
                raise SystemExit('the server did not start')
    busy = threading.Thread(target=ask, args=(1500,), daemon=True)
    ACTION
    try:
        sys.exit(server.wait(30) and 0)
    except subprocess.TimeoutExpired:
        sys.exit(0)
finally:
    try:
        os.killpg(server.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


def _server(name: str, label: str, action: str, phase: str = "serve", **env: str) -> Case:
    script = _SERVER.replace("ACTION", action.replace("\n", "\n    "))
    return Case(name=name, label=label, phase=phase, script=script, env=env, timeout_s=600.0)


CASES = (
    _server("core-is-killed", "engine_dead", "busy.start(); time.sleep(0.7)\npart('EngineCore').kill()\ntime.sleep(5)"),
    _server("core-is-killed-idle", "engine_dead", "part('EngineCore').kill()\ntime.sleep(3)\nask(10)\ntime.sleep(3)"),
    _server("worker-is-killed", "engine_dead", "busy.start(); time.sleep(0.7)\npart('Worker').kill()\ntime.sleep(8)"),
    _server(
        "worker-segfaults",
        "worker_segfault",
        "busy.start(); time.sleep(0.7)\npart('Worker').send_signal(signal.SIGSEGV)\ntime.sleep(8)",
        PYTHONFAULTHANDLER="1",
    ),
    _server(
        "worker-is-stopped",
        "hang_shm_broadcast",
        "part('Worker').send_signal(signal.SIGSTOP)\nbusy.start()\ntime.sleep(30)",
        VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS="12",
        VLLM_RINGBUFFER_WARNING_INTERVAL="4",
    ),
    _server("server-is-asked-too-much", "bad_request_too_long", "ask(3000)\ntime.sleep(1)\nserver.terminate()"),
    _server("server-ends-in-order", "none", "ask(100, 20)\nserver.terminate()", phase="stop"),
    _server("server-is-interrupted", "none", "ask(100, 20)\nserver.send_signal(signal.SIGINT)", phase="stop"),
)
