"""An exported configuration, started as it will be deployed and measured against the baseline once more."""

from orchestrator.sweep.deployed.measure import DeployedRatio, MakeServer, RunningServer, measure_deployed, server_in
from orchestrator.sweep.deployed.server import ServedScript, Server

__all__ = [
    "DeployedRatio",
    "MakeServer",
    "RunningServer",
    "ServedScript",
    "Server",
    "measure_deployed",
    "server_in",
]
