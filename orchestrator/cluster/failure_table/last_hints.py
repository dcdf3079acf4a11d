"""The class of an error that neither other hints nor the frames above it tell."""

from __future__ import annotations

from orchestrator.cluster.failure_table.vocabulary import NO, WRONG

LAST_HINTS: tuple[tuple[str, ...], ...] = (
    ("unsupported_backend_or_dcp", "attention backend|attention_backend", "fails"),
    ("unsupported_backend_or_dcp", "flashinfer|flashattention|flashmla|attention backend", "kv cache", "error|fail"),
    (
        "invalid_config",
        "valueerror|assertionerror|notimplementederror|validationerror",
        NO + "|" + WRONG + "|only one|either|please specify|please set|supported|mutually exclusive|conflict|"
        "be provided|not initialized|was provided|not provided|unknown|valid |cannot set|applicable|only valid|"
        "currently support|supports only|not currently|was removed|should|expected one of|not configured|not enabled",
    ),
    (
        "version_mismatch",
        "attributeerror|object|type object|module",
        "has no attribute",
        "!nonetype",
    ),
)
"""Hints for what neither the others nor the frames tell: an argument that was checked and refused, a name that another
version of a library has not."""
