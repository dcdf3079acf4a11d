"""Ask a running ``vllm serve`` what is really in force, and append the answer to a file as one line of JSON.

Run as ``python _probe.py URL FILE`` by ``vllm bench sweep serve --after-bench-cmd``, once a point, so it imports
little. It calls the worker extension through vLLM's development route ``/collective_rpc``, which that sweep opens.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path

METHOD = "chunksmith_worker_report"


def main(url: str, file: str) -> None:
    """Append the report of the first worker."""
    body = json.dumps({"method": METHOD}).encode()
    request = urllib.request.Request(
        f"{url}/collective_rpc", data=body, headers={"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        report = json.load(answer)["results"][0]
    with Path(file).open("a") as lines:
        lines.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
