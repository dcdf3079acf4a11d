"""DeepSeek-V4's chunk planner with an area limit, through vLLM's own metadata class."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.vllm_plugin import dsv4
from orchestrator.vllm_plugin.state import WORKER
from tests.vllm_plugin.conftest import vllm_config

Plan = list[tuple[int, int, int, int]]
"""First request, end, longest compressed part and width of each chunk; its area is requests times width."""

WINDOW, MAX_LEN, MAX_TOKENS = 128, 4096, 512


@pytest.fixture(scope="module")
def vllm_planner(vllm_originals: pytest.MonkeyPatch) -> Callable[..., Plan]:
    """vLLM's planner as it was; ours is in its place."""
    from vllm.v1.attention.backends.mla.sparse_swa import DeepseekSparseSWAMetadata

    planner: Callable[..., Plan] = DeepseekSparseSWAMetadata.get_prefill_chunk_plan
    dsv4.install()
    return planner


@pytest.fixture(autouse=True)
def _no_limit(vllm_planner: Callable[..., Plan]) -> Iterator[None]:
    yield
    dsv4.set_area_limit(None)
    dsv4.set_planner(own=False)


def metadata(queries: list[int], prefixes: list[int]) -> Any:
    """vLLM's metadata of one step with these new and cached tokens of each request."""
    from vllm.v1.attention.backends.mla.sparse_swa import DeepseekSparseSWAMetadata

    query = torch.tensor(queries, dtype=torch.int32)
    return DeepseekSparseSWAMetadata(
        block_table=torch.empty(0),
        slot_mapping=torch.empty(0),
        block_size=256,
        num_prefills=len(queries),
        prefill_seq_lens_cpu=query + torch.tensor(prefixes, dtype=torch.int32),
        prefill_query_lens_cpu=query,
        prefill_window_size=WINDOW,
        prefill_max_model_len=MAX_LEN,
        prefill_max_num_batched_tokens=MAX_TOKENS,
    )


def area(chunk: tuple[int, int, int, int]) -> int:
    begin, end, _, width = chunk
    return (end - begin) * width


requests = st.lists(
    st.tuples(st.integers(1, MAX_TOKENS), st.integers(0, MAX_LEN - MAX_TOKENS)), min_size=1, max_size=12
)
ratios = st.sampled_from([1, 2, 4, 128])
compressed = st.sampled_from([None, True, False])
sizes = st.integers(1, 6)


def step(pairs: list[tuple[int, int]]) -> Any:
    return metadata([query for query, _ in pairs], [prefix for _, prefix in pairs])


@given(pairs=requests, ratio=ratios, size=sizes, has_compressed=compressed)
def test_without_a_limit_the_plan_is_vllms_own(
    vllm_planner: Callable[..., Plan], pairs: list[tuple[int, int]], ratio: int, size: int, has_compressed: bool | None
) -> None:
    one = step(pairs)
    ours = one.get_prefill_chunk_plan(ratio, size, has_compressed=has_compressed)
    assert ours == vllm_planner(one, ratio, size, has_compressed=has_compressed)


@given(pairs=requests, ratio=ratios, size=sizes, has_compressed=compressed, more=st.integers(0, 10**6))
def test_a_limit_of_the_reservation_or_above_changes_nothing(
    vllm_planner: Callable[..., Plan],
    pairs: list[tuple[int, int]],
    ratio: int,
    size: int,
    has_compressed: bool | None,
    more: int,
) -> None:
    one = step(pairs)
    dsv4.set_area_limit(dsv4.reserved_area(one, ratio, size, has_compressed) + more)
    ours = one.get_prefill_chunk_plan(ratio, size, has_compressed=has_compressed)
    assert ours == vllm_planner(one, ratio, size, has_compressed=has_compressed)


@given(pairs=requests, ratio=ratios, size=sizes, has_compressed=compressed, limit=st.integers(1, 40_000))
def test_only_a_request_alone_goes_above_the_limit(
    pairs: list[tuple[int, int]], ratio: int, size: int, has_compressed: bool | None, limit: int
) -> None:
    one = step(pairs)
    dsv4.set_area_limit(limit)
    plan = one.get_prefill_chunk_plan(ratio, size, has_compressed=has_compressed)
    bound = min(limit, dsv4.reserved_area(one, ratio, size, has_compressed))
    assert [begin for begin, *_ in plan] == [0, *(end for _, end, *_ in plan[:-1])]
    assert plan[-1][1] == len(pairs)
    assert all(end - begin == 1 or area((begin, end, *rest)) <= bound for begin, end, *rest in plan)


