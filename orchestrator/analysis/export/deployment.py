"""What is deployed: the arguments and the environment of ``vllm serve`` at one point of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from orchestrator.analysis.best import best
from orchestrator.errors import ChunksmithError, UserError
from orchestrator.records import RunFolder, parse_object, read_arrow

PLUGIN_KEY = "chunksmith"
"""Where the plugin's settings lie in ``additional_config``."""


@dataclass(frozen=True)
class Placement:
    """Where it is to run, as far as the run cannot know.

    Attributes:
        name: Name of the deployment: lower-case letters, digits and ``-``, as Kubernetes wants it.
        image: Container image; None for vLLM's own of ``vllm_version``.
        model: Name or folder of the model there; None for the one of the run.
        port: Of the server.
        gpus_per_node: Most GPUs of one pod.
    """

    name: str
    image: str | None = None
    model: str | None = None
    port: int = 8000
    gpus_per_node: int = 8


@dataclass(frozen=True)
class Deployment:
    """One point of a run, ready to be served.

    Attributes:
        study: Name of the study.
        trial: Number of the trial.
        verdict: One line: what the run says of the point.
        model: What ``vllm serve`` is given first.
        words: Its other arguments, in order.
        env: Environment variables.
        gpus: GPUs that an engine of the run had; 0 on a CPU.
        vllm_version: The vLLM that was measured; None if the run does not tell.
    """

    study: str
    trial: int
    verdict: str
    model: str
    words: tuple[str, ...]
    env: Mapping[str, str]
    gpus: int
    vllm_version: str | None

    @property
    def engine_args(self) -> dict[str, Any]:
        """The arguments by vLLM's names, with underscores: ``{"max_num_seqs": 4, "additional_config": {...}}``."""
        return engine_args(self.words)

    @property
    def needs_plugin(self) -> bool:
        """Whether it has settings of our plugin, which vLLM without the plugin would ignore in silence."""
        return PLUGIN_KEY in (self.engine_args.get("additional_config") or {})


def engine_args(words: Sequence[str]) -> dict[str, Any]:
    """Arguments of ``vllm serve`` as a mapping.

    Args:
        words: In the form in which a sweep records them: ``--flag value ...``, ``--flag`` or ``--no-flag``; a value
            that is a mapping is JSON.
    """
    found: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("--"):
            values = found.setdefault(word, [])
        else:
            values.append(word)
    args: dict[str, Any] = {}
    for flag, values in found.items():
        name = flag.removeprefix("--")
        if not values:
            args[name.removeprefix("no-").replace("-", "_")] = not name.startswith("no-")
        else:
            read = [_value(value) for value in values]
            args[name.replace("-", "_")] = read[0] if len(read) == 1 else read
    return args


def _value(word: str) -> Any:
    if word[:1] in ("{", "["):
        return json.loads(word)
    value = yaml.safe_load(word)
    # A date, a time or the like is a text to vLLM.
    return value if isinstance(value, (bool, int, float)) else word


def deployment(run_path: Path | str, trial: int | None = None) -> Deployment:
    """The winner of a run, or a given trial.

    Raises:
        UserError: Not a run folder, or no such trial.
        ChunksmithError: There is no winner and no trial was named, or the point cannot be served.
    """
    run = RunFolder.open(run_path)
    answer = best(run.path)
    if trial is None:
        if answer.decision != "winner" or answer.trial is None:
            raise ChunksmithError(
                f"{run.path}: no winner to export ({answer.decision}: {answer.reason}). Name a trial to export it "
                "anyway."
            )
        trial = answer.trial
    rows = {row["trial"]: row for row in read_arrow(run.path, "trials").to_pylist()}
    if trial not in rows:
        numbers = f"0 to {max(rows)}" if rows else "none yet"
        raise UserError(f"{run.path}: no trial {trial}; recorded are {numbers}.")
    row = rows[trial]
    if not row["serve_args"]:
        raise ChunksmithError(f"{run.path}: trial {trial} is a point of the kernel lab, which no server can serve.")
    if row["outcome"] != "complete":
        raise ChunksmithError(f"{run.path}: trial {trial} is {row['outcome']} ({row['failure']}): not to be deployed.")
    if answer.decision == "winner" and answer.trial == trial:
        assert answer.ratio is not None
        verdict = (
            f"winner: {answer.ratio:.3f} ({answer.ratio_low:.3f} to {answer.ratio_high:.3f}) of the baseline "
            f"in {answer.metric}"
        )
    else:
        verdict = f"NOT a confirmed winner: the run says {answer.decision}"
    env = parse_object(row["env"], where=f"{run.path}: trial {trial}: env")
    return Deployment(
        study=answer.study,
        trial=trial,
        verdict=verdict,
        model=row["serve_args"][0],
        words=tuple(row["serve_args"][1:]),
        env={name: str(value) for name, value in env.items()},
        gpus=_gpus(run),
        vllm_version=_vllm_version(run),
    )


def _gpus(run: RunFolder) -> int:
    spec = yaml.safe_load(run.spec.read_text(encoding="utf-8"))
    gpus = (spec.get("resources") or {}).get("gpus", 0)
    return int(gpus) if isinstance(gpus, (int, float)) else 0


def _vllm_version(run: RunFolder) -> str | None:
    """Version of the engines that the run measured; None if it does not tell or there were several."""
    try:
        engines = json.loads(run.provenance.read_text(encoding="utf-8"))["engines"]
    except (OSError, ValueError, KeyError):
        return None
    versions = {str(engine["version"]).partition("+")[0] for engine in engines if engine.get("version")}
    return versions.pop() if len(versions) == 1 else None
