"""Chunksmith: a Ray-distributed benchmark and autotuner for MLA prefill chunks and workspace in vLLM."""

__version__ = "0.1.0"
