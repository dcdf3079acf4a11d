"""Measure an exported configuration against the exported baseline, in pairs of blocks over HTTP."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

import psutil

from orchestrator.errors import ChunksmithError, UserError
from orchestrator.measurement import GOODPUT_AT_SLO, MeasuredBlock, Role, measure_pairs
from orchestrator.measurement.loadgen import Target
from orchestrator.measurement.stats import RatioInterval
from orchestrator.search import Point
from orchestrator.sweep.bench import BenchPlan, UrlTarget
from orchestrator.sweep.bench.blocks import serve_block
from orchestrator.sweep.deployed.server import ServedScript, Server
from orchestrator.sweep.serving import seed_of
from orchestrator.sweep.spec import SweepSpec

TRIES: Final = 3
"""How often a block is served whose load generator was late."""

ROOM: Final = 1.25
"""A second server is started beside the first if so many times the first one's memory is free."""


class RunningServer(Protocol):
    """A server that is ready.

    Attributes:
        target: Where it answers, and the name of its model.
        log_path: Of what it prints.
    """

    target: Target
    log_path: Path

    @property
    def memory_bytes(self) -> int:
        """What its processes hold."""

    def stop(self) -> None:
        """End it; nothing of it is left."""


MakeServer = Callable[[ServedScript, Role], RunningServer]


@dataclass(frozen=True, kw_only=True)
class DeployedRatio:
    """What was measured of the two servers, and what the run says of the point.

    Attributes:
        metric: Objective of the run.
        reported_low: Lower end of the run's interval of the ratio; None for a point that the run did not confirm. So
            are the other two:
        reported: The run's ratio.
        reported_high: Upper end of its interval.
    """

    measured: RatioInterval
    metric: str
    reported_low: float | None = None
    reported: float | None = None
    reported_high: float | None = None

    @property
    def is_inside(self) -> bool:
        """Whether the measured ratio lies in the run's interval. Its own interval does not count here."""
        low, high = self.reported_low, self.reported_high
        return low is not None and high is not None and low <= self.measured.ratio <= high

    @property
    def is_contradiction(self) -> bool:
        """Whether the two intervals have no ratio in common, which chance alone hardly explains."""
        low, high = self.reported_low, self.reported_high
        return low is not None and high is not None and (self.measured.high < low or self.measured.low > high)


def measure_deployed(
    spec: SweepSpec,
    point: Point,
    scripts: Mapping[Role, ServedScript],
    *,
    trial: int,
    vocab_size: int,
    make_server: MakeServer,
    say: Callable[[str], None],
) -> RatioInterval:
    """Start both scripts and compare them as the run's confirmation does: the same workload and load, as many pairs,
    as many starts, the roles in turns, prompts that nobody has sent yet.

    Both servers of a start run at once where memory allows it; otherwise, and always on GPUs, one at a time. A fresh
    server serves one block first that does not count.

    Args:
        point: Of the trial; it may choose the workload and the load.
        vocab_size: Token ids of prompts are below this.
        make_server: Starts a script; raises ChunksmithError.
        say: Gets one line for each step.

    Raises:
        UserError: The objective is none that one block gives.
        ChunksmithError: A server does not start or does not serve. None is left running.
    """
    objective = spec.objective
    if objective.metric == GOODPUT_AT_SLO:
        raise UserError(f"--measure: {GOODPUT_AT_SLO} needs a search; chunksmith bench --url --find-rate makes one.")
    plan = BenchPlan(
        study=spec.study,
        workload=spec.block_workload(point),
        load=spec.block_load(point),
        seed=seed_of(spec.seed, "deployed", trial),
        slo=spec.slo,
        gpus=spec.resources.gpus,
        wants_hits=spec.blocks.prefix_cache_hits == "wanted",
        metric=objective.metric,
    )
    pairs = dataclasses.replace(spec.confirm_plan(), warmup_blocks=0, is_one_at_a_time=spec.resources.gpus > 0)
    with _Servers(scripts, plan, vocab_size, make_server, say) as servers:

        def run(role: Role, pair: int, dropped: bool) -> MeasuredBlock:
            block = _block(servers.target(role, pairs.start_of(pair)), plan, pair + 1)
            say(f"pair {pair + 1} of {pairs.max_pairs}, {role}: {objective.metric} {block.metrics[plan.metric]:.4g}")
            return dataclasses.replace(block, role=role, pair=pair, dropped=dropped)

        return measure_pairs(run, pairs, metric=objective.metric, direction=objective.direction).interval


class _Servers:
    """The servers of both roles, one or two at a time."""

    def __init__(
        self,
        scripts: Mapping[Role, ServedScript],
        plan: BenchPlan,
        vocab_size: int,
        make_server: MakeServer,
        say: Callable[[str], None],
    ) -> None:
        self._scripts, self._plan, self._vocab_size = scripts, plan, vocab_size
        self._make_server, self._say = make_server, say
        self._running: dict[Role, tuple[RunningServer, UrlTarget]] = {}
        self._start = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_all()

    def target(self, role: Role, start: int) -> UrlTarget:
        """The role's warm server of a start. Those of the start before end."""
        if start != self._start:
            self._stop_all()
            self._start = start
        if role not in self._running:
            if self._running and not self._has_room():
                self._stop_all()
            server = self._make_server(self._scripts[role], role)
            self._running[role] = server, UrlTarget(server.target, vocab_size=self._vocab_size)
            # Block 0, whose prompts no pair has.
            _block(self._running[role][1], self._plan, 0)
            self._say(f"{role}: vllm serve is warm (log: {server.log_path})")
        return self._running[role][1]

    def _has_room(self) -> bool:
        """Whether a second server fits beside the first. A GPU is full by then: vLLM takes its share of it."""
        held = sum(server.memory_bytes for server, _ in self._running.values())
        return self._plan.gpus == 0 and psutil.virtual_memory().available > ROOM * held

    def _stop_all(self) -> None:
        while self._running:
            _, (server, _) = self._running.popitem()
            server.stop()


def _block(target: UrlTarget, plan: BenchPlan, number: int) -> MeasuredBlock:
    """One complete block; with other prompts again when the load generator was late. Raises ChunksmithError."""
    why: str | None = None
    for attempt in range(TRIES):
        block, _ = serve_block(target, plan, plan.load, number + 1_000_000 * attempt)
        why = block.failure
        failed = [one for one in block.result.requests if one.error is not None]
        if block.outcome == "failed" or failed:
            detail = why or f"{len(failed)} of its requests failed, the first with: {failed[0].error}"
            raise ChunksmithError(f"{target.name}: a block failed: {detail}")
        if block.outcome == "complete" and block.metrics[plan.metric] is not None:
            return block
    raise ChunksmithError(f"{target.name}: {TRIES} blocks in a row do not count, the last one: {why or 'no metric'}")


def server_in(folder: Path, start_s: float) -> MakeServer:
    """Starts scripts with their files in a folder, each in one of its own.

    Args:
        folder: Exists.
        start_s: Seconds that a start may take.
    """
    count = 0

    def make(script: ServedScript, role: Role) -> Server:
        nonlocal count
        count += 1
        own = folder / f"{count}-{role}"
        own.mkdir()
        return Server(script, role, own, start_s=start_s)

    return make
