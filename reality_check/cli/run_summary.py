"""The summary that ``run`` and ``report`` print at their end."""

from __future__ import annotations

from reality_check.cli.columns import name_table, print_table
from reality_check.config.metrics import CATEGORIES, PRIMARY
from reality_check.report.sections.across import headline as headline_across
from reality_check.report.sections.verdict import headline, leaders, limits
from reality_check.report.suite_summary import SuiteSummary
from reality_check.report.summary import Summary
from reality_check.report.tables import not_trained
from reality_check.report.wording import listed, percent, size_text
from reality_check.results import ExperimentResults, SuiteResults
from reality_check.statistics import Estimate


def print_summary(results: ExperimentResults | SuiteResults) -> None:
    """Print means and, once all is finished, their intervals and the leading methods."""
    if isinstance(results, SuiteResults):
        _print_suite(SuiteSummary(results))
        return
    summary = Summary(results)
    numbers = "mean and 95 % interval" if results.finished else "mean so far"
    print(f"MAP@R on the test classes in %, {numbers} over n {summary.evidence.repeats}:")
    categories = [c for c in CATEGORIES if any(row.category == c for row in results.rows)]
    table = name_table("method", *categories)
    for method in results.methods:
        cells = [summary.estimates(category).get(method.name) for category in categories]
        table.add_row(method.name, *map(_cell, cells))
    # Untrained networks have one value, shown in the first column.
    for row in not_trained(summary, [PRIMARY]) if categories else ():
        others = ["-"] * (len(categories) - 1)
        table.add_row(row.method, _cell(row.cells[0].interval), *others)
    print_table(table)
    for leader, leading_in in leaders(summary).items():
        print(f"{leader} ({listed(leading_in)}).")
    for sentence in limits(summary) if results.finished else [headline(summary)]:
        print(sentence)
    if results.deviations:
        print(
            f"{len(results.deviations)} deviations from the protocol {results.reference}: see "
            "the top of the report."
        )


def _print_suite(summary: SuiteSummary) -> None:
    """Print means on each data set, and the verdict over all."""
    for category in summary.categories:
        print(f"MAP@R on the test classes in % ({category}):")
        table = name_table("method", *summary.members, "mean")
        for method in summary.methods:
            cells = [m.estimates(category).get(method) for m in summary.members.values()]
            table.add_row(method, *map(_cell, cells), percent(summary.mean(category, method), 1))
        print_table(table)
    for category, verdict in headline_across(summary).items():
        print(f"{category}: {verdict}.")
    for sentence in summary.undecided_sentences():
        print(sentence)


def _cell(estimate: Estimate | None) -> str:
    """Return a mean and the half-width of its interval in percent, or "-" without an estimate."""
    if estimate is None:
        return "-"
    mean, half = 100 * estimate.mean, estimate.half_width
    interval = "" if half is None else f" ± {100 * half:.1f}"
    return f"{mean:.1f}{interval} (n={size_text(estimate.effective_n)})"
