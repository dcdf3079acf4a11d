"""Several runs of one kind as one, to be analysed together."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import yaml

from orchestrator.errors import ChunksmithError, UserError
from orchestrator.records import manifest
from orchestrator.records.atomic import write_text_atomic
from orchestrator.records.compaction import CompactWriter, by_kind, parts_of_kind
from orchestrator.records.folder import RunFolder
from orchestrator.records.parts import Part
from orchestrator.records.reader import read_arrow
from orchestrator.records.schemas import SCHEMAS
from orchestrator.records.soak import SoakRecord
from orchestrator.records.table_folder import files_of

MUST_AGREE: Final = (
    *("model", "tiny_model", "engine", "workload", "workloads", "load", "loads", "slo", "rate_search"),
    *("objective", "objectives", "accuracy", "baseline", "space"),
)
"""Keys of the specs without which trials of two runs are not comparable."""

_NUMBERED = re.compile(r"(.*?)(\d+)", re.DOTALL)


def merge(runs: Sequence[RunFolder], into: Path) -> dict[str, int]:
    """Write the rows of several runs into a new run folder, compacted; returns the rows by table.

    The trials of each run but the first are numbered on from those of the runs before it. The new run is for analysis:
    it has no journal, and its spec has the key ``merged_from``, which a sweep refuses. One run alone is copied.

    Args:
        into: Folder of the new run, which does not exist or is empty.

    Raises:
        UserError: ``into`` is taken, or the specs disagree in a key of ``MUST_AGREE``.
        ChunksmithError: A run cannot be read, or the file system refused. Nothing is left behind.
    """
    specs = [_spec(run) for run in runs]
    for run, spec in zip(runs[1:], specs[1:], strict=True):
        for key in MUST_AGREE:
            if spec.get(key) != specs[0].get(key):
                raise UserError(f"{run.spec}: {key} differs from that of {runs[0].spec}; such trials do not compare.")
    target = RunFolder.create(into)
    try:
        offsets = _offsets(runs)
        rows = {table: _merge_table(runs, offsets, target, table) for table in SCHEMAS}
        for run, offset in zip(runs, offsets, strict=True):
            _copy_soaks(run, target, offset)
        sources = [{"run": str(run.path), "first_trial": first} for run, first in zip(runs, offsets, strict=True)]
        spec = {**specs[0], "study": target.path.name, "merged_from": sources}
        write_text_atomic(target.spec, yaml.safe_dump(spec, sort_keys=False))
        write_text_atomic(target.provenance, json.dumps(_provenance(runs, sources), indent=1) + "\n")
    except (OSError, ChunksmithError) as error:
        shutil.rmtree(target.path, ignore_errors=True)
        if isinstance(error, ChunksmithError):
            raise
        raise ChunksmithError(f"{into}: cannot write: {error.strerror or error}.") from error
    return rows


def _spec(run: RunFolder) -> dict[str, Any]:
    try:
        spec = yaml.safe_load(run.spec.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise UserError(f"{run.spec}: cannot read: {' '.join(str(error).split())}") from error
    if not isinstance(spec, dict):
        raise UserError(f"{run.spec}: must be a mapping of keys.")
    return spec


def _offsets(runs: Sequence[RunFolder]) -> list[int]:
    """What is added to the trial numbers of each run."""
    offsets, following = [], 0
    for run in runs:
        offsets.append(following)
        numbers = [pc.max(read_arrow(run.path, table, columns=["trial"])["trial"]).as_py() for table in SCHEMAS]
        following += 1 + max((number for number in numbers if number is not None), default=-1)
    return offsets


def _merge_table(runs: Sequence[RunFolder], offsets: Sequence[int], target: RunFolder, table: str) -> int:
    kinds = [by_kind(files_of(run.table(table))) for run in runs]
    known = [manifest.read(run.table(table)) for run in runs]
    writer = CompactWriter(target.table(table), table)
    total = 0
    # Kind by kind, so that a scan for one phase can skip the others.
    for kind in sorted({kind for own in kinds for kind in own}):
        for place, offset in enumerate(offsets):
            for path in kinds[place].get(kind, []):
                for name, data in parts_of_kind(path, known[place].get(path.name, []), kind).items():
                    if data.num_rows:
                        writer.add(_moved(data, offset), [Part(_renamed(name, offset, place), data.num_rows)])
                        total += data.num_rows
    writer.close()
    with manifest.locked(target.table(table)) as log:
        log.add(*writer.entries)
    return total


def _moved(data: pa.Table, offset: int) -> pa.Table:
    place, field = data.schema.get_field_index("trial"), data.schema.field("trial")
    return data.set_column(place, field, pc.add(data["trial"], pa.scalar(offset, pa.int32())))


def _renamed(name: str, offset: int, place: int) -> str:
    """A name that no part of another run has."""
    numbered = _NUMBERED.fullmatch(name)
    if numbered:
        return f"{numbered[1]}{int(numbered[2]) + offset:0{len(numbered[2])}d}"
    return f"{name}.{place}"


def _copy_soaks(run: RunFolder, target: RunFolder, offset: int) -> None:
    for path in sorted((run.path / "soak").glob("trial-*.json")):
        trial = int(path.stem.removeprefix("trial-"))
        record = SoakRecord.read(run.path, trial)
        if record is not None:
            dataclasses.replace(record, trial=trial + offset).write(target.path)


def _provenance(runs: Sequence[RunFolder], sources: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {"merged_from": sources, "engines": [], "processes": []}
    for run in runs:
        if run.provenance.exists():
            try:
                own = json.loads(run.provenance.read_text(encoding="utf-8"))
            except ValueError as error:
                raise ChunksmithError(f"{run.provenance}: is not JSON: {' '.join(str(error).split())}") from error
            for key in ("engines", "processes"):
                merged[key] += own.get(key, [])
    return merged
