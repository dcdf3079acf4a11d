"""vLLM over Ray: an engine whose ranks are Ray actors that vLLM itself starts, in the placement group that it is given.

The engine's own actor lies in the first bundle without a GPU. vLLM finds the group it is in
(``EngineArgs.create_engine_config``), and its Ray executor takes one bundle with one GPU for each rank, those of the
engine's node first (``get_bundles_sorted_by_node``). Pure; imports no Ray.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.cluster.placement import Parallel, PlacementError
from orchestrator.engines import EngineConfig

if TYPE_CHECKING:
    from orchestrator.cluster.engine_actor import EngineKind


def is_over_ray(kind: EngineKind, config: EngineConfig) -> bool:
    """Whether vLLM was told to start its ranks with Ray. Without it they are processes on the node of the engine."""
    return kind != "kernel_lab" and config.args.get("distributed_executor_backend") == "ray"


def parallel_over_ray(kind: EngineKind, config: EngineConfig) -> Parallel:
    """The ranks of an engine over Ray.

    Raises:
        PlacementError: vLLM cannot be given a placement group for it, or its degrees do not go together.
    """
    if kind == "vllm_serve":
        raise PlacementError(
            "vllm serve cannot be given a placement group and would reserve its GPUs a second time: take engine.kind "
            "vllm for distributed_executor_backend ray"
        )
    try:
        parallel = Parallel.of_vllm(config.args)
    except ValueError as error:
        raise PlacementError(str(error)) from error
    if parallel.data > 1:
        raise PlacementError(
            "data parallel replicas over Ray make placement groups of their own: sweep one replica "
            "(data_parallel_size 1), or keep all of them on one node (distributed_executor_backend mp)"
        )
    return parallel


def require_gpus(parallel: Parallel, gpus: float) -> None:
    """Raise PlacementError unless each rank has one GPU: vLLM counts bundles by their GPUs."""
    if gpus != parallel.ranks:
        raise PlacementError(
            f"distributed_executor_backend ray needs one GPU for each of the {parallel.ranks} ranks: resources.gpus is "
            f"{gpus:g}"
        )
