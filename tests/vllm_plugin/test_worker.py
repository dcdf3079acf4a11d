"""The worker extension on a model runner that has two real workspaces."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator.vllm_plugin import WORKER_EXTENSION, dsv4
from orchestrator.vllm_plugin.state import PLUGIN, WORKER
from orchestrator.vllm_plugin.worker import WorkerExtension
from tests.vllm_plugin.conftest import builder, runner


@pytest.fixture
def worker(vllm_originals: pytest.MonkeyPatch) -> Iterator[WorkerExtension]:
    """An engine that started with a cap of 512 rows, a chunk size of 4 and an area limit of 900."""
    extension = WorkerExtension()
    extension.model_runner = runner(builder(512), builder(512), mla_workspace_rows=512, prefill_area_limit=900)
    extension.vllm_config = extension.model_runner.vllm_config
    PLUGIN.refused = None
    WORKER.start_chunk_size = 4
    WORKER.area_limit = 900
    yield extension
    dsv4.set_chunk_size(None)
    WORKER.start_chunk_size = WORKER.area_limit = None


def in_force(extension: WorkerExtension) -> tuple[int, int | None, int | None]:
    report = extension.chunksmith_worker_report()
    (rows,) = report["workspace_rows"]
    return rows, report["prefill_chunk_size"], report["prefill_area_limit"]


def test_vllm_can_import_it() -> None:
    module, _, name = WORKER_EXTENSION.rpartition(".")
    assert getattr(importlib.import_module(module), name) is WorkerExtension


def test_it_shares_no_name_with_vllms_worker() -> None:
    """vLLM refuses an extension that does."""
    from vllm.v1.worker.worker_base import WorkerBase

    ours = {name for name in vars(WorkerExtension) if not name.startswith("__")}
    assert ours
    assert not [name for name in ours if hasattr(WorkerBase, name)]


def test_the_report_is_read_from_the_builders(worker: WorkerExtension) -> None:
    report = worker.chunksmith_worker_report()
    assert (report["builders"], report["workspace_rows"]) == (2, [512])
    assert report["workspace_bytes"] == 2 * 512 * 576 * 2
    assert report["workspace_alignment"] == 16
    assert (report["kv_blocks"], report["refused"]) == (100, None)


def test_builders_and_tensors_that_differ_are_all_reported(worker: WorkerExtension) -> None:
    small = builder(512)
    small.chunked_prefill_workspace = small.chunked_prefill_workspace[:96]
    worker.model_runner = runner(builder(1024), small)
    assert worker.chunksmith_worker_report()["workspace_rows"] == [96, 512, 1024]


@pytest.mark.parametrize("dcp", [2, 3, 4])
def test_what_dcp_gathers_beside_the_rows_is_not_counted(worker: WorkerExtension, dcp: int) -> None:
    worker.model_runner = runner(builder(960, dcp=dcp), dcp=dcp)
    assert worker.chunksmith_worker_report()["workspace_rows"] == [960]


def test_a_value_that_is_left_out_or_none_returns_to_its_start_value(worker: WorkerExtension) -> None:
    worker.chunksmith_worker_retune({"mla_workspace_rows": 100, "prefill_chunk_size": 2, "prefill_area_limit": 300})
    assert in_force(worker) == (112, 2, 300)
    worker.chunksmith_worker_retune({"mla_workspace_rows": None, "prefill_chunk_size": 1})
    assert in_force(worker) == (512, 1, 900)
    worker.chunksmith_worker_retune({})
    assert in_force(worker) == (512, 4, 900)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"max_num_seqs": 2}, "max_num_seqs"),
        ({"mla_workspace_rows": 0}, "mla_workspace_rows"),
        ({"prefill_area_limit": -1}, "prefill_area_limit"),
        ({"mla_workspace_rows": 128, "prefill_chunk_size": 5}, "prefill_chunk_size"),
        ({"mla_workspace_rows": 128, "prefill_area_limit": 0}, "prefill_area_limit"),
    ],
)
def test_a_wrong_value_is_refused_and_changes_nothing(
    worker: WorkerExtension, values: dict[str, int | None], named: str
) -> None:
    worker.chunksmith_worker_retune({"mla_workspace_rows": 256, "prefill_chunk_size": 3})
    with pytest.raises(ValueError, match=named):
        worker.chunksmith_worker_retune(values)
    assert in_force(worker) == (256, 3, 900)


def test_the_live_number_of_requests_sizes_the_workspace(worker: WorkerExtension) -> None:
    """4 pages a request: 4 * 3 * 16 = 192 rows, where 8 requests of full length would be fewer."""
    worker.vllm_config.model_config.max_model_len = 1
    worker.chunksmith_worker_retune({}, max_num_seqs=3)
    assert in_force(worker)[0] == 192


def test_without_the_patches_nothing_is_retuned(worker: WorkerExtension) -> None:
    PLUGIN.refused = "not patching vLLM: vLLM 0.33.0"
    with pytest.raises(RuntimeError, match=r"vLLM 0\.33\.0"):
        worker.chunksmith_worker_retune({"mla_workspace_rows": 64})
    assert worker.chunksmith_worker_report()["refused"] == "not patching vLLM: vLLM 0.33.0"


def test_a_model_without_mla_reports_no_workspace(worker: WorkerExtension) -> None:
    worker.model_runner = runner()
    report: Any = worker.chunksmith_worker_report()
    for name in ("workspace_bytes", "workspace_alignment"):
        assert report[name] is None
    assert (report["builders"], report["workspace_rows"]) == (0, [])
