"""Stands for ``vllm serve`` where only starting and stopping matter: serving_child.py MODEL --host HOST --port PORT.

It answers /v1/models, and keeps a process of its own that would outlive it. MODEL ``broken`` ends at once.
"""

from __future__ import annotations

import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import metadata


class Models(BaseHTTPRequestHandler):
    """The list of models, with one."""

    def do_GET(self) -> None:
        body = json.dumps({"data": [{"id": sys.argv[1]}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    model, _, host, _, port = sys.argv[1:]
    if model == "broken":
        sys.exit("ValueError: no such model")
    print(f"vllm {metadata.version('vllm')}", flush=True)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(f"child {child.pid}", flush=True)
    HTTPServer((host, int(port)), Models).serve_forever()
