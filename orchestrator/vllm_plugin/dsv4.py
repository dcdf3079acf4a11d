"""DeepSeek-V4 prefill: the chunk size behind the reservation, the area limit, and whose planner makes the chunks."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from orchestrator.vllm_plugin.guard import SYMBOLS, installed_version, parse_release, symbols_of
from orchestrator.vllm_plugin.settings import settings_of
from orchestrator.vllm_plugin.state import WORKER


def install() -> None:
    """Wrap the planner, and the worker's constructor: the first place that has the config before the model is built."""
    from vllm.v1.attention.backends.mla.sparse_swa import DeepseekSparseSWAMetadata
    from vllm.v1.worker.worker_base import WorkerBase

    DeepseekSparseSWAMetadata.get_prefill_chunk_plan = _limited(DeepseekSparseSWAMetadata.get_prefill_chunk_plan)
    WorkerBase.__init__ = _applying_settings(WorkerBase.__init__)


def chunk_size() -> int:
    """The chunk size in force, in requests."""
    return int(_attention_classes()[0].PREFILL_CHUNK_SIZE)


def set_chunk_size(value: int | None) -> None:
    """Lower the chunk size of a running engine, or put it back up to the value it started with (None).

    Raises:
        ValueError: Above the start value: the gather buffer was reserved for that and is locked.
    """
    start = WORKER.start_chunk_size or chunk_size()
    if value is not None and value > start:
        raise ValueError(f"prefill_chunk_size {value} is above {start}, for which the engine reserved its buffer")
    for attention in _attention_classes():
        attention.PREFILL_CHUNK_SIZE = start if value is None else value


def set_area_limit(value: int | None) -> None:
    """Lower the area limit (rows) of later plans; None leaves the reservation's own."""
    WORKER.area_limit = value


def set_planner(*, own: bool) -> None:
    """Choose whose planner makes later plans. Ours is compiled here, so that no request waits for it."""
    if own:
        from orchestrator.planning import warm_up

        warm_up()
    WORKER.own_planner = own


def reserved_area(metadata: Any, compress_ratio: int, prefill_chunk_size: int, has_compressed: bool | None) -> int:
    """Rows that the warm-up reserved for one layer type: the planner's own limit (``get_prefill_chunk_plan``, 0.28
    to 0.32)."""
    if has_compressed is None:
        has_compressed = compress_ratio > 1
    compressed = -(-metadata.prefill_max_model_len // compress_ratio) if has_compressed else 0
    return int(
        prefill_chunk_size * (compressed + metadata.prefill_window_size + metadata.prefill_max_num_batched_tokens)
    )


def _limited(planner: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(planner)
    def get_prefill_chunk_plan(self: Any, compress_ratio: int, prefill_chunk_size: int, **kwargs: Any) -> Any:
        if WORKER.own_planner:
            return _own_plan(self, compress_ratio, prefill_chunk_size, **kwargs)
        limit, asked = WORKER.area_limit, prefill_chunk_size
        if limit is not None and self.num_prefills > 0:
            reserved = reserved_area(self, compress_ratio, prefill_chunk_size, kwargs.get("has_compressed"))
            if limit < reserved:
                # The planner multiplies this number by an integer; a fraction makes the product the limit exactly.
                prefill_chunk_size = Fraction(limit * prefill_chunk_size, reserved)  # type: ignore[assignment]
        plan = planner(self, compress_ratio, prefill_chunk_size, **kwargs)
        _count(self, compress_ratio, asked, kwargs.get("has_compressed"), plan)
        return plan

    return get_prefill_chunk_plan


def _own_plan(metadata: Any, compress_ratio: int, prefill_chunk_size: int, **kwargs: Any) -> Any:
    """Plan by our own code. The step's metadata keeps the planner, so that its other layers find the plan."""
    from orchestrator.planning import planner_of

    if metadata.num_prefills == 0:
        return []
    fresh: list[Any] = []
    planner = planner_of(metadata, area_cap=WORKER.area_limit, on_plan=fresh.append)

    def get_prefill_chunk_plan(compress_ratio: int, prefill_chunk_size: int, has_compressed: bool | None = None) -> Any:
        plan = planner(compress_ratio, prefill_chunk_size, has_compressed)
        if fresh:
            _count(metadata, compress_ratio, prefill_chunk_size, has_compressed, fresh.pop())
        return plan

    metadata.get_prefill_chunk_plan = get_prefill_chunk_plan
    return get_prefill_chunk_plan(compress_ratio, prefill_chunk_size, **kwargs)


def _count(metadata: Any, compress_ratio: int, prefill_chunk_size: int, has_compressed: bool | None, plan: Any) -> None:
    WORKER.area_plans += 1
    if len(plan) < 2:
        return
    limit, start = reserved_area(metadata, compress_ratio, prefill_chunk_size, has_compressed), WORKER.start_chunk_size
    at_start = limit if start is None else reserved_area(metadata, compress_ratio, start, has_compressed)
    if WORKER.area_limit is not None:
        limit = min(limit, WORKER.area_limit)
    WORKER.area_limited += limit < at_start


def _applying_settings(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def init_with_settings(self: Any, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        settings = settings_of(vllm_config)
        if settings.prefill_chunk_size is not None:
            for attention in _attention_classes():
                attention.PREFILL_CHUNK_SIZE = settings.prefill_chunk_size
        WORKER.start_chunk_size = chunk_size()
        set_area_limit(settings.prefill_area_limit)
        set_planner(own=settings.planner == "chunksmith")
        init(self, vllm_config, *args, **kwargs)

    return init_with_settings


def _attention_classes() -> list[Any]:
    release = parse_release(installed_version() or "")
    known = symbols_of(release) if release is not None else SYMBOLS
    holders = [symbol for symbol in known if symbol.name.endswith(".PREFILL_CHUNK_SIZE")]
    return [getattr(importlib.import_module(symbol.module), symbol.name.split(".")[0]) for symbol in holders]
