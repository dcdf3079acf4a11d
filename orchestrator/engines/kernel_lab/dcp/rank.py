"""What a rank other than 0 runs, whatever carries it: a process, a thread or a Ray actor."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from orchestrator.engines.kernel_lab.args import LabArgs
from orchestrator.engines.kernel_lab.dcp.collectives import Collective
from orchestrator.engines.kernel_lab.dcp.peers import Command, EndBlock, Resize
from orchestrator.engines.kernel_lab.dcp.share import Share
from orchestrator.engines.kernel_lab.model import LabModel
from orchestrator.planning import warm_up
from orchestrator.vllm_plugin import PluginSettings


@dataclass(frozen=True)
class RankSetup:
    """What all ranks of an engine are built from.

    Attributes:
        dtype: Of caches and products.
        device: Of rank 0. With GPUs, each rank takes the next one of its machine.
    """

    args: LabArgs
    plugin: PluginSettings
    dtype: torch.dtype
    device: torch.device

    @property
    def ranks(self) -> int:
        """Ranks of the engine."""
        return self.args.decode_context_parallel_size

    def device_of(self, rank: int) -> torch.device:
        """Where a rank computes."""
        if self.device.type != "cuda":
            return self.device
        return torch.device("cuda", ((self.device.index or 0) + rank) % torch.cuda.device_count())


class Rank:
    """One rank with its shard of the caches and its heads."""

    def __init__(self, setup: RankSetup, collective: Collective) -> None:
        # Or the first step would load the planner's compiled code.
        warm_up()
        self._collective = collective
        self._device = setup.device_of(collective.rank)
        share = Share(collective, setup.args.cp_kv_cache_interleave_size)
        self._model = LabModel(setup.args, setup.plugin, setup.dtype, self._device, share=share)

    def handle(self, command: Command) -> None:
        """Do what rank 0 says. A step that fails is this rank's last: it leaves the group, where others wait for it.

        Raises:
            LabError: In a step, also ``rank-lost``.
        """
        if isinstance(command, Resize):
            self._model.resize(command.cap, command.max_num_seqs)
        elif isinstance(command, EndBlock):
            self._model.check_canaries()
        else:
            try:
                with torch.inference_mode():
                    self._model.outputs(*command.batches(self._device), _go_on)
            except BaseException:
                self._collective.close()
                raise


def _go_on() -> None:
    """Only rank 0 knows whether to end a step early; the others then lose it."""
