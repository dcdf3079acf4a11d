"""A soak of the kernel lab: a fault that only the widest batch meets is planted, and the soak finds it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.analysis import best
from orchestrator.engines import EngineConfig, EngineInfo
from orchestrator.engines.kernel_lab.engine import KernelLabEngine
from orchestrator.engines.kernel_lab.layers import v4_shape
from orchestrator.engines.kernel_lab.workspace import WorkspaceManager
from orchestrator.planning import LAYER_TYPES
from orchestrator.records import RunFolder, SoakRecord
from orchestrator.sweep import SweepSpec, point_to_soak, soak_trial
from tests.sweep.studies import new_run, run_sweep

SPEC: dict[str, Any] = {
    "version": 1,
    "study": "lab",
    "engine": {
        "kind": "kernel_lab",
        "args": {
            "layers": {"c4a": 1},
            "heads": 2,
            "head_dim": 64,
            "max_model_len": 1024,
            "max_num_batched_tokens": 256,
            "max_num_seqs": 8,
        },
    },
    "space": {"max_num_batched_tokens": {"scope": "live", "values": [128, 256]}},
    "workload": {"prompts": 2, "input_len": 200, "output_len": 1},
    "load": {"concurrency": 1},
    "trials": 1,
    "blocks": {"warmup": 0, "min_pairs": 2, "max_pairs": 2},
    "confirm": {"points": 0},
    "accuracy": {"prompts": 1, "input_len": 100, "output_len": 2},
    "soak": {"rounds": 0},
}

NUMBERS = itertools.count()


class ShortReservation(KernelLabEngine):
    """A planted fault: the workspace was reserved, and locked, for fewer requests than the area limit lets share a
    chunk."""

    def start(self, config: EngineConfig) -> EngineInfo:
        info = super().start(config)
        assert self._started is not None
        args, model = self._started.args, self._started.model
        manager = WorkspaceManager()
        for one in model._v4:
            for layer in one.layers:
                v4_shape(args).reserve(manager, LAYER_TYPES["c4a"], layer.dtype, model.knobs.prefill_chunk_size - 1)
                layer._manager = manager
        manager.lock()
        return info


def labs(kind: type[KernelLabEngine], folder: Path) -> Callable[[], KernelLabEngine]:
    """Makes engines of a kind."""
    return lambda: kind(f"lab-{next(NUMBERS)}", str(folder / "lab.log"))


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run of one trial on a lab without a fault."""
    folder = tmp_path_factory.mktemp("lab")
    spec = SweepSpec.model_validate(SPEC)
    run = new_run(folder / "run", spec)
    run_sweep(spec, run, labs(KernelLabEngine, folder))
    return run


def soak(run: RunFolder, kind: type[KernelLabEngine]) -> SoakRecord:
    """Soak the only trial, as the command does."""
    spec = SweepSpec.model_validate(SPEC)
    with run.lock():
        return soak_trial(spec, run, labs(kind, run.path), 0, point_to_soak(spec, run, 0), rounds=1, say=lambda _: None)


def test_a_soak_of_the_lab_finds_a_reservation_that_is_too_small(swept: RunFolder) -> None:
    record = soak(swept, ShortReservation)
    assert not record.passed
    assert (record.batch or "").startswith("widest area")
    assert record.failure == "workspace-locked"
    assert "exceeds the locked workspace of" in (record.detail or "")
    # The normal load and the steps that fit went well before.
    assert record.blocks > 1
    assert best(swept.path).soak != "passed"


def test_a_lab_without_a_fault_passes_the_same_soak(swept: RunFolder) -> None:
    record = soak(swept, KernelLabEngine)
    assert record.passed, record.detail
    assert any(name.startswith("widest area") for name in record.batches)
