"""The engine arguments of the installed vLLM, read from its source, so that a misspelt one is found without
importing vLLM."""

from __future__ import annotations

import ast
import functools
import importlib.util
from pathlib import Path


@functools.cache
def engine_arguments() -> frozenset[str]:
    """Names of the fields of vLLM's ``EngineArgs`` and ``AsyncEngineArgs`` (``vllm/engine/arg_utils.py``).

    Empty when vLLM is not installed here.
    """
    found = importlib.util.find_spec("vllm")
    if found is None or found.origin is None:
        return frozenset()
    tree = ast.parse((Path(found.origin).parent / "engine" / "arg_utils.py").read_text())
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name.endswith("EngineArgs")]
    fields = [item.target for node in classes for item in node.body if isinstance(item, ast.AnnAssign)]
    return frozenset(field.id for field in fields if isinstance(field, ast.Name) and not field.id.startswith("_"))
