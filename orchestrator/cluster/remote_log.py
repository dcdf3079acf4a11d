"""The end of an engine's log, on whatever node it lies.

Ray is imported inside the functions, as in ``actor``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from orchestrator.cluster.explain import read_tail

_TIMEOUT_S: Final = 30.0


def tail_of(log_path: str, node_id: str | None) -> list[str]:
    """The last lines of a log.

    Args:
        node_id: Ray's id of the node that wrote it; None for this one. Where it does not answer, which may be what
            failed, the log is looked for here: the folder may be shared.
    """
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    path = Path(log_path)
    if node_id is None or node_id == ray.get_runtime_context().get_node_id():
        return read_tail(path)
    strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
    options = {"num_cpus": 0, "scheduling_strategy": strategy, "max_retries": 0}
    try:
        lines: list[str] = ray.get(ray.remote(read_tail).options(**options).remote(path), timeout=_TIMEOUT_S)
    except RayError:
        return read_tail(path)
    return lines
