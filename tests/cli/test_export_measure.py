"""``chunksmith export --measure``: what is started, and how what was found is told."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.analysis import best
from orchestrator.cli import export_measure, main
from orchestrator.measurement import Role
from orchestrator.measurement.stats import RatioInterval
from orchestrator.sweep import deployed
from orchestrator.sweep.deployed import DeployedRatio, ServedScript

SHIPPED = Path(__file__).parents[2] / "results" / "data" / "cpu-demo"
MEASURED = RatioInterval(ratio=0.7, low=0.68, high=0.72, pairs=5, level=0.95, sd_log=0.01, dof=4)


def test_both_scripts_are_those_of_the_export(
    tmp_path: Path, tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[str, Any] = {}
    answer = best(SHIPPED)

    def faulty_measure(_: Any, point: Any, scripts: Mapping[Role, ServedScript], **more: Any) -> RatioInterval:
        """Fault: it starts nothing."""
        asked.update(point=point, scripts=scripts, **more)
        assert answer.ratio is not None
        return dataclasses.replace(MEASURED, ratio=answer.ratio, low=answer.ratio, high=answer.ratio)

    monkeypatch.setattr(deployed, "measure_deployed", faulty_measure)
    script = tmp_path / "serve.sh"
    assert main(["export", str(SHIPPED), "--measure", "-o", str(script)]) == 0
    assert asked["point"] == answer.point
    assert asked["vocab_size"] == 10_240
    scripts = asked["scripts"]
    assert {one.model for one in scripts.values()} == {str(tiny_model_folder)}
    # But for the model's folder, word for word what was written.
    assert scripts["candidate"].text.replace(str(tiny_model_folder), "tiny-mla") == script.read_text()
    assert "mla_workspace_rows" not in scripts["baseline"].text
    for one in scripts.values():
        assert '"cpu_chunked_prefill": true' in one.text
        assert one.text.endswith('"$@"\n')
    error = capsys.readouterr().err
    found = f"{answer.ratio:.3f} ({answer.ratio:.3f} to {answer.ratio:.3f}) of the baseline in median_ttft_ms"
    assert f"measured under vllm serve: {found}, 5 pairs over one engine start" in error
    assert re.search(r"the run's confirmation: +0\.\d{3} \(0\.\d{3} to 0\.\d{3}\)\ninside: ", error)


def ratio(low: float | None, high: float | None) -> DeployedRatio:
    reported = None if low is None or high is None else (low + high) / 2
    return DeployedRatio(
        measured=MEASURED, metric="median_ttft_ms", reported_low=low, reported=reported, reported_high=high
    )


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (ratio(0.65, 0.75), "inside: the measured ratio lies in the run's interval"),
        (ratio(0.71, 0.75), "outside: the measured ratio is not in the run's interval; as the intervals overlap"),
        (ratio(0.75, 0.8), "outside: the two intervals have no ratio in common"),
        (ratio(None, None), "the run has no confirmed interval of this trial to compare with"),
    ],
)
def test_how_it_is_judged_is_said(found: DeployedRatio, verdict: str) -> None:
    assert export_measure.lines(found)[-1].startswith(verdict)


def test_a_contradiction_is_an_error_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(export_measure, "measure", lambda *_: ratio(0.75, 0.8))
    script = tmp_path / "serve.sh"
    assert main(["export", str(SHIPPED), "--measure", "-o", str(script)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("chunksmith: error: measured under vllm serve: 0.700")
    assert error.count("\n") == 1
    assert not script.exists()


@pytest.mark.soak
@pytest.mark.engine
@pytest.mark.timeout(1200)
def test_the_shipped_winner_is_faster_under_vllm_serve_too(
    tmp_path: Path, tiny_model_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(SHIPPED), "--measure", "-o", str(tmp_path / "serve.sh")]) == 0
    error = capsys.readouterr().err
    found = re.search(r"measured under vllm serve: (\S+) \((\S+) to (\S+)\)", error)
    assert found is not None, error
    assert float(found[3]) < 1
