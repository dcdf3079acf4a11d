"""The workload and the load of a spec, and those of a point whose knobs change them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, TypeAdapter

from orchestrator.engines import KnobValue
from orchestrator.workloads import AnyWorkload, Arrivals

_Kind = TypeVar("_Kind", bound=BaseModel)


def _with_kind_of_workload(given: Any) -> Any:
    """A workload without a kind is one of random tokens."""
    return {"kind": "random", **given} if isinstance(given, Mapping) and "kind" not in given else given


def _with_kind_of_load(given: Any) -> Any:
    """``{concurrency: 4}`` is short for a closed loop, ``{concurrency: null}`` for all requests at once.

    A rate needs its kind.
    """
    if not isinstance(given, Mapping) or "kind" in given or "rate" in given:
        return given
    if given == {"concurrency": None}:
        return {"kind": "all_at_once"}
    return {"kind": "closed_loop", **given}


Workload = Annotated[AnyWorkload, BeforeValidator(_with_kind_of_workload)]
Load = Annotated[Arrivals, BeforeValidator(_with_kind_of_load)]

WORKLOADS: TypeAdapter[Any] = TypeAdapter(Workload)
LOADS: TypeAdapter[Any] = TypeAdapter(Load)


def section_at(
    kind: str, base: _Kind, named: Mapping[str, _Kind], point: Mapping[str, KnobValue], adapter: TypeAdapter[Any]
) -> _Kind:
    """The workload or the load of a point.

    Args:
        kind: ``workload`` or ``load``: the knob of that name chooses among ``named``, knobs such as
            ``workload.input_len`` change one field of what it chose.
        base: What it is where the point does not say.

    Raises:
        ValidationError: A field gets a value that it does not take.
        KeyError: The point names none of ``named``.
    """
    name = point.get(kind)
    section = base if name is None else named[str(name)]
    changes = {
        key.removeprefix(f"{kind}."): value
        for key, value in point.items()
        if key.startswith(f"{kind}.") and value is not None
    }
    if not changes:
        return section
    content = section.model_dump()
    for path, value in changes.items():
        *parents, last = path.split(".")
        inner = content
        for parent in parents:
            if not isinstance(inner.get(parent), dict):
                inner[parent] = {}
            inner = inner[parent]
        inner[last] = value
    found: _Kind = adapter.validate_python(content)
    return found


def numbers_of(kind: str, section: BaseModel) -> Iterator[tuple[str, KnobValue]]:
    """Fields of a workload or a load under the names that knobs and rules have for them, down to single values.

    A length that is fixed is its number of tokens.
    """

    def walk(prefix: str, content: Mapping[str, Any]) -> Iterator[tuple[str, KnobValue]]:
        for key, value in content.items():
            name = f"{prefix}.{key}"
            if isinstance(value, Mapping):
                if value.get("kind") == "fixed":
                    yield name, value["tokens"]
                yield from walk(name, value)
            elif value is None or isinstance(value, (bool, int, float, str)):
                yield name, value

    yield from walk(kind, section.model_dump())
