"""What ``run`` and ``report`` print at their end."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from reality_check.config.metrics import CATEGORIES, PRIMARY
from reality_check.report.sections.untrained import untrained_note
from reality_check.report.sections.verdict import leaders
from reality_check.report.statistics import t_interval
from reality_check.report.summary import Summary
from reality_check.report.text import listed
from reality_check.results import ExperimentResults


def print_summary(results: ExperimentResults) -> None:
    """Print means with their intervals, and who leads where."""
    print("MAP@R on the test classes in %, mean and 95 % interval over n reproductions:")
    table = Table(box=None, pad_edge=False)
    categories = [c for c in CATEGORIES if any(row.category == c for row in results.rows)]
    table.add_column("method", overflow="fold")
    for column in categories:
        table.add_column(column, no_wrap=True)
    for method in results.methods:
        cells = []
        for category in categories:
            values = [
                100 * row.value
                for row in results.rows
                if (row.method, row.category, row.metric) == (method.name, category, PRIMARY)
            ]
            interval = t_interval(values) if values else None
            if interval is None:
                cells.append("-")
            elif interval.half_width is None:
                cells.append(f"{interval.mean:.1f} (n={interval.n})")
            else:
                cells.append(f"{interval.mean:.1f} ± {interval.half_width:.1f} (n={interval.n})")
        table.add_row(method.name, *cells)
    Console().print(table)
    summary = Summary(results)
    for leader, where in leaders(summary).items():
        print(f"{leader} ({listed(where)}).")
    if note := untrained_note(summary):
        print(note)
    if results.deviations:
        print(
            f"{len(results.deviations)} deviations from the protocol {results.reference}: see "
            "the top of the report."
        )
