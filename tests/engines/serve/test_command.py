"""The command of a server: what is added to the one that would be deployed, and what a user may decide."""

from __future__ import annotations

from orchestrator.engines import EngineConfig
from orchestrator.engines.serve import serve_arguments, server_command
from orchestrator.vllm_plugin import PluginSettings


def test_a_measured_server_is_the_deployed_one_and_its_rpc() -> None:
    config = EngineConfig(model="org/model", args={"max_num_seqs": 8}, plugin=PluginSettings(mla_workspace_rows=64))
    words = server_command(config, "/run/x.sock")
    deployed = serve_arguments(config)
    assert words[:2] == ["vllm", "serve"]
    assert words[2 : 2 + len(deployed)] == deployed
    added = words[2 + len(deployed) :]
    assert added[added.index("--uds") + 1] == "/run/x.sock"
    assert added[added.index("--middleware") + 1] == "orchestrator.vllm_plugin.server.ServerRpc"
    assert added[added.index("--api-server-count") + 1] == "1"
    assert "--port" not in words


def test_defaults_for_sampling_that_come_with_a_model_are_left_out_unless_asked_for() -> None:
    words = server_command(EngineConfig(model="org/model"), "s")
    assert words[words.index("--generation-config") + 1] == "vllm"
    asked = server_command(EngineConfig(model="org/model", args={"generation_config": "auto"}), "s")
    assert asked.count("--generation-config") == 1
    assert asked[asked.index("--generation-config") + 1] == "auto"
