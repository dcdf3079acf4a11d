"""Every figure of a benchmark, from its complete blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orchestrator.engines import RequestTimeline
from orchestrator.measurement import LATENCIES, MeasuredBlock, Slo, latency_samples
from orchestrator.sweep.bench.intervals import Figure, latency_figures, ratio_figure, share_figure

SLO_SHARE = "slo_share"
"""Figure of the share of requests that keep the SLO; one that failed does not."""

Figures = dict[str, Figure | None]
"""By metric, in its unit; None where no request gives it."""


def figures_of(blocks: Sequence[MeasuredBlock], *, slo: Slo | None = None, gpus: float = 0.0) -> Figures:
    """Figures for every metric of ``orchestrator.measurement.METRIC_NAMES``, and ``SLO_SHARE``.

    The values are what ``vllm bench serve`` gives for the requests of all blocks in one run: latencies over all
    requests that ended well, rates over the seconds of all blocks. ``prefill_token_throughput`` is a mean over the
    blocks, since each has a span of its own.

    Args:
        blocks: Those that count.
        gpus: For the figures per GPU; 0 gives none.
    """
    figures: Figures = {}
    for latency in LATENCIES:
        samples = [latency_samples(latency, block.result.requests) for block in blocks]
        for stat, figure in latency_figures(samples).items():
            figures[f"{stat}_{latency}_ms"] = figure and figure.scaled(1000.0)
    seconds = [block.result.duration_s for block in blocks]

    ended = [[one for one in block.result.requests if one.error is None] for block in blocks]

    def total(of: Callable[[RequestTimeline], float]) -> list[float]:
        return [float(sum(map(of, requests))) for requests in ended]

    rates: Figures = {
        "request_throughput": ratio_figure([len(requests) for requests in ended], seconds),
        "output_throughput": ratio_figure(total(lambda one: one.output_tokens), seconds),
        "total_token_throughput": ratio_figure(total(lambda one: one.prompt_tokens + one.output_tokens), seconds),
        "prefill_token_throughput": _mean_of_blocks(blocks, "prefill_token_throughput"),
        "request_goodput": None,
    }
    figures[SLO_SHARE] = None
    if slo is not None:
        kept = [float(slo.kept(block.result.requests)) for block in blocks]
        rates["request_goodput"] = ratio_figure(kept, seconds)
        figures[SLO_SHARE] = share_figure(kept, [len(block.result.requests) for block in blocks])
    for name, rate in rates.items():
        figures[name] = rate
        figures[f"{name}_per_gpu"] = rate.scaled(1 / gpus) if rate is not None and gpus > 0 else None
    return figures


def _mean_of_blocks(blocks: Sequence[MeasuredBlock], metric: str) -> Figure | None:
    values = [value for block in blocks if (value := block.metrics[metric]) is not None]
    return ratio_figure(values, [1] * len(values))
