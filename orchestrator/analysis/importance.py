"""How much each knob decided: PED-ANOVA, by Optuna, which is loaded only here and may be missing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

FEWEST: Final = 10
"""Complete trials below which nothing is said."""

_BEST: Final = 5
"""The best tenth of the trials is compared with all of them, but no fewer trials than these: Optuna's advice."""


_MOST: Final = 1_000
"""So many trials tell it as well as more do, and cost seconds less."""


def spread(trials: int) -> NDArray[np.int64]:
    """Places of the trials that are looked at: all, or 1,000 that lie evenly among them."""
    if trials <= _MOST:
        return np.arange(trials)
    return np.arange(_MOST) * trials // _MOST


def knob_importance(
    points: Sequence[Mapping[str, Any]], ratios: Sequence[Sequence[float]], directions: Sequence[str]
) -> dict[str, float] | None:
    """Share of each knob in what sets the best trials apart from all, largest first; the shares add up to 1.

    Source: Watanabe et al. (2023), "PED-ANOVA: efficiently quantifying hyperparameter importance in arbitrary
    subspaces". A knob of at least three numbers is taken as ordered, any other as categories.

    Args:
        points: Of the complete trials, with the same knobs.
        ratios: One for each objective, by trial.
        directions: ``minimize`` or ``maximize``, by objective.

    Returns:
        None with fewer than 10 trials, without a knob that varies, or where Optuna is not installed.
    """
    columns = {name: _Column.of([point[name] for point in points]) for name in (points[0] if points else ())}
    columns = {name: column for name, column in columns.items() if column.levels > 1}
    if len(points) < FEWEST or not columns:
        return None
    try:
        import optuna
    except ModuleNotFoundError:
        return None
    spaces: dict[str, BaseDistribution] = {
        name: optuna.distributions.IntDistribution(0, column.levels - 1)
        if column.is_ordered
        else optuna.distributions.CategoricalDistribution(range(column.levels))
        for name, column in columns.items()
    }
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    ways = optuna.study.StudyDirection
    study = optuna.create_study(directions=[ways[direction.upper()] for direction in directions])
    optuna.logging.set_verbosity(verbosity)
    study.add_trials(
        [
            optuna.create_trial(
                params={name: column.codes[index] for name, column in columns.items()},
                distributions=spaces,
                values=list(values),
            )
            for index, values in enumerate(ratios)
        ]
    )
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=max(0.1, _BEST / len(points)))
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {name: float(share) for name, share in found.items()}


@dataclass(frozen=True)
class _Column:
    """The values of one knob as whole numbers below ``levels``; of one that is ordered, in the order of its values."""

    codes: list[int]
    levels: int
    is_ordered: bool

    @staticmethod
    def of(values: Sequence[Any]) -> _Column:
        texts = [json.dumps(value) for value in values]
        distinct = dict(zip(texts, values, strict=True))
        is_ordered = len(distinct) > 2 and all(type(value) in (int, float) for value in distinct.values())
        order = sorted(distinct, key=lambda text: distinct[text]) if is_ordered else list(distinct)
        code_of = {text: code for code, text in enumerate(order)}
        return _Column([code_of[text] for text in texts], len(order), is_ordered)
