"""Statistics of measurements. Pure numbers: importing this needs no framework."""

from orchestrator.measurement.stats.paired import PooledNoise, RatioInterval, paired_ratio

__all__ = ["PooledNoise", "RatioInterval", "paired_ratio"]
