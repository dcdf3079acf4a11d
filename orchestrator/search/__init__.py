"""Knobs, spaces, and who proposes the next point."""

from orchestrator.search.conditions import CycleError
from orchestrator.search.expressions import Expression, ExpressionError, parse
from orchestrator.search.knobs import Knob, Point, Scope, Space
from orchestrator.search.rules import Rule, RuleError
from orchestrator.search.schedule import group_schedule
from orchestrator.search.serve import LAB_MODEL, PLUGIN_KNOBS, engine_config, serve_command

__all__ = [
    "LAB_MODEL",
    "PLUGIN_KNOBS",
    "CycleError",
    "Expression",
    "ExpressionError",
    "Knob",
    "Point",
    "Rule",
    "RuleError",
    "Scope",
    "Space",
    "engine_config",
    "group_schedule",
    "parse",
    "serve_command",
]
