"""Published tables to compare an experiment's results with (``report --compare published``).

What there is lies in ``configs/published/``: figures of the same data set, in the categories and
metrics of the protocol. In what the experiment is not what was published is said with each table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reality_check.config.compose import load_experiment
from reality_check.config.metrics import METRICS
from reality_check.config.named import named_method
from reality_check.config.published import PublishedResults
from reality_check.config.schema import Experiment
from reality_check.config.yaml_text import read_yaml
from reality_check.report.deviations import against_reference, own_ranges
from reality_check.results import Deviation
from reality_check.utils.config_files import shipped_files
from reality_check.utils.errors import UsageError


@dataclass(frozen=True)
class Comparable:
    """A table of test results.

    Attributes:
        reader: of the data set, which tells the data whatever the user calls it.
        protocol: name of the shipped protocol that the table was made by.
        table: the figures.
    """

    reader: str
    protocol: str
    table: PublishedResults


def published_table(file: Path) -> Comparable:
    """A table of ``configs/published/``; one that a config repeats is read from there."""
    plain = read_yaml(file)
    if "table_of" not in plain:
        table = PublishedResults.model_validate(plain["table"])
        return Comparable(plain["dataset"], plain["protocol"], table)
    repeats = load_experiment(plain["table_of"])
    assert repeats.published_results is not None
    return Comparable(repeats.dataset.reader, repeats.protocol.reference, repeats.published_results)


def published_tables() -> Iterator[Comparable]:
    yield from map(published_table, shipped_files("published").values())


def comparable_tables(experiment: Experiment) -> tuple[PublishedResults, ...]:
    """The tables of the experiment's data set, cut to its categories and to the three metrics.

    Their notes continue with everything in which the experiment differs from their protocol. A
    method of the experiment is compared with one of the table where name and loss are the same.

    Raises:
        UsageError: there is none, with what can be compared.
    """
    candidates = list(published_tables())
    tables = [
        table
        for one in candidates
        if one.reader == experiment.dataset.reader and (table := _cut(one, experiment)).results
    ]
    own = experiment.published_results
    tables = [table for table in tables if own is None or table.source != own.source]
    if tables:
        return tuple(tables)
    if own is not None and own.results:
        raise UsageError(
            f"{experiment.name} repeats {own.source}, and its report shows those figures already; "
            "leave out --compare published."
        )
    raise UsageError(
        f"no published table can be compared with {experiment.name}, which has the data set "
        f"{experiment.dataset.name} (reader {experiment.dataset.reader}) and the categories "
        f"{', '.join(experiment.protocol.categories)}. Published tables, by the reader of the "
        f"data: {_listed(candidates)}."
    )


def _listed(candidates: list[Comparable]) -> str:
    """By paper: the readers of its data sets, and its categories."""
    papers: dict[tuple[str, str], list[str]] = {}
    for one in candidates:
        paper = one.table.source.removesuffix(f", {one.table.item}")
        papers.setdefault((paper, ", ".join(one.table.results)), []).append(one.reader)
    return "; ".join(
        f"{paper}: {', '.join(readers)} ({categories})"
        for (paper, categories), readers in papers.items()
    )


def _cut(one: Comparable, experiment: Experiment) -> PublishedResults:
    """The table's part that the experiment measures too, and how its protocol differs."""
    ours = {method.name: method.loss for method in experiment.methods}
    results = {
        category: {
            name if _same_loss(name, ours) else f"{name} (of the table)": figures
            for name, every in methods.items()
            if (figures := {metric: every[metric] for metric in METRICS if metric in every})
        }
        for category, methods in one.table.results.items()
        if category in experiment.protocol.categories
    }
    notes = [*one.table.notes, *_differences(one, experiment)]
    return one.table.model_copy(update={"results": results, "notes": notes})


def _same_loss(name: str, ours: dict[str, str]) -> bool:
    """Whether a method of the table's name has its loss too, or there is none of that name."""
    shipped = name in shipped_files("methods")
    return name not in ours or (shipped and named_method(name).loss == ours[name])


def _differences(one: Comparable, experiment: Experiment) -> Iterator[str]:
    """What is not as it was there: each is a reason for another figure."""
    protocol = experiment.protocol.model_copy(update={"reference": one.protocol})
    as_there = experiment.model_copy(update={"protocol": protocol})
    deviations = [*against_reference(as_there), *own_ranges(as_there)]
    if not getattr(experiment.dataset, "check_counts", True):
        text = "it was not checked whether all published images are here (check_counts: no)."
        deviations.insert(0, Deviation("data set", text))
    for deviation in deviations:
        yield f"Different: {deviation.topic}: {deviation.text}"
    if not deviations:
        yield f"The protocol is {one.protocol}, as there."
