"""Files of a run as artifacts of its trials."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import pyarrow.compute as pc
from optuna.artifacts.exceptions import ArtifactNotFound

from orchestrator.analysis.dashboard.plan_picture import plan_picture
from orchestrator.records import RunFolder, parse_object, read_table

_SPACE = uuid.UUID("6f6a3d0e-58a5-4c5c-9a55-0f5cf4c8a7d1")
_TAIL = 64 * 1024
"""Bytes of the end of a log that are shown."""

_LOG, _PLAN, _RECORD = "engine-log-tail.txt", "plan.svg", "record.json"
_KINDS = {_LOG: "text/plain", _PLAN: "image/svg+xml", _RECORD: "application/json"}


def _identifier(trial: int, name: str) -> str:
    return str(uuid.uuid5(_SPACE, f"{trial}/{name}"))


def metas(trial: int, row: Mapping[Any, Any], *, with_plan: bool) -> dict[str, str]:
    """System attributes of a trial that name its artifacts, as ``optuna.artifacts.upload_artifact`` writes them.

    A trial is recorded before it is told: from then on it has them.

    Args:
        with_plan: Whether there is a picture of its plan.
    """
    absent = ({_LOG} if row["engine_log"] is None else set()) | (set() if with_plan else {_PLAN})
    found = {}
    for name, kind in _KINDS.items():
        if name in absent:
            continue
        identifier = _identifier(trial, name)
        meta = {"artifact_id": identifier, "filename": name, "mimetype": kind, "encoding": None}
        found[f"artifacts:{identifier}"] = json.dumps(meta)
    return found


class RunArtifacts:
    """The protocol ``optuna.artifacts.ArtifactStore`` over a run's own files, read only."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run

    def open_reader(self, artifact_id: str) -> BinaryIO:
        for row in read_table(self._run.path, "trials").astype(object).to_dict("records"):
            for name in _KINDS:
                if _identifier(int(row["trial"]), name) == artifact_id:
                    return io.BytesIO(self._content(name, row))
        raise ArtifactNotFound(f"{self._run.path}: no artifact {artifact_id}")

    def write(self, artifact_id: str, content_body: BinaryIO) -> NoReturn:
        raise io.UnsupportedOperation("the dashboard of a run changes nothing")

    def remove(self, artifact_id: str) -> NoReturn:
        raise io.UnsupportedOperation("the dashboard of a run changes nothing")

    def _content(self, name: str, row: Mapping[Any, Any]) -> bytes:
        if name == _PLAN:
            provenance = parse_object(self._run.provenance.read_text("utf-8"), where=str(self._run.provenance))
            return plan_picture(self._run, provenance, int(row["trial"])).encode()
        if name == _RECORD:
            of_trial = pc.field("trial") == int(row["trial"])
            rows = {
                table: json.loads(
                    read_table(self._run.path, table, where=of_trial).to_json(orient="records", date_format="iso")
                )
                for table in ("trials", "blocks")
            }
            return json.dumps(rows, indent=1).encode()
        return _tail(self._log(str(row["engine_log"])))

    def _log(self, recorded: str) -> Path:
        """The log under the run's own ``logs``, wherever the run has been moved to. Only its name is taken from the
        record, so that no record can point out of the run."""
        return self._run.logs / Path(recorded).name


def _tail(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(0, io.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL))
            return file.read()
    except FileNotFoundError:
        return f"{path.name}: not here; an engine's log is on the node that ran the engine".encode()
