"""``chunksmith sensitivity RUN``: which knobs matter."""

from __future__ import annotations

import typer

from orchestrator.cli.arguments import AsJson, RunArgument


def sensitivity(
    run: RunArgument,
    json_: AsJson = False,
) -> None:
    """Print how much each knob, and each pair of knobs, moves the objective, and the adjusted ratio at each value.

    Example: chunksmith sensitivity runs/cpu-demo
    """
    from orchestrator.analysis.points import read_points
    from orchestrator.analysis.sensitivity import COLUMNS
    from orchestrator.analysis.sensitivity import sensitivity as effects_of
    from orchestrator.cli.tables import interval, show_json, show_table

    effects = effects_of(read_points(run, columns=COLUMNS))
    if json_:
        show_json(effects)
        return
    if not effects:
        typer.echo("No knob had more than one value.")
        return

    def p_text(value: float | None, is_separable: bool) -> str:
        if not is_separable:
            return "not separable from the others"
        return "unknown" if value is None else f"{value:.3f}" if value >= 0.001 else "below 0.001"

    rows = [
        [" x ".join(effect.knobs), f"{effect.share:.1%}", p_text(effect.p_value, effect.is_separable)]
        for effect in effects
    ]
    show_table(["knob or pair", "share of variance", "p"], rows, numbers=["share of variance"])
    levels = [
        [effect.knobs[0], level.value, str(level.trials), f"{level.ratio:.3f}", interval(level.low, level.high)]
        for effect in effects
        for level in effect.levels
    ]
    typer.echo()
    heads = ["knob", "value", "trials", "adjusted ratio", "95 % interval"]
    show_table(heads, levels, numbers=["value", "trials", "adjusted ratio"])
