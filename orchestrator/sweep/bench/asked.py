"""From what was typed to the plan of a benchmark."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import UserError
from orchestrator.measurement import RatePlan, Slo
from orchestrator.sweep.bench.options import choose_load, parse_rates, parse_slo
from orchestrator.sweep.bench.plan import DEFAULT_BLOCKS, BenchPlan, FindPlan, with_rate
from orchestrator.sweep.spec import RateSearchSection, SweepSpec
from orchestrator.sweep.spec_file import load_spec
from orchestrator.workloads import FixedLength, RandomTokens, WorkloadKind

QUICK_INPUT, QUICK_OUTPUT, QUICK_REQUESTS = 1024, 128, 100
"""Tokens of a prompt and of its answer, and requests of a block, where neither a spec nor the user says otherwise."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Options of the command, as it has them; None or empty for what was not given."""

    spec: Path | None = None
    is_url: bool = False
    input_len: int | None = None
    output_len: int | None = None
    requests: int | None = None
    rate: float | None = None
    concurrency: int | None = None
    blocks: int = DEFAULT_BLOCKS
    seed: int | None = None
    slo: Sequence[str] = ()
    slo_share: float | None = None
    find_rate: str | None = None
    probe_requests: int | None = None


def make_plan(asked: Asked) -> tuple[SweepSpec | None, BenchPlan]:
    """The spec, if there is one, and the plan.

    Raises:
        UserError: One line that names the option or the spec's key.
    """
    if asked.spec is None and not asked.is_url:
        raise UserError("bench: give a spec, for instance search_spaces/cpu_demo.yaml, or --url and --model")
    _check_numbers(asked)
    spec = None if asked.spec is None else load_spec(asked.spec)
    slo = parse_slo(asked.slo, asked.slo_share, spec.slo if spec is not None else None)
    find = _find_plan(asked, spec, slo)
    given = None if spec is None else spec.block_load()
    load = choose_load(given, asked.rate, asked.concurrency) if find is None else with_rate(given, find.rates.low)
    # Prompts that an earlier bench sent to a server may still be in its prefix cache.
    seed = asked.seed if asked.seed is not None else None if asked.is_url or spec is None else spec.seed
    seed = secrets.randbelow(2**31) if seed is None else seed
    if spec is None:
        workload = _quick_workload(asked)
        return None, BenchPlan(
            study="bench", workload=workload, load=load, seed=seed, blocks=asked.blocks, slo=slo, find=find
        )
    lengths = {"--input-len": asked.input_len, "--output-len": asked.output_len}
    refuse(lengths, "is only for a bench without a spec, whose workload has its own lengths")
    return spec, BenchPlan(
        study=spec.study,
        workload=spec.block_workload(),
        load=load,
        seed=seed,
        blocks=asked.blocks,
        requests=asked.requests,
        slo=slo,
        gpus=spec.resources.gpus,
        wants_hits=spec.blocks.prefix_cache_hits == "wanted",
        find=find,
        metric=spec.objective.metric,
    )


def _check_numbers(asked: Asked) -> None:
    least = {"input_len": 1, "output_len": 1, "requests": 1, "blocks": 1, "probe_requests": 1, "seed": 0}
    for name, low in least.items():
        value = getattr(asked, name)
        if value is not None and value < low:
            raise UserError(f"--{name.replace('_', '-')}: must be {low} or more, got {value}")


def refuse(options: Mapping[str, object], why: str) -> None:
    """Raise UserError for the first option that was given."""
    for name, value in options.items():
        if value is not None:
            raise UserError(f"{name}: {why}")


def _find_plan(asked: Asked, spec: SweepSpec | None, slo: Slo | None) -> FindPlan | None:
    if asked.find_rate is None:
        refuse({"--probe-requests": asked.probe_requests}, "is only for --find-rate")
        return None
    own = {"--rate": asked.rate, "--concurrency": asked.concurrency, "--requests": asked.requests}
    refuse(own, "cannot go with --find-rate, which sets the rate and has --probe-requests")
    low, high = parse_rates(asked.find_rate)
    if slo is None:
        raise UserError("--find-rate: needs an SLO; give --slo, for instance --slo ttft:500")
    section = spec.rate_search if spec is not None else None
    section = section or RateSearchSection(low=low, high=high)
    return FindPlan(
        rates=RatePlan(low=low, high=high, probes=section.probes, precision=section.precision, share=slo.share),
        requests=asked.probe_requests or section.requests,
    )


def _quick_workload(asked: Asked) -> WorkloadKind:
    return RandomTokens(
        prompts=asked.requests or QUICK_REQUESTS,
        input_len=FixedLength(tokens=asked.input_len or QUICK_INPUT),
        output_len=FixedLength(tokens=asked.output_len or QUICK_OUTPUT),
    )
