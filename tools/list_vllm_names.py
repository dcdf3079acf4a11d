"""Writes ``orchestrator/search/vllm_0_32.py``: the names that the installed vLLM knows. Needs vLLM 0.32.

.venv/bin/python tools/list_vllm_names.py
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from orchestrator.search.vllm_names import VllmNames, installed_names

TARGET = Path(__file__).resolve().parents[1] / "orchestrator" / "search" / "vllm_0_32.py"


def module_text(names: VllmNames) -> str:
    """The Python module that holds the names, one a line."""
    nested = (f"{section}.{key}" for section, keys in names.sections.items() for key in keys)
    parts = (
        ("ARGUMENTS", "Engine arguments that have a flag.", names.arguments),
        ("SHORT_FLAGS", "Short flags, and the argument that each sets.", (f"{k}={v}" for k, v in names.short.items())),
        ("SECTION_KEYS", "Keys of the arguments that are a mapping.", nested),
        ("ENVIRONMENT", "Variables of ``vllm.envs``.", names.environment),
    )
    head = (
        f'"""Names that vLLM {names.version} knows. Written by ``tools/list_vllm_names.py``: do not edit."""\n\n'
        f'from __future__ import annotations\n\nVERSION = "{names.version}"\n'
    )
    return head + "".join(_part(name, says, content) for name, says, content in parts)


def _part(name: str, says: str, content: Iterable[str]) -> str:
    lines = "".join(f'    "{item}",\n' for item in sorted(content))
    return f'\n{name} = (\n{lines})\n"""{says}"""\n'


if __name__ == "__main__":
    TARGET.write_text(module_text(installed_names()))
    print(f"wrote {TARGET}")
