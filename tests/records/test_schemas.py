"""The columns are a contract: notebooks and later versions rely on names, order, types and nulls."""

from __future__ import annotations

import pytest

from orchestrator.records import SCHEMA_VERSION, SCHEMAS

LATENCIES = "\n".join(
    f"{statistic}_{metric}_ms: double?"
    for metric in ("ttft", "tpot", "itl", "e2el", "guidellm_tpot", "arrival_ttft", "arrival_e2el")
    for statistic in ("mean", "median", "p90", "p95", "p99")
)

RATES = "\n".join(
    f"{rate}{suffix}: double?"
    for rate in (
        "request_throughput",
        "output_throughput",
        "total_token_throughput",
        "prefill_token_throughput",
        "request_goodput",
    )
    for suffix in ("", "_per_gpu")
)

# A change here needs a new SCHEMA_VERSION. `?`: may be null.
GOLDEN = {
    "trials": """
        schema_version: int32
        study: string
        trial: int32
        fidelity: string?
        outcome: string
        failure: string?
        failure_detail: string?
        point: string
        attempt: int32
        engine_id: string?
        engine_group: string
        engine_log: string?
        metric: string
        direction: string
        ratio: double?
        ratio_low: double?
        ratio_high: double?
        pairs: int32
        objectives: list<element: struct<metric: string not null, direction: string not null, RATIOS> not null>?
        verdict: string?
        stop: string?
        pairing: string
        baseline_value: double?
        candidate_value: double?
        workspace_rows: int64?
        workspace_bytes: int64?
        workspace_alignment: int64?
        builders: int32?
        kv_blocks: int64?
        serve_args: list<element: string not null>
        env: string
        seed: int64
        started_at: timestamp[us, tz=UTC]
        finished_at: timestamp[us, tz=UTC]
        measuring_s: double
        starting_s: double?
        reused_from: string?
    """.replace("RATIOS", ", ".join(f"{end}: double not null" for end in ("ratio", "ratio_low", "ratio_high"))),
    "blocks": f"""
        schema_version: int32
        study: string
        trial: int32
        fidelity: string?
        phase: string
        block: int32
        pair: int32
        role: string
        dropped: bool
        outcome: string
        failure: string?
        engine_id: string
        point: string
        prompts_seed: int64
        load: string
        started_at: timestamp[us, tz=UTC]
        duration_s: double
        retune_ms: double
        requests: int32
        failed_requests: int32
        failures: string
        slip_p50_ms: double?
        slip_p99_ms: double?
        {LATENCIES}
        {RATES}
        goodput_at_slo: double?
        workspace_rows: int64?
        workspace_bytes: int64?
        context_chunks: int64
        workspace_entries: int64
        area_plans: int64
        area_limited: int64
        long_prefill_cuts: int64
        scheduler_steps: int64
        max_step_tokens: int64
        max_running_requests: int64
        cached_tokens: int64
        chunk_order: string?
        lab_prefill_s: double?
        lab_gather_s: double?
        lab_attend_s: double?
        lab_all_gather_s: double?
        lab_chunks: int64?
        lab_launches: int64?
        lab_gathered_rows: int64?
        lab_padded_rows: int64?
        lab_workspace_peak_bytes: int64?
        lab_workspace_reserved_bytes: int64?
        lab_scratch_bytes: int64?
        lab_gather_bytes: int64?
        lab_all_gather_bytes: int64?
        lab_flops: int64?
        lab_gather_gb_per_s: double?
        lab_attend_gflop_per_s: double?
        lab_roof_copy_gb_per_s: double?
        lab_roof_gflop_per_s: double?
    """,
    "requests": """
        schema_version: int32
        study: string
        trial: int32
        phase: string
        block: int32
        request: int32
        role: string
        prompt_tokens: int32
        output_tokens: int32
        cached_tokens: int32
        arrival_s: double
        send_s: double
        first_token_s: double?
        end_s: double?
        token_times_s: list<element: double not null>
        output_token_ids: list<element: int32 not null>
        top2_gaps: list<element: float not null>?
        error: string?
    """,
}


@pytest.mark.parametrize("table", SCHEMAS)
def test_columns_are_those_of_this_version(table: str) -> None:
    assert SCHEMA_VERSION == 4
    columns = [f"{field.name}: {field.type}{'?' if field.nullable else ''}" for field in SCHEMAS[table]]
    assert columns == [line.strip() for line in GOLDEN[table].split("\n") if line.strip()]


@pytest.mark.parametrize("table", SCHEMAS)
def test_schema_names_its_table_and_version(table: str) -> None:
    assert SCHEMAS[table].metadata == {b"chunksmith.table": table.encode(), b"chunksmith.schema_version": b"4"}


@pytest.mark.parametrize("table", SCHEMAS)
def test_every_column_is_described_and_names_its_unit(table: str) -> None:
    for field in SCHEMAS[table]:
        metadata = field.metadata or {}
        assert metadata[b"description"].endswith(b"."), field.name
        for suffix, unit in (("_ms", b"ms"), ("_s", b"s"), ("_bytes", b"bytes"), ("_rows", b"rows")):
            if field.name.endswith(suffix) and not field.name.endswith("_per_s"):
                assert metadata[b"unit"] == unit, field.name
