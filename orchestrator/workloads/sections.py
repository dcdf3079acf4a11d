"""What the pieces of a workload have in common as sections of a spec."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Section(BaseModel):
    """Strict: an unknown key or a value of another type is an error, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
