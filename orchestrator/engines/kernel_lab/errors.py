"""What can go wrong in the lab: each error is one line and has a class that the records keep."""

from __future__ import annotations

from typing import Literal

from orchestrator.errors import ChunksmithError

Label = Literal[
    "lab-shape", "workspace-too-small", "workspace-locked", "workspace-overrun", "rank-lost", "aborted", "out-of-memory"
]
"""Failure classes. ``rank-lost`` is the only one that a fresh engine may mend."""


class LabError(ChunksmithError):
    """The lab cannot go on.

    Attributes:
        label: Failure class.
        detail: One line on it.
    """

    def __init__(self, label: Label, detail: str) -> None:
        super().__init__(f"{label}: {detail}")
        self.label: Label = label
        self.detail = detail

    def __reduce__(self) -> tuple[type[LabError], tuple[Label, str]]:
        return LabError, (self.label, self.detail)


def require_shape(name: str, tensor_shape: tuple[int, ...], expected: tuple[int | None, ...]) -> None:
    """Raise LabError with the class ``lab-shape`` unless a shape is the expected one; None stands for any size."""
    fits = len(tensor_shape) == len(expected) and all(
        wanted in (None, size) for size, wanted in zip(tensor_shape, expected, strict=True)
    )
    if not fits:
        wanted_text = ", ".join("any" if size is None else str(size) for size in expected)
        raise LabError("lab-shape", f"{name} must have shape ({wanted_text}), got {tuple(tensor_shape)}")
