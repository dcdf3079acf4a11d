"""What one provoked failure is."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Case:
    """A failure that is provoked on purpose.

    Attributes:
        name: Its name, one for each case.
        label: The class that its log must get; known, since the failure is made.
        phase: Where it falls: ``start``, ``profile``, ``serve`` or ``stop``; None where that has no meaning.
        script: Python that fails.
        command: A command in place of a script; ``{model}``, ``{work}`` and ``{python}`` are filled in.
        env: Beside the environment of every case.
        model: What is wrong with the copy of the tiny model; see ``models.py``. The script finds it in ``MODEL``.
        shared_mb: Size of a ``/dev/shm`` of its own, in MiB.
        full_disk_mb: Size of a file system of its own in ``FULL``, in MiB.
        named: A distribution of the name ``vllm`` is found, as where vLLM is not the CPU build.
        as_nobody: Run without the right to read what belongs to root.
        timeout_s: After that many seconds it is killed; for what would hang for ever.
    """

    name: str
    label: str
    phase: str | None = None
    script: str = ""
    command: str = ""
    env: dict[str, str] = field(default_factory=dict)
    model: str = "whole"
    shared_mb: int | None = None
    full_disk_mb: int | None = None
    named: bool = True
    as_nobody: bool = False
    timeout_s: float = 420.0