@given(pairs=requests, ratio=ratios, size=sizes, limit=st.integers(1, 40_000))
def test_chunks_are_as_large_as_the_limit_lets_them(
    pairs: list[tuple[int, int]], ratio: int, size: int, limit: int
) -> None:
    one = step(pairs)
    dsv4.set_area_limit(limit)
    plan = one.get_prefill_chunk_plan(ratio, size)
    bound = min(limit, dsv4.reserved_area(one, ratio, size, None))
    dsv4.set_area_limit(None)
    for begin, end, *_ in plan[:-1]:
        ((*_, width),) = step(pairs[begin : end + 1]).get_prefill_chunk_plan(ratio, 10**6)
        assert (end + 1 - begin) * width > bound


@pytest.mark.parametrize(("limit", "chunks"), [(400, 1), (399, 2), (200, 2), (199, 4), (1, 4)])
def test_the_limit_is_met_exactly(limit: int, chunks: int) -> None:
    """Four new requests of 100 tokens without compression: 1, 2, 3 or 4 of them have an area of 100 each."""
    dsv4.set_area_limit(limit)
    plan = metadata([100] * 4, [0] * 4).get_prefill_chunk_plan(1, 4)
    assert len(plan) == chunks


def test_vllm_calls_the_planner_by_keyword() -> None:
    dsv4.set_area_limit(200)
    one = metadata([100] * 4, [0] * 4)
    plan = one.get_prefill_chunk_plan(compress_ratio=1, prefill_chunk_size=4, has_compressed=False)
    assert plan == [(0, 2, 0, 100), (2, 4, 0, 100)]


def test_the_limit_counts_the_compressed_part_of_the_layer() -> None:
    """Requests of 100 new after 300 cached tokens at ratio 4: 100 + 100 compressed + 100 + 127 gathered = 327 rows."""
    dsv4.set_area_limit(2 * 327)
    assert metadata([100] * 3, [300] * 3).get_prefill_chunk_plan(4, 4) == [(0, 2, 100, 327), (2, 3, 100, 327)]
    assert len(metadata([100] * 3, [300] * 3).get_prefill_chunk_plan(4, 4, has_compressed=False)) == 2


RESERVED = 4 * (WINDOW + MAX_TOKENS)
"""Rows for four requests without compression."""


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(
    ("limit", "requests", "size", "is_limited"),
    [
        (200, 4, 4, True),
        (400, 4, 4, False),  # one chunk holds them all
        (None, 4, 4, False),
        (RESERVED - 1, 30, 4, True),
        (RESERVED, 30, 4, False),  # split by the reservation itself
        (RESERVED + 1, 30, 4, False),
        (None, 30, 2, True),  # a chunk size below that of the start
    ],
)
def test_plans_that_were_split_below_the_reservation_are_counted(
    monkeypatch: pytest.MonkeyPatch, own: bool, limit: int | None, requests: int, size: int, is_limited: bool
) -> None:
    monkeypatch.setattr(WORKER, "start_chunk_size", 4)
    dsv4.set_planner(own=own)
    dsv4.set_area_limit(limit)
    plans, limited = WORKER.area_plans, WORKER.area_limited
    one = metadata([100] * requests, [0] * requests)
    one.get_prefill_chunk_plan(1, size)
    assert (WORKER.area_plans, WORKER.area_limited) == (plans + 1, limited + is_limited)
    one.get_prefill_chunk_plan(1, size, has_compressed=True)
    assert WORKER.area_plans == plans + 2


def test_a_step_without_prefill_has_no_chunks() -> None:
    dsv4.set_area_limit(10)
    assert metadata([], []).get_prefill_chunk_plan(1, 4) == []


@given(pairs=requests, ratio=ratios, size=sizes, has_compressed=compressed)
def test_our_planner_makes_vllms_own_plan(
    vllm_planner: Callable[..., Plan], pairs: list[tuple[int, int]], ratio: int, size: int, has_compressed: bool | None
) -> None:
    theirs = vllm_planner(step(pairs), ratio, size, has_compressed=has_compressed)
    dsv4.set_planner(own=True)
    assert step(pairs).get_prefill_chunk_plan(ratio, size, has_compressed=has_compressed) == theirs


@given(pairs=requests, ratio=ratios, size=sizes, limit=st.integers(1, 30_000))
def test_our_planner_keeps_the_area_limit_as_vllms_does(
    pairs: list[tuple[int, int]], ratio: int, size: int, limit: int
) -> None:
    dsv4.set_area_limit(limit)
    dsv4.set_planner(own=False)
    theirs = step(pairs).get_prefill_chunk_plan(ratio, size)
    dsv4.set_planner(own=True)
    assert step(pairs).get_prefill_chunk_plan(ratio, size) == theirs


