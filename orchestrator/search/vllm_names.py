"""The names that vLLM's own parser and environment know, so that a misspelt one is found before any engine starts.

Those of vLLM 0.32 are shipped in ``vllm_0_32.py``, which ``tools/list_vllm_names.py`` writes: with that release, or
without vLLM on the machine, nothing is imported. Another release is asked itself, which takes some seconds.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.search import vllm_0_32
from orchestrator.vllm_plugin.guard import installed_version, parse_release

ANY_KEY = "*"
"""In place of the keys of a mapping that takes any."""


@dataclass(frozen=True, kw_only=True)
class VllmNames:
    """Names that one release of vLLM knows.

    Attributes:
        arguments: Engine arguments that have a flag, by their names in ``AsyncEngineArgs``.
        short: Short flags, without the dash, and the argument that each sets.
        sections: Keys of the arguments that are a mapping, such as ``compilation_config``; ``*`` where any goes.
        environment: Variables of ``vllm.envs``.
    """

    version: str
    arguments: frozenset[str]
    short: Mapping[str, str]
    sections: Mapping[str, frozenset[str]]
    environment: frozenset[str]

    def all_knobs(self) -> set[str]:
        """Every name that a knob may have, keys of sections with their section."""
        nested = {f"{section}.{key}" for section, keys in self.sections.items() for key in keys - {ANY_KEY}}
        return {*self.arguments, *nested, *self.environment}


@functools.cache
def vllm_names() -> VllmNames:
    """Names of the installed vLLM, or of vLLM 0.32 where none is installed."""
    installed = installed_version()
    if installed is None or parse_release(installed) == parse_release(vllm_0_32.VERSION):
        return shipped_names()
    return installed_names()


def shipped_names() -> VllmNames:
    """Names of vLLM 0.32."""
    keys = [name.partition(".") for name in vllm_0_32.SECTION_KEYS]
    return VllmNames(
        version=vllm_0_32.VERSION,
        arguments=frozenset(vllm_0_32.ARGUMENTS),
        short=dict(pair.split("=") for pair in vllm_0_32.SHORT_FLAGS),
        sections={
            section: frozenset(key for other, _, key in keys if other == section)
            for section in dict.fromkeys(section for section, _, _ in keys)
        },
        environment=frozenset(vllm_0_32.ENVIRONMENT),
    )


def installed_names() -> VllmNames:
    """Ask the installed vLLM for its names. Imports it.

    Raises:
        ModuleNotFoundError: It is not installed.
    """
    from vllm import AsyncEngineArgs, envs
    from vllm.config import VllmConfig
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    kinds = {field.name: str(field.type) for field in dataclasses.fields(AsyncEngineArgs)}
    parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser())
    flags = {action.dest: action.option_strings for action in parser._actions if action.dest in kinds}
    sections = {
        name: _keys(VllmConfig.__pydantic_fields__.get(name)) or frozenset({ANY_KEY} if "dict" in kinds[name] else ())
        for name in flags
    }
    return VllmNames(
        version=installed_version() or "",
        arguments=frozenset(flags),
        short={flag[1:]: name for name, own in flags.items() for flag in own if not flag.startswith("--")},
        sections={name: keys for name, keys in sections.items() if keys},
        environment=frozenset(envs.environment_variables),
    )


def _keys(field: Any) -> frozenset[str]:
    """Fields of the configuration class among the types of a field; empty when there is none."""
    annotation = getattr(field, "annotation", None)
    classes = [kind for kind in (annotation, *typing.get_args(annotation)) if dataclasses.is_dataclass(kind)]
    return frozenset(
        item.name for kind in classes for item in dataclasses.fields(kind) if item.init and item.name[0] != "_"
    )
