"""Trials whose records say enough to plan their blocks anew."""

from __future__ import annotations

import json
from typing import Any

from orchestrator.records import write_rows
from tests.analysis.runs import Run
from tests.records.rows import plain_row


def engine(engine_id: str = "engine-1", **changes: Any) -> dict[str, Any]:
    """An entry of ``provenance.json``."""
    in_force = {"max_num_batched_tokens": 1024, "max_num_seqs": 4, "prefill_chunk_size": 4}
    found = {
        "engine_id": engine_id,
        "version": "0.32.0",
        "max_model_len": 8192,
        "block_size": 64,
        "dcp": 1,
        "interleave": 1,
        "index_topk": None,
        "in_force": in_force,
        "resolved": {},
        "node": {"gpus": []},
    }
    return found | changes


def record(run: Run, trial: int, prompts: list[int], *engines: dict[str, Any], **of_role: dict[str, Any]) -> None:
    """A pair of blocks with their requests, and the engines that served them."""
    run.trial(trial, pairs=1, engine_id="engine-1", workspace_rows=of_role["candidate"].get("workspace_rows"))
    for block, role in enumerate(("baseline", "candidate")):
        more = {"engine_id": "engine-1", "point": "{}", **of_role[role]}
        columns = {"study": "demo", "trial": trial, "phase": "search", "block": block, "role": role}
        row = plain_row("blocks", **columns, requests=len(prompts), max_running_requests=len(prompts), **more)
        write_rows(run.path, "blocks", f"search-{trial:05}-{role}", [row])
        sent = [
            plain_row("requests", **columns, request=number, prompt_tokens=tokens, output_tokens=1)
            for number, tokens in enumerate(prompts)
        ]
        write_rows(run.path, "requests", f"search-{trial:05}-{role}", sent)
    run.folder.provenance.write_text(json.dumps({"engines": engines or [engine()]}))
