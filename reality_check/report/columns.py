"""Columns of method tables other than metrics: built-in ones, and the user's own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from reality_check.config.described import Description
from reality_check.config.metrics import Stage, stage_of
from reality_check.report.summary import Summary, completed
from reality_check.report.wording import NOTHING, parameter
from reality_check.results import MethodResults
from reality_check.utils.text import duration


@dataclass(frozen=True)
class Column:
    """A built-in column.

    Attributes:
        title: heading of the column.
        cell_text: returns the cell of a method, in tables of categories that the stage scores.
        untrained: the cell of baselines, which are not trained.
    """

    title: str
    cell_text: Callable[[Summary, MethodResults, Stage], str]
    untrained: str = NOTHING


def _trained_parameters(summary: Summary, method: MethodResults, stage: Stage) -> str:
    count = method.trained_parameters
    total = method.network_parameters
    if count is None or total in (None, count):
        return NOTHING if count is None else f"{count:,}"
    return f"{count:,} of {total:,}"


def _training_time(summary: Summary, method: MethodResults, stage: Stage) -> str:
    """Return the average wall time of training one network, and the most GPU memory.

    A reproduction trains one network per fold.
    """
    if stage is Stage.FINAL:
        trials, networks = method.final, 1
    else:
        trials = method.reproductions
        if summary.scores_own_networks:
            trials = tuple(filter(completed, method.search))
        networks = max([1, *(len(trial.fold_values) for trial in trials)])
    seconds = [trial.seconds for trial in trials if trial.seconds is not None]
    time = duration(math.fsum(seconds) / len(seconds) / networks) if seconds else NOTHING
    memory = max((trial.gpu_memory or 0 for trial in trials), default=0)
    return f"{time}, {memory / 1e9:.2g} GB" if memory else time


#: The built-in columns, in the order of the report.
BUILT_IN = (
    Column("Trained parameters", _trained_parameters, untrained="0"),
    Column("Time of a training", _training_time),
)


def own_columns(summary: Summary) -> dict[str, Description]:
    """Return the descriptions of the user's own columns by name; of two, the first method's."""
    return {
        value.name: value.description
        for method in reversed(summary.results.methods)
        for value in method.columns
    }


def column_titles(summary: Summary) -> tuple[str, ...]:
    """Return the headings of all columns: built-in ones, then the user's own."""
    titles = (column.title for column in _built_in(summary))
    return (*titles, *map(_heading, own_columns(summary).values()))


def _built_in(summary: Summary) -> tuple[Column, ...]:
    """Return the built-in columns; none if the trials were not made by this program."""
    return BUILT_IN if summary.results.reference else ()


def _heading(description: Description) -> str:
    """Return the title of a column with its unit and direction."""
    order = "" if description.higher_is_better else "lower is better"
    details = ", ".join(filter(None, (description.unit, order)))
    return f"{description.title} ({details})" if details else description.title


def column_cells(summary: Summary, method: str, category: str) -> tuple[str, ...]:
    """Return the cells of a method, in the order of :func:`column_titles`."""
    record = summary.records.get(method)
    if record is None:
        return (NOTHING,) * len(column_titles(summary))
    values = {value.name: value.value for value in record.columns}
    cells = map(values.get, own_columns(summary))
    return (
        *(column.cell_text(summary, record, stage_of(category)) for column in _built_in(summary)),
        *(NOTHING if value is None else parameter(value) for value in cells),
    )


def untrained_cells(summary: Summary) -> tuple[str, ...]:
    """Return the cells of a baseline, in the order of :func:`column_titles`."""
    return (*(column.untrained for column in BUILT_IN), *(NOTHING for _ in own_columns(summary)))
