"""One workload on one target: ``chunksmith bench``."""

from orchestrator.sweep.bench.asked import Asked, make_plan, refuse
from orchestrator.sweep.bench.options import parse_body
from orchestrator.sweep.bench.plan import BenchPlan, FindPlan
from orchestrator.sweep.bench.records import BenchRecords
from orchestrator.sweep.bench.render import heading, render, render_rate
from orchestrator.sweep.bench.report import RateReport, Report
from orchestrator.sweep.bench.run import BenchFailure, Benchmark
from orchestrator.sweep.bench.targets import BenchTarget, EngineTarget, UrlTarget

__all__ = [
    "Asked",
    "BenchFailure",
    "BenchPlan",
    "BenchRecords",
    "BenchTarget",
    "Benchmark",
    "EngineTarget",
    "FindPlan",
    "RateReport",
    "Report",
    "UrlTarget",
    "heading",
    "make_plan",
    "parse_body",
    "refuse",
    "render",
    "render_rate",
]
