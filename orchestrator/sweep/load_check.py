"""Checks the knobs of the load: whether every workload and load that a point can ask for is one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ValidationError

from orchestrator.engines import KnobValue
from orchestrator.errors import UserError, unknown_name
from orchestrator.search.flags import LOAD_KINDS, is_load
from orchestrator.sweep.spec import SweepSpec

_MOST_COMBINATIONS: Final = 1_000
"""Of load values that are all checked together; beyond that each value is checked alone."""


def check_load_knobs(path: Path, spec: SweepSpec) -> None:
    """Check the names and the values of the load's knobs.

    Raises:
        UserError: One line that names the file, the key, the value and what is allowed.
    """
    for kind in LOAD_KINDS:
        named: dict[str, BaseModel] = getattr(spec, f"{kind}s")
        if named and kind not in spec.space:
            raise UserError(f"{path}: {kind}s: no knob chooses among them: add space.{kind}, or leave them out")
        if kind in spec.space:
            for value in spec.space[kind].all_values():
                if value is not None and value not in named:
                    raise unknown_name(kind, str(value), named, where=f"{path}: space.{kind}")
    for name in filter(is_load, spec.space):
        kind, _, rest = name.partition(".")
        sections = [getattr(spec, kind), *getattr(spec, f"{kind}s").values()]
        if rest and (lacking := next((one for one in sections if not _has_field(one, rest)), None)) is not None:
            fields = [field for field in type(lacking).model_fields if field != "kind"]
            raise unknown_name(f"field of a {lacking.kind} {kind}", rest, fields, where=f"{path}: space.{name}")
    for point in load_points(spec):
        try:
            spec.block_workload(point)
            spec.block_load(point)
        except ValidationError as error:
            given = ", ".join(f"{name}={value!r}" for name, value in point.items() if value is not None)
            finding = error.errors()[0]
            message = finding["msg"].removeprefix("Value error, ")
            if finding["type"] == "extra_forbidden":
                message = f"there is no field {finding['loc'][-1]}"
            raise UserError(f"{path}: space: {given}: {message[0].lower()}{message[1:]}") from error


def load_points(spec: SweepSpec) -> Iterator[dict[str, KnobValue]]:
    """The values of the load's knobs in every combination, or each alone when there are too many; one empty point
    when there are no such knobs."""
    values = {name: section.all_values() for name, section in spec.space.items() if is_load(name)}
    if math.prod(map(len, values.values())) <= _MOST_COMBINATIONS:
        for combination in itertools.product(*values.values()):
            yield dict(zip(values, combination, strict=True))
    else:
        for name, own in values.items():
            yield from ({name: value} for value in own)


def _has_field(section: BaseModel, path: str) -> bool:
    return path.partition(".")[0] in type(section).model_fields and path != "kind"