def test_our_planner_plans_once_a_step_and_layer_type() -> None:
    dsv4.set_planner(own=True)
    one, before = metadata([100] * 4, [300] * 4), WORKER.area_plans
    for ratio in (1, 4, 128) * 20:
        one.get_prefill_chunk_plan(ratio, 4)
    assert WORKER.area_plans == before + 3
    metadata([100], [0]).get_prefill_chunk_plan(4, 4)
    assert WORKER.area_plans == before + 4


def test_our_planner_has_nothing_to_plan_without_prefill() -> None:
    dsv4.set_planner(own=True)
    assert metadata([], []).get_prefill_chunk_plan(1, 4) == []


class TestChunkSize:
    """A worker's constructor has the settings before the model is built. vLLM's own would bind this process to a
    device, so an empty one stands in; the engine's tests go through the real one."""

    @pytest.fixture(autouse=True)
    def _restored(self, monkeypatch: pytest.MonkeyPatch, vllm_planner: Callable[..., Plan]) -> None:
        from vllm.v1.attention.backends.mla.sparse_swa import DeepseekSparseSWAMetadata
        from vllm.v1.worker.worker_base import WorkerBase

        for attention in self.classes():
            monkeypatch.setattr(attention, "PREFILL_CHUNK_SIZE", attention.PREFILL_CHUNK_SIZE)
        monkeypatch.setattr(WORKER, "start_chunk_size", None)
        monkeypatch.setattr(DeepseekSparseSWAMetadata, "get_prefill_chunk_plan", vllm_planner)
        monkeypatch.setattr(WorkerBase, "__init__", self.construct)
        dsv4.install()

    @staticmethod
    def construct(worker: Any, vllm_config: Any, local_rank: int, rank: int, distributed_init_method: str) -> None:
        worker.seen = (dsv4.chunk_size(), local_rank, rank, distributed_init_method)

    @staticmethod
    def classes() -> list[Any]:
        modules = ("vllm.models.deepseek_v4.attention", "vllm.models.deepseek_v41.attention")
        return [importlib.import_module(name).DeepseekV4Attention for name in modules]

    def start(self, **settings: Any) -> Any:
        from vllm.v1.worker.worker_base import WorkerBase

        return WorkerBase(vllm_config(**settings), 0, rank=1, distributed_init_method="tcp://here")

    def test_vllms_own_is_four(self) -> None:
        self.start()
        assert dsv4.chunk_size() == WORKER.start_chunk_size == 4

    def test_the_setting_reaches_both_generations_before_the_model_is_built(self) -> None:
        worker = self.start(prefill_chunk_size=2, prefill_area_limit=700)
        assert worker.seen == (2, 0, 1, "tcp://here")
        assert [attention.PREFILL_CHUNK_SIZE for attention in self.classes()] == [2, 2]
        assert (WORKER.start_chunk_size, WORKER.area_limit) == (2, 700)

    def test_live_it_goes_down_and_back_up_to_the_start_value(self) -> None:
        self.start(prefill_chunk_size=3)
        for asked, seen in [(1, 1), (3, 3), (2, 2), (None, 3)]:
            dsv4.set_chunk_size(asked)
            assert [attention.PREFILL_CHUNK_SIZE for attention in self.classes()] == [seen, seen]

    def test_above_the_start_value_it_is_refused_and_stays(self) -> None:
        self.start(prefill_chunk_size=3)
        dsv4.set_chunk_size(2)
        with pytest.raises(ValueError, match="prefill_chunk_size 4 is above 3"):
            dsv4.set_chunk_size(4)
        assert dsv4.chunk_size() == 2

    def test_a_subclass_does_not_shadow_it(self) -> None:
        self.start(prefill_chunk_size=2)
        for attention in self.classes():
            for subclass in attention.__subclasses__():
                assert subclass.PREFILL_CHUNK_SIZE == 2


def test_the_reservation_by_hand() -> None:
    one = SimpleNamespace(prefill_max_model_len=4096, prefill_window_size=128, prefill_max_num_batched_tokens=512)
    assert dsv4.reserved_area(one, 128, 4, None) == 4 * (32 + 128 + 512)
    assert dsv4.reserved_area(one, 1, 4, None) == 4 * (128 + 512)
    assert dsv4.reserved_area(one, 1, 4, True) == 4 * (4096 + 128 + 512)
    assert dsv4.reserved_area(one, 4, 1, False) == 128 + 512
