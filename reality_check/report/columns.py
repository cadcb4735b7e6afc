"""Columns of the tables of methods that are no metrics: the report's, and the user's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from reality_check.config.described import Description
from reality_check.config.metrics import Stage, stage_of
from reality_check.report.summary import Summary
from reality_check.report.wording import NOTHING, parameter
from reality_check.results import MethodResults
from reality_check.utils.text import duration


@dataclass(frozen=True)
class Column:
    """A column of the report itself.

    Attributes:
        title: its head.
        text: the cell of a method, in the table of a category that this stage scores.
        untrained: the cell of what is not trained.
    """

    title: str
    text: Callable[[MethodResults, Stage], str]
    untrained: str = NOTHING


def _trained_parameters(method: MethodResults, stage: Stage) -> str:
    count = method.trained_parameters
    return NOTHING if count is None else f"{count:,}"


def _time_of_a_training(method: MethodResults, stage: Stage) -> str:
    """Return the average wall time of training one network."""
    trials = method.final if stage is Stage.FINAL else method.reproductions
    folds = [len(trial.fold_values) for trial in trials] if stage is not Stage.FINAL else []
    seconds = [trial.seconds for trial in trials if trial.seconds is not None]
    if not seconds:
        return NOTHING
    return duration(math.fsum(seconds) / len(seconds) / max(1, *folds, 1))


#: The columns of every report, in their order.
BUILT_IN = (
    Column("Trained parameters", _trained_parameters, untrained="0"),
    Column("Time of a training", _time_of_a_training),
)


def own_columns(summary: Summary) -> dict[str, Description]:
    """Return the user's own columns that any method has, by name."""
    return {
        value.name: value.description
        for method in reversed(summary.results.methods)
        for value in method.columns
    }


def column_titles(summary: Summary) -> tuple[str, ...]:
    """Return the heads of all columns: those of the report, then the user's own."""
    return (*(column.title for column in BUILT_IN), *map(_head, own_columns(summary).values()))


def _head(description: Description) -> str:
    details = [description.unit] if description.unit else []
    details += [] if description.higher_is_better else ["lower is better"]
    return f"{description.title} ({', '.join(details)})" if details else description.title


def column_cells(summary: Summary, method: str, category: str) -> tuple[str, ...]:
    """Return the cells of a method."""
    names = own_columns(summary)
    entry = summary.records.get(method)
    if entry is None:
        return (NOTHING,) * (len(BUILT_IN) + len(names))
    values = {value.name: value.value for value in entry.columns}
    own = [values.get(name) for name in names]
    return (
        *(column.text(entry, stage_of(category)) for column in BUILT_IN),
        *(NOTHING if value is None else parameter(value) for value in own),
    )


def untrained_cells(summary: Summary) -> tuple[str, ...]:
    """Return the cells of what is not trained."""
    return (*(column.untrained for column in BUILT_IN), *(NOTHING for _ in own_columns(summary)))
