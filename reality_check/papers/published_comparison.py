"""Published tables to compare an experiment's results with (``report --compare published``).

These are the tables of ``configs/published/`` of the experiment's data set. The notes of each table
say how the experiment differs from the published one.
"""

from __future__ import annotations

from collections.abc import Iterator

from reality_check.config.metrics import METRICS
from reality_check.config.named import named_method
from reality_check.config.published_scores import PublishedResults
from reality_check.config.schema import Experiment
from reality_check.papers.printed_tables import ShippedTable, published_tables
from reality_check.report.deviations import against_reference, own_ranges
from reality_check.results import Deviation
from reality_check.utils.config_files import shipped_files
from reality_check.utils.errors import UsageError


def comparable_tables(experiment: Experiment) -> tuple[PublishedResults, ...]:
    """Return tables of the experiment's data set, limited to its categories and the three metrics.

    The notes of each table also list the differences of the experiment from the table's protocol.
    Methods are compared if both name and loss are the same.

    Raises:
        UsageError: there is no such table; the message lists all tables.
    """
    paper = experiment.published_results
    tables = list(published_tables())
    parts = (
        _comparable_part(table, experiment)
        for table in tables
        if table.reader == experiment.dataset.reader
        and not (paper and table.printed.source == paper.source)
    )
    if comparable := tuple(part for part in parts if part.results):
        return comparable
    if paper is not None and paper.results:
        raise UsageError(
            f"{experiment.name} repeats {paper.source}, and its report shows those figures "
            "already; leave out --compare published."
        )
    available = [f"{table.reader} ({', '.join(table.printed.results)})" for table in tables]
    raise UsageError(
        f"no published table can be compared with {experiment.name}, which has the data set "
        f"{experiment.dataset.name} (reader {experiment.dataset.reader}) and the categories "
        f"{', '.join(experiment.protocol.categories)}. There are tables of "
        f"{', '.join(dict.fromkeys(available))}."
    )


def _comparable_part(table: ShippedTable, experiment: Experiment) -> PublishedResults:
    """Return the part of a table that the experiment measures too, and how the protocols differ."""
    losses = {method.name: method.loss for method in experiment.methods}
    results = {
        category: {
            name if _same_loss(name, losses) else f"{name} (of the table)": figures
            for name, printed in methods.items()
            if (figures := {metric: printed[metric] for metric in METRICS if metric in printed})
        }
        for category, methods in table.printed.results.items()
        if category in experiment.protocol.categories
    }
    notes = [*table.printed.notes, *_differences(table, experiment)]
    return table.printed.model_copy(update={"results": results, "notes": notes})


def _same_loss(name: str, losses: dict[str, str]) -> bool:
    """Whether the experiment has the same loss under this name, or no method of this name."""
    shipped = name in shipped_files("methods")
    return name not in losses or (shipped and named_method(name).loss == losses[name])


def _differences(table: ShippedTable, experiment: Experiment) -> Iterator[str]:
    """Yield a sentence for each difference from the published experiment."""
    protocol = experiment.protocol.model_copy(update={"reference": table.protocol})
    as_published = experiment.model_copy(update={"protocol": protocol})
    deviations = [*against_reference(as_published), *own_ranges(as_published)]
    if not getattr(experiment.dataset, "check_counts", True):
        text = "it was not checked whether all published images are here (check_counts: no)."
        deviations.insert(0, Deviation("data set", text))
    for deviation in deviations:
        yield f"Different: {deviation.topic}: {deviation.text}"
    if not deviations:
        yield f"The protocol is {table.protocol}, as there."
