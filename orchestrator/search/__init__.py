"""Knobs, spaces, and who proposes the next point."""

from orchestrator.search.constraints import violated
from orchestrator.search.knobs import PLUGIN_KNOBS, Knob, Point, Scope, Space, engine_config, serve_command
from orchestrator.search.schedule import group_schedule

__all__ = [
    "PLUGIN_KNOBS",
    "Knob",
    "Point",
    "Scope",
    "Space",
    "engine_config",
    "group_schedule",
    "serve_command",
    "violated",
]
