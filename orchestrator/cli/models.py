"""``chunksmith model``: build the tiny model ahead of time, and say where it is."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.errors import UserError
from orchestrator.models import TinyMLAConfig

_DEFAULT = TinyMLAConfig()
"""The model that a sweep uses."""


def model(
    layers: Annotated[int, typer.Option(help="Decoder layers.", show_default=True)] = _DEFAULT.layers,
    heads: Annotated[int, typer.Option(help="Attention heads.", show_default=True)] = _DEFAULT.heads,
    seed: Annotated[
        int, typer.Option(help="Seed of the weights: same seed, same bytes.", show_default=True)
    ] = _DEFAULT.seed,
) -> None:
    """Build the tiny MLA model, unless it is in the cache already, and print its folder.

    Example: chunksmith model --layers 2
    """
    from orchestrator.models import tiny_model

    try:
        config = TinyMLAConfig(layers=layers, heads=heads, seed=seed)
    except ValueError as error:
        raise UserError(str(error)) from error
    typer.echo(tiny_model(config))
