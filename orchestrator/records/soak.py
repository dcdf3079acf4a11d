"""``soak/trial-00007.json`` of a run: how the soak of a trial ended, and the batch that broke it if one did."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from orchestrator.errors import ChunksmithError
from orchestrator.records.atomic import write_text_atomic

SoakState = Literal["passed", "failed", "not run"]


@dataclass(frozen=True, kw_only=True)
class SoakRecord:
    """One soak. What describes the batch that broke it is None (``lengths`` is empty) when it passed.

    Attributes:
        trial: Number of the trial.
        point: One value per knob.
        rounds: Rounds that were asked for.
        blocks: Blocks that were served, the one that failed included.
        seconds: From the first block to the last, engine starts included.
        lost_engines: Engines that were lost and replaced; one is excused.
        batches: Names of the batches of a round.
        serve_args: Arguments after ``vllm serve`` that start an engine at the point.
        env: Environment variables that go with them.
        batch: Name of the batch that broke it.
        why: What is bad about that batch, in one sentence.
        lengths: Prompt and output tokens of its requests, in the order of sending.
        load: How its requests arrive.
        seed: Its seed: with ``vocab_size`` it fixes every token.
        vocab_size: Token ids are below this.
        failure: Class of the failure.
        detail: One line on the failure.
        engine_log: Log file of the engine.
    """

    study: str
    trial: int
    point: Mapping[str, Any]
    passed: bool
    rounds: int
    blocks: int
    seconds: float
    lost_engines: int
    batches: Sequence[str]
    serve_args: Sequence[str]
    env: Mapping[str, str]
    batch: str | None = None
    why: str | None = None
    lengths: Sequence[Sequence[int]] = ()
    load: Mapping[str, Any] | None = None
    seed: int | None = None
    vocab_size: int | None = None
    failure: str | None = None
    detail: str | None = None
    engine_log: str | None = None

    def write(self, run: Path) -> Path:
        """Write the file in one step; that of an earlier soak of the trial is replaced. Returns it.

        Raises:
            ChunksmithError: The file system refused.
        """
        path = soak_path(run, self.trial)
        try:
            path.parent.mkdir(exist_ok=True)
        except OSError as error:
            raise ChunksmithError(f"{path.parent}: cannot make the folder: {error.strerror}.") from error
        write_text_atomic(path, json.dumps(asdict(self), indent=1) + "\n")
        return path

    @classmethod
    def read(cls, run: Path, trial: int) -> SoakRecord | None:
        """The record of a trial; None when it was not soaked.

        Raises:
            ChunksmithError: The file cannot be read, or is not one that was written here.
        """
        path = soak_path(run, trial)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ChunksmithError(f"{path}: cannot read: {error.strerror}.") from error
        except ValueError as error:
            raise ChunksmithError(f"{path}: is not JSON: {' '.join(str(error).split())}") from error
        names = {field.name for field in fields(cls)}
        if not isinstance(content, dict) or content.keys() != names:
            raise ChunksmithError(f"{path}: is not the record of a soak: its keys must be {', '.join(sorted(names))}.")
        return cls(**content)


def soak_path(run: Path, trial: int) -> Path:
    """Where the record of a trial's soak lies."""
    return run / "soak" / f"trial-{trial:05d}.json"
