"""An exported configuration, started under ``vllm serve`` and measured once more."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.analysis.export import Deployment, Placement, write
from orchestrator.analysis.render import describe_starts

if TYPE_CHECKING:
    from orchestrator.records import RunFolder
    from orchestrator.sweep.deployed import DeployedRatio


def measure(run: Path, what: Deployment, where: Placement) -> DeployedRatio:
    """Start what is exported and the run's baseline under ``vllm serve``, and compare them in pairs.

    Scripts and logs lie in a temporary folder, which stays when something went wrong.

    Raises:
        UserError, ChunksmithError: As ``measure_deployed``, or the run says not enough of the point.
    """
    from rich.text import Text

    from orchestrator.analysis import best
    from orchestrator.cli.output import progress_console
    from orchestrator.cli.ray_options import stop_on_sigterm
    from orchestrator.records import RunFolder, parse_object, read_arrow
    from orchestrator.search import serve_command
    from orchestrator.sweep import load_spec
    from orchestrator.sweep.deployed import DeployedRatio, ServedScript, measure_deployed, server_in

    folder = RunFolder.open(run)
    spec = load_spec(folder.spec)
    row = next(row for row in read_arrow(folder.path, "trials").to_pylist() if row["trial"] == what.trial)
    point = parse_object(row["point"], where=f"{run}: trial {what.trial}: point")
    config = spec.engine_config()
    words, env = serve_command(config, spec.baseline_at(point))
    # A run that was moved here may name the model by a folder of the machine that it was made on.
    model = where.model or config.model
    placed = dataclasses.replace(where, model=model)
    baseline = dataclasses.replace(what, verdict="the baseline", words=tuple(words[1:]), env=env)
    console = progress_console(as_json=True)
    logs = Path(tempfile.mkdtemp(prefix="chunksmith-export-"))
    with stop_on_sigterm():
        measured = measure_deployed(
            spec,
            point,
            {
                "candidate": ServedScript(text=write("vllm-serve", what, placed), model=model),
                "baseline": ServedScript(text=write("vllm-serve", baseline, placed), model=model),
            },
            trial=what.trial,
            vocab_size=_vocab_size(folder),
            make_server=server_in(logs, spec.timeouts.start_s),
            say=lambda line: console.print(Text(line), soft_wrap=True),
        )
    shutil.rmtree(logs)
    found = DeployedRatio(measured=measured, metric=spec.objective.metric)
    for one in best(run).finalists:
        if one.trial == what.trial:
            return dataclasses.replace(
                found, reported_low=one.ratio_low, reported=one.ratio, reported_high=one.ratio_high
            )
    return found


def _vocab_size(folder: RunFolder) -> int:
    from orchestrator.cli.bench import VOCAB_SIZE
    from orchestrator.records import parse_object

    provenance = parse_object(folder.provenance.read_text(encoding="utf-8"), where=str(folder.provenance))
    return min((int(engine["vocab_size"]) for engine in provenance.get("engines", [])), default=VOCAB_SIZE)


def lines(found: DeployedRatio) -> list[str]:
    """What was found, and how it is judged."""

    def shown(ratio: float, low: float, high: float) -> str:
        return f"{ratio:.3f} ({low:.3f} to {high:.3f})"

    one = found.measured
    said = [
        f"measured under vllm serve: {shown(one.ratio, one.low, one.high)} of the baseline in {found.metric}, "
        f"{one.pairs} pairs over {describe_starts(one.starts)}"
    ]
    low, ratio, high = found.reported_low, found.reported, found.reported_high
    if low is None or ratio is None or high is None:
        return [*said, "the run has no confirmed interval of this trial to compare with"]
    said.append(f"the run's confirmation:    {shown(ratio, low, high)}")
    if found.is_inside:
        return [*said, "inside: the measured ratio lies in the run's interval"]
    if found.is_contradiction:
        return [*said, "outside: the two intervals have no ratio in common"]
    return [
        *said,
        "outside: the measured ratio is not in the run's interval; as the intervals overlap, chance may do that",
    ]
