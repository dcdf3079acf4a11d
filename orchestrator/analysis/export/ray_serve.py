"""A config of Ray Serve, for ``serve deploy`` and for a RayService.

Source: ``ray.serve.llm.LLMConfig`` and ``build_openai_app`` (Ray 2.50 and later), and
``ray.serve.schema.ServeDeploySchema``.
"""

from __future__ import annotations

from typing import Any

from orchestrator.analysis.export.deployment import Deployment, Placement
from orchestrator.analysis.export.manifest import checked_name, dump, gpus_of_replica


def ray_serve(what: Deployment, where: Placement) -> str:
    """One application with one replica; the engine's workers get one bundle each."""
    name, model = checked_name(where), where.model or what.model
    gpus = gpus_of_replica(what)
    bundle: dict[str, float] = {"CPU": 1, "GPU": 1} if gpus else {"CPU": 1}
    config: dict[str, Any] = {
        "model_loading_config": {"model_id": name, "model_source": model},
        "engine_kwargs": what.engine_args,
        "placement_group_config": {"bundles": [bundle] * max(1, gpus), "strategy": "PACK"},
        "deployment_config": {"num_replicas": 1},
        "runtime_env": {"env_vars": dict(sorted(what.env.items()))},
    }
    if not gpus:
        config["accelerator_config"] = {"kind": "cpu"}
    return dump(
        what,
        {
            # Reachable from this host alone; give 0.0.0.0 for others.
            "http_options": {"host": "127.0.0.1", "port": where.port},
            "applications": [
                {
                    "name": name,
                    "route_prefix": "/",
                    "import_path": "ray.serve.llm:build_openai_app",
                    "args": {"llm_configs": [config]},
                }
            ],
        },
    )
