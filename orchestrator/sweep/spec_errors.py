"""What pydantic found wrong with a spec, as one line that names the file, the key, the value and what is allowed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from orchestrator.errors import UserError, unknown_name
from orchestrator.sweep.spec import SweepSpec

_MESSAGES = {
    "missing": "is missing",
    "model_type": "should be a mapping of keys",
    "model_attributes_type": "should be a mapping of keys",
    "dict_type": "should be a mapping of keys",
    "too_short": "should not be empty",
    "union_tag_not_found": "kind is missing",
}
_SCALARS = ("bool", "int", "float", "str")


@dataclass(frozen=True)
class _Place:
    """Where a finding is: keys of the file, and the sections that may stand there."""

    keys: tuple[str, ...]
    sections: tuple[type[BaseModel], ...]

    def known_keys(self) -> list[str]:
        return [name for section in self.sections for name in section.model_fields]


def one_line(path: Path, error: ValidationError) -> UserError:
    """The first finding; an unknown key or kind gets its nearest neighbour.

    An unknown key goes before one that is missing: the one is mostly the other, misspelt.
    """
    findings = {_place(finding["loc"]).keys: finding for finding in reversed(error.errors())}
    unknown = [item for item in findings.items() if item[1]["type"] == "extra_forbidden"]
    keys, first = (unknown or list(findings.items()))[-1]
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    if first["type"] == "extra_forbidden":
        where = f"{path}: {'.'.join(keys[:-1])}" if len(keys) > 1 else str(path)
        return UserError(f"{unknown_name('key', keys[-1], _place(first['loc'][:-1]).known_keys(), where=where)}{more}")
    if first["type"] == "union_tag_invalid":
        kinds = _kinds(_place(first["loc"]).sections)
        return UserError(
            f"{unknown_name('kind', str(first['ctx']['tag']), kinds, where=f'{path}: {_dotted(keys)}')}{more}"
        )
    return UserError(f"{path}: {_dotted(keys)}: {_message(first, keys)}{more}")


def _message(finding: ErrorDetails, keys: Sequence[str]) -> str:
    value = finding["input"]
    message = _MESSAGES.get(finding["type"])
    if message is None:
        message = finding["msg"].removeprefix("Value error, ").replace("Input should", "should")
    if finding["loc"] and str(finding["loc"][-1]) in _SCALARS and keys[-1] not in _SCALARS:
        message = "should be a number, true, false, text or null"
    if finding["type"] == "union_tag_not_found":
        message += f"; allowed: {', '.join(_kinds(_place(finding['loc']).sections))}"
    is_shown = finding["type"] not in ("missing", "value_error", "union_tag_not_found")
    got = f", got {value!r}" if is_shown and repr(value) not in message else ""
    return f"{message[0].lower()}{message[1:]}{got}"


def _place(location: Sequence[int | str]) -> _Place:
    """Follow a location of pydantic, which also names the kind or the type that was tried at a place."""
    keys: list[str] = []
    sections: tuple[type[BaseModel], ...] = (SweepSpec,)
    by_name = False  # Whether the next part is a name of the user's, as that of a knob.
    for part in map(str, location):
        if by_name:
            keys.append(part)
            by_name = False
        elif len(sections) > 1 and part in _kinds(sections):
            sections = tuple(section for section in sections if section.model_fields["kind"].default == part)
        elif sections:
            keys.append(part)
            annotation = sections[0].model_fields[part].annotation if part in sections[0].model_fields else None
            sections, by_name = tuple(_sections(annotation)), get_origin(annotation) is dict
        elif part not in _SCALARS:
            keys.append(part)
    return _Place(tuple(keys), sections)


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    """The sections among the alternatives of a field's type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _sections(part)


def _kinds(sections: Sequence[type[BaseModel]]) -> list[str]:
    return [str(section.model_fields["kind"].default) for section in sections if "kind" in section.model_fields]


def _dotted(keys: Sequence[str]) -> str:
    return ".".join(keys)
