"""A made-up run of a million trials and ten million requests, in the files that a compaction leaves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import yaml
from numpy.typing import NDArray

from orchestrator.analysis.best import choose
from orchestrator.analysis.run_spec import RunSpec
from orchestrator.analysis.trial_columns import TrialColumns
from orchestrator.records import SCHEMAS, RunFolder, manifest
from orchestrator.records.compaction import GROUP_ROWS, CompactWriter
from orchestrator.records.parts import Part

LEVELS: Final = (9, 4, 4, 4, 4, 4, 3, 3)
"""Values of each knob: 82,944 points."""

BLOCKS_PER_TRIAL, REQUESTS_PER_BLOCK, TOKENS = 2, 5, 4
_PAIRS, _PROMPTS = 6, 8
_TRIALS_PER_ENGINE = 1000
_METRICS = (("median_ttft_ms", "minimize"), ("request_throughput", "maximize"))

Values: TypeAlias = Mapping[str, Any]
Numbers: TypeAlias = NDArray[np.int64]


def make_runs(folder: Path, trials: int, say: Callable[[str], None]) -> tuple[Path, Path]:
    """Two runs, of one objective and of two, that share the files of their blocks and requests."""
    one, two = RunFolder.create(folder / "one-objective"), RunFolder.create(folder / "two-objectives")
    for run, objectives in ((one, _METRICS[:1]), (two, _METRICS)):
        _write_spec(run, objectives)
        _write(run, "trials", 0, "trial", 1, _trial_chunks(trials, several=len(objectives) > 1))
        say(f"{run.path.name}: {trials:,} trials are written")
    _write(one, "blocks", 0, "trial", BLOCKS_PER_TRIAL, _block_chunks(trials))
    say(f"{trials * BLOCKS_PER_TRIAL:,} blocks are written")
    per_trial = BLOCKS_PER_TRIAL * REQUESTS_PER_BLOCK
    _write(one, "requests", 0, "trial", per_trial, _request_chunks(trials))
    say(f"{trials * per_trial:,} requests are written")
    for table in ("blocks", "requests"):
        for path in one.table(table).glob("merged-*.parquet"):
            (two.table(table) / path.name).hardlink_to(path)
    for run in (one, two):
        spec = RunSpec.read(run.spec)
        chosen = choose(TrialColumns.read(run, spec), spec)
        _write(run, "blocks", 90_000, "confirm", 2 * _PAIRS, ((one, _confirmation(one)) for one in chosen))
        _write(run, "requests", 90_000, "accuracy", 2 * _PROMPTS, ((one, _answers(one)) for one in chosen))
    return one.path, two.path


def _write_spec(run: RunFolder, objectives: Sequence[tuple[str, str]]) -> None:
    asked = [{"metric": metric, "direction": way} for metric, way in objectives]
    spec: dict[str, Any] = {
        "study": run.path.name,
        "engine": {"plugin": {"mla_workspace_rows": None}},
        "space": {f"knob_{k}": {"scope": "live", "values": _values(levels)} for k, levels in enumerate(LEVELS)},
        "baseline": {},
        "confirm": {"points": 5},
        "objective": asked[0],
        "accuracy": {"tolerance": 0.05},
    }
    if len(asked) > 1:
        spec["objectives"] = asked
    run.spec.write_text(yaml.safe_dump(spec))


def _values(levels: int) -> list[int]:
    return [2**level for level in range(levels)]


def _write(
    run: RunFolder, table: str, number: int, kind: str, rows: int, chunks: Iterable[tuple[int, pa.Table]]
) -> None:
    """Write chunks, each with the number of its first trial and so many rows for each trial."""
    writer = CompactWriter(run.table(table), table, number)
    for first, data in chunks:
        numbers = range(first, first + data.num_rows // rows)
        writer.add(data, [Part(f"{kind}-{trial:05d}", rows) for trial in numbers])
    writer.close()
    with manifest.locked(run.table(table)) as log:
        log.add(*writer.entries)


def _table(table: str, count: int, values: Values) -> pa.Table:
    """Rows with the given columns, null or the plainest value in all others. A single value stands for all rows."""
    columns: list[Any] = []
    for field in SCHEMAS[table]:
        value = values.get(field.name)
        if value is None and not field.nullable:
            value = _plainest(field)
        if isinstance(value, (np.ndarray, pa.Array)):
            columns.append(pa.array(value, field.type) if isinstance(value, np.ndarray) else value.cast(field.type))
        elif value is None:
            columns.append(pa.nulls(count, field.type))
        else:
            columns.append(pa.repeat(pa.scalar(value, field.type), count))
    return pa.Table.from_arrays(columns, schema=SCHEMAS[table])


def _plainest(field: pa.Field[Any]) -> Any:
    if allowed := (field.metadata or {}).get(b"values"):
        return allowed.decode().split("|")[0]
    if isinstance(field.type, pa.ListType):
        return []
    if pa.types.is_timestamp(field.type):
        return datetime(2026, 1, 2, tzinfo=UTC)
    return {"string": "{}", "bool": False, "int32": 4, "int64": 4}.get(str(field.type), 0.0)


def _points(trials: Numbers) -> tuple[list[str], NDArray[np.float64]]:
    """Points of some trials, drawn with repetition, and how far each is from the best."""
    # Multiplied by a large prime, the numbers come in no order and repeat after all 82,944.
    index = trials * 7_368_787 % int(np.prod(LEVELS))
    codes = np.stack(np.unravel_index(index, LEVELS), axis=1)
    names = [f"knob_{k}" for k in range(len(LEVELS))]
    texts = [json.dumps(dict(zip(names, row, strict=True))) for row in (2**codes).tolist()]
    return texts, np.abs(codes - np.array(LEVELS) // 2).sum(axis=1).astype(np.float64)


def _trial_chunks(trials: int, *, several: bool) -> Iterable[tuple[int, pa.Table]]:
    rng = np.random.default_rng(0)
    for first in range(0, trials, GROUP_ROWS["trials"]):
        numbers = np.arange(first, min(trials, first + GROUP_ROWS["trials"]))
        texts, distance = _points(numbers)
        noise = rng.standard_normal((2, len(numbers)))
        # What is fast serves few: the two objectives are at odds.
        fast, served = np.exp(0.03 * distance - 0.4 + 0.02 * noise[0]), np.exp(0.02 * distance + 0.03 * noise[1])
        draw = rng.random(len(numbers))
        outcome = np.where(draw < 0.92, "complete", np.where(draw < 0.97, "infeasible", "failed"))
        is_complete = outcome == "complete"
        failure = pa.array(np.where(outcome == "failed", "cuda-oom", "constraint"), mask=is_complete)
        values: dict[str, Any] = {
            "study": "big",
            "trial": numbers,
            "fidelity": "full",
            "outcome": pa.array(outcome),
            "failure": failure,
            "point": pa.array(texts),
            "engine_id": pa.array([f"engine-{one // _TRIALS_PER_ENGINE:05d}" for one in numbers.tolist()]),
            "metric": _METRICS[0][0],
            "direction": _METRICS[0][1],
            "ratio": pa.array(fast, mask=~is_complete),
            "ratio_low": pa.array(fast * 0.98, mask=~is_complete),
            "ratio_high": pa.array(fast * 1.02, mask=~is_complete),
            "workspace_rows": 128 * (1 + numbers % 64),
            "workspace_bytes": 128 * 1152 * (1 + numbers % 64),
            "serve_args": ["org/model", "--max-num-seqs", "64", "--additional-config", '{"chunksmith": {}}'],
        }
        if several:
            values["objectives"] = _objectives(fast, served, is_complete)
        yield first, _table("trials", len(numbers), values)


def _objectives(fast: NDArray[np.float64], served: NDArray[np.float64], is_complete: NDArray[np.bool_]) -> Any:
    kind = SCHEMAS["trials"].field("objectives").type
    rows = [
        [
            {"metric": metric, "direction": way, "ratio": ratio, "ratio_low": 0.98 * ratio, "ratio_high": 1.02 * ratio}
            for (metric, way), ratio in zip(_METRICS, ratios, strict=True)
        ]
        if complete
        else None
        for *ratios, complete in zip(fast.tolist(), served.tolist(), is_complete.tolist(), strict=True)
    ]
    return pa.array(rows, kind)


def _block_chunks(trials: int) -> Iterable[tuple[int, pa.Table]]:
    rng = np.random.default_rng(1)
    per_chunk = GROUP_ROWS["blocks"] // BLOCKS_PER_TRIAL
    for first in range(0, trials, per_chunk):
        numbers = np.arange(first, min(trials, first + per_chunk))
        texts, distance = _points(numbers)
        count = len(numbers) * BLOCKS_PER_TRIAL
        trial = np.repeat(numbers, BLOCKS_PER_TRIAL)
        is_candidate = np.arange(count) % 2 == 1
        ttft = 50.0 * np.exp(np.where(is_candidate, np.repeat(0.03 * distance - 0.4, 2), 0.0))
        noisy = ttft * np.exp(0.02 * rng.standard_normal(count))
        started = np.datetime64("2026-01-02T00:00:00", "us") + (
            (trial * BLOCKS_PER_TRIAL + is_candidate) * 3_000_000
        ).astype("timedelta64[us]")
        yield (
            first,
            _table(
                "blocks",
                count,
                {
                    "study": "big",
                    "trial": trial,
                    "fidelity": "full",
                    "phase": "search",
                    "block": np.arange(count) % 2,
                    "pair": 0,
                    "role": pa.array(np.where(is_candidate, "candidate", "baseline")),
                    "failed_requests": 0,
                    "engine_id": pa.array([f"engine-{one // _TRIALS_PER_ENGINE:05d}" for one in trial.tolist()]),
                    "point": pa.array([text for one in texts for text in (_BASELINE, one)]),
                    "started_at": pa.array(started).cast(pa.timestamp("us", tz="UTC")),
                    "workspace_rows": 4096,
                    "workspace_bytes": 4096 * 1152,
                    **dict.fromkeys(("mean_ttft_ms", "median_ttft_ms", "p99_ttft_ms", "p90_ttft_ms"), noisy),
                    **dict.fromkeys(("request_throughput", "output_throughput"), 1000.0 / noisy),
                },
            ),
        )


_BASELINE = json.dumps({f"knob_{k}": None for k in range(len(LEVELS))})


def _request_chunks(trials: int) -> Iterable[tuple[int, pa.Table]]:
    rng = np.random.default_rng(2)
    per_trial = BLOCKS_PER_TRIAL * REQUESTS_PER_BLOCK
    per_chunk = GROUP_ROWS["requests"] // per_trial
    for first in range(0, trials, per_chunk):
        numbers = np.arange(first, min(trials, first + per_chunk))
        count = len(numbers) * per_trial
        place = np.arange(count) % per_trial
        sent = np.sort(rng.random(count).reshape(-1, REQUESTS_PER_BLOCK), axis=1).ravel()
        first_token = sent + 0.05 * np.exp(0.1 * rng.standard_normal(count))
        times = first_token[:, None] + 0.01 * np.arange(TOKENS)
        offsets = pa.array(np.arange(count + 1) * TOKENS, pa.int32())
        tokens = rng.integers(0, 32_000, count * TOKENS, dtype=np.int32)
        yield (
            first,
            _table(
                "requests",
                count,
                {
                    "study": "big",
                    "trial": np.repeat(numbers, per_trial),
                    "phase": "search",
                    "block": place // REQUESTS_PER_BLOCK,
                    "request": place % REQUESTS_PER_BLOCK,
                    "role": pa.array(np.where(place < REQUESTS_PER_BLOCK, "baseline", "candidate")),
                    "prompt_tokens": 6000,
                    "output_tokens": TOKENS,
                    "cached_tokens": 0,
                    "arrival_s": sent,
                    "send_s": sent + 1e-4,
                    "first_token_s": first_token,
                    "end_s": times[:, -1],
                    "token_times_s": pa.ListArray.from_arrays(offsets, pa.array(times.ravel(), pa.float64())),
                    "output_token_ids": pa.ListArray.from_arrays(offsets, pa.array(tokens, pa.int32())),
                },
            ),
        )


def _confirmation(trial: int) -> pa.Table:
    texts, distance = _points(np.array([trial]))
    rng = np.random.default_rng(trial)
    pairs, is_candidate = np.repeat(np.arange(_PAIRS), 2), np.arange(2 * _PAIRS) % 2 == 1
    noise = 0.01 * rng.standard_normal((2, 2 * _PAIRS))
    ttft = 50.0 * np.exp(is_candidate * (0.03 * distance[0] - 0.4) + noise[0])
    values = {
        "study": "big",
        "trial": trial,
        "fidelity": "full",
        "phase": "confirm",
        "block": np.arange(2 * _PAIRS),
        "pair": pairs,
        "role": pa.array(np.where(is_candidate, "candidate", "baseline")),
        "failed_requests": 0,
        "point": pa.array(np.where(is_candidate, texts[0], _BASELINE)),
        "median_ttft_ms": ttft,
        "request_throughput": 20.0 * np.exp(0.02 * is_candidate * distance[0] + noise[1]),
    }
    return _table("blocks", 2 * _PAIRS, values)


def _answers(trial: int) -> pa.Table:
    place = np.arange(2 * _PROMPTS)
    values = {
        "study": "big",
        "trial": trial,
        "phase": "accuracy",
        "request": place % _PROMPTS,
        "role": pa.array(np.where(place < _PROMPTS, "baseline", "candidate")),
        "output_tokens": TOKENS,
        "output_token_ids": list(range(TOKENS)),
        "top2_gaps": [1.0] * TOKENS,
    }
    return _table("requests", 2 * _PROMPTS, values)
