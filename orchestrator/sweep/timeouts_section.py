"""The part of a sweep spec that says how long an engine may take."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.cluster import Timeouts

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_DEFAULTS = Timeouts()


class TimeoutsSection(BaseModel):
    """Limits in seconds; see ``orchestrator.cluster.Timeouts``. Past one of them the engine is ended, and its trial is
    begun again on a fresh one, up to the third time.

    Attributes:
        growth_s: How long an autoscaler may take to add the nodes of an engine; 0 where there is none: what the cluster
            cannot hold is refused at once.
        silence_s: Longest time without a step and a token, however busy the engine is. It must exceed the study's
            longest step. Where an engine has served blocks of a kind before, 20 times its longest wait in them is
            enough, if that is at least 12 s; see ``orchestrator.cluster.watchdog``.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    growth_s: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = _DEFAULTS.growth_s
    start_s: Seconds = _DEFAULTS.start_s
    block_s: Seconds = _DEFAULTS.block_s
    stop_s: Seconds = _DEFAULTS.stop_s
    silence_s: Annotated[float, Field(ge=30.0, allow_inf_nan=False)] = _DEFAULTS.silence_s

    def limits(self) -> Timeouts:
        """As engines take them."""
        return Timeouts(**self.model_dump())
