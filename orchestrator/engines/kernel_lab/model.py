"""All layers of an engine with their workspaces: runs one step of the scheduler at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from orchestrator.engines.kernel_lab.args import LabArgs
from orchestrator.engines.kernel_lab.batch import Batch, Member
from orchestrator.engines.kernel_lab.cache_groups import CacheGroups
from orchestrator.engines.kernel_lab.chunking import ChunkKnobs
from orchestrator.engines.kernel_lab.counters import LabCounters, Tally
from orchestrator.engines.kernel_lab.dcp.peers import EndBlock, Peers, Resize, Step, together
from orchestrator.engines.kernel_lab.dcp.share import Share
from orchestrator.engines.kernel_lab.errors import LabError
from orchestrator.engines.kernel_lab.head import TokenHead
from orchestrator.engines.kernel_lab.kernels import kernels_for
from orchestrator.engines.kernel_lab.layer_sets import GUARD_BYTES, MlaSet, V4Set, changed_knobs
from orchestrator.engines.kernel_lab.layers import LayerFactory, v4_shape
from orchestrator.engines.kernel_lab.roof import Roof
from orchestrator.engines.kernel_lab.scheduler import Granted, LabRequest
from orchestrator.engines.kernel_lab.workspace import WorkspaceManager
from orchestrator.planning import PREFILL_CHUNK_SIZE
from orchestrator.vllm_plugin import PluginSettings


class Sampled(NamedTuple):
    """A new token of a request, and the gap to the second best log probability."""

    request: LabRequest
    token: int
    gap: float


class LabModel:
    """The layers, caches and workspaces of one engine. Only one thread may call it at a time.

    Args:
        dtype: Of caches and products.
        plugin: Values of the plugin's knobs at start.
        share: This rank's part under decode context parallelism.
        peers: The other ranks, on rank 0; it waits until they are ready. Without them no token is sampled where there
            is a share.

    Raises:
        LabError: Its workspaces or caches do not fit, its shape is wrong, or another rank says so.
    """

    def __init__(
        self,
        args: LabArgs,
        plugin: PluginSettings,
        dtype: torch.dtype,
        device: torch.device,
        *,
        share: Share | None = None,
        peers: Peers | None = None,
    ) -> None:
        self._peers = peers
        self.kernels = kernels_for(device)
        self.tally = Tally(self.kernels)
        self._groups = CacheGroups(args, device)
        self._manager = WorkspaceManager(device, guard_bytes=GUARD_BYTES)
        self._device = device
        self._start_cap = self._cap = plugin.mla_workspace_rows
        self._start_knobs = self.knobs = ChunkKnobs(
            max_model_len=args.max_model_len,
            window=args.window,
            max_num_batched_tokens=args.max_num_batched_tokens,
            prefill_chunk_size=plugin.prefill_chunk_size or PREFILL_CHUNK_SIZE,
            prefill_area_limit=plugin.prefill_area_limit,
            order=args.chunk_order,
            launch_rows=args.launch_rows,
        )
        factory = LayerFactory(args, self._groups, self.kernels, dtype, device, share)
        mla = factory.mla_layers()
        self.mla = MlaSet(args, mla, self.kernels, self.tally, cap=self._start_cap, share=share) if mla else None
        self._v4 = [
            V4Set(kind, factory.v4_layers(kind, self._manager), self.knobs, self.tally) for kind in args.v4_kinds
        ]
        for kind in args.v4_kinds:
            v4_shape(args).reserve(self._manager, kind, dtype, self.knobs.prefill_chunk_size)
        self._manager.lock()
        sets = self._sets()
        sizes = [one.output_size for one in sets for _ in one.layers]
        self._head = TokenHead(sizes, args.vocab_size, args.seed, device) if share is None or peers else None
        self._max_num_seqs = args.max_num_seqs
        if peers is not None:
            peers.collect()

    def retune(self, *, cap: int | None, max_num_seqs: int, **knobs: int | str | None) -> None:
        """Put live values into force; None is the value at start.

        Args:
            cap: Of the context workspace, in rows.
            max_num_seqs: In force, which the size of that workspace depends on too.
            knobs: Fields of ``ChunkKnobs``.

        Raises:
            LabError: ``out-of-memory``; nothing has changed then.
        """
        self._resize_all(self._start_cap if cap is None else cap, max_num_seqs)
        self.knobs = changed_knobs(self._start_knobs, **knobs)
        for one in self._v4:
            one.set_knobs(self.knobs)

    def resize(self, cap: int | None, max_num_seqs: int) -> None:
        """Give this rank's context workspace the rows of another cap.

        Raises:
            LabError: ``out-of-memory``; the old size is in force again.
        """
        if self.mla is not None:
            self.mla.resize(cap, max_num_seqs)
            self._cap, self._max_num_seqs = cap, max_num_seqs

    def check_canaries(self) -> None:
        """Raise LabError with the class ``workspace-overrun`` if something was written beside a workspace."""
        for manager in self._managers():
            manager.check_canaries()

    def largest_request(self) -> int:
        """Tokens of the largest request that the caches can ever hold."""
        return self._groups.largest_request()

    def admit(self, request: LabRequest) -> bool:
        """Give a request its blocks; False if there are not enough now."""
        tables = self._groups.allocate(request.total_len)
        if tables is None:
            return False
        request.tables = tables
        return True

    def release(self, request: LabRequest) -> None:
        """Take a request's blocks back."""
        self._groups.free(request.tables)

    def step(self, granted: Sequence[Granted], check: Callable[[], None]) -> list[Sampled]:
        """Compute a step; return the new tokens of the requests whose known tokens are all computed.

        Args:
            check: Called before each layer; it raises to end the step.
        """
        # As in vLLM, one new token is a decode step, also where it is the last of a prompt.
        prefills, decodes = ([one for one in granted if (one.count > 1) is many] for many in (True, False))
        ordered = [*prefills, *decodes]
        with torch.inference_mode():
            batches = self._batch(prefills), self._batch(decodes)
            if self._peers is None:
                outputs = self.outputs(*batches, check)
            else:
                outputs = together(self._peers, Step.of(*batches), lambda: self.outputs(*batches, check))
            for one in ordered:
                one.request.computed += one.count
            sampling = [place for place, one in enumerate(ordered) if one.request.computed == one.request.known]
            if not sampling:
                return []
            assert self._head is not None
            best = self._head.best_two([output[sampling] for output in outputs])
        return [Sampled(ordered[place].request, token, gap) for place, token, gap in zip(sampling, *best, strict=True)]

    def outputs(self, prefills: Batch, decodes: Batch, check: Callable[[], None]) -> list[torch.Tensor]:
        """Each layer's output at the last position of every request, prefills first; all heads also where this rank
        computes some of them only."""
        return [output for one in self._sets() for output in one.run(prefills, decodes, check)]

    def begin_block(self) -> None:
        """Count anew."""
        self.tally.reset()
        for manager in self._managers():
            manager.reset_peak()

    def end_block(self, roof: Roof) -> LabCounters:
        """What was counted since :meth:`begin_block`.

        Raises:
            LabError: ``workspace-overrun``: something was written beside a workspace.
        """
        tally, managers = self.tally, self._managers()
        if self._peers is None:
            self.check_canaries()
        else:
            together(self._peers, EndBlock(), self.check_canaries)
        return LabCounters(
            prefill_s=tally.seconds["prefill"],
            gather_s=tally.seconds["gather"],
            all_gather_s=tally.seconds["all-gather"],
            attend_s=tally.seconds["attend"],
            chunks=tally.chunks,
            launches=tally.launches,
            gathered_rows=tally.gathered_rows,
            padded_rows=tally.padded_rows,
            workspace_peak_bytes=sum(manager.peak_bytes for manager in managers),
            workspace_reserved_bytes=sum(manager.current_bytes for manager in managers),
            scratch_bytes=self.kernels.scratch.current_bytes,
            gather_bytes=tally.gather_bytes,
            all_gather_bytes=tally.all_gather_bytes,
            flops=tally.flops,
            roof=roof,
        )

    def _resize_all(self, cap: int | None, max_num_seqs: int) -> None:
        old = Resize(self._cap, self._max_num_seqs)
        self.resize(cap, max_num_seqs)
        if self._peers is None:
            return
        try:
            together(self._peers, Resize(cap, max_num_seqs), lambda: None)
        except LabError as error:
            if error.label != "rank-lost":
                together(self._peers, old, lambda: self.resize(old.cap, old.max_num_seqs))
            raise

    def _sets(self) -> list[MlaSet | V4Set]:
        return [*([] if self.mla is None else [self.mla]), *self._v4]

    def _managers(self) -> list[WorkspaceManager]:
        return [self._manager] if self.mla is None else [self._manager, self.mla.context.manager]

    def _batch(self, granted: Sequence[Granted]) -> Batch:
        members, first = [], 0
        for one in granted:
            request = one.request
            members.append(Member(request.tables, request.hashes, one.start + one.count, one.count, first))
            first += one.count
        return Batch(members, self._device)
