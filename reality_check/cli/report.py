"""`reality-check report` and `reality-check score`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from reality_check.utils.errors import UsageError
from reality_check.utils.exit_status import DONE, FAILED

if TYPE_CHECKING:
    from reality_check.results import ExperimentResults


_REPORT = """\
Writes report.html, report.md, tables.tex, references.bib, summary.json, the CSV
files and figures/ again from studies.db, the record of all trainings. Works at
any time; the report of an unfinished experiment says so at its top.

examples:
  reality-check report runs/quickstart
  reality-check report runs/cub200_mlrc --compare published
  reality-check report runs/mine runs/baselines --out runs/both

Of several folders one report is made, in the folder that --out names; nothing
is written into theirs. With the same data set, split, network and protocol all
methods stand in one table; else each kind has its own, and the report says
what differs.
"""


_SCORE = """\
Embeds the test images again with the networks that every reproduction keeps,
writes the score of every query (METHOD/STAGE/NUMBER/queries.npz), which paired
comparisons and bootstraps over the test classes need, and then the report.
A run does this itself; the command is for folders of older versions and for
damaged files. Nothing is trained, and no recorded result changes.

With --map it also draws where each method puts up to 2,000 test images (t-SNE,
one reproduction each, some seconds a method); every later report shows it.

example: reality-check score runs/quickstart
"""


def _print_summary(results: ExperimentResults) -> None:
    from rich.console import Console
    from rich.table import Table

    from reality_check.config.metrics import CATEGORIES, PRIMARY
    from reality_check.report.sections.untrained import untrained_note
    from reality_check.report.sections.verdict import leaders
    from reality_check.report.statistics import t_interval
    from reality_check.report.summary import Summary
    from reality_check.report.text import listed

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


def _report(options: argparse.Namespace) -> int:
    from reality_check.api import report

    if len(options.dirs) > 1 or options.out is not None:
        return _report_folders(options)
    (folder,) = options.dirs
    results = report(folder, options.compare == "published")
    _print_summary(results)
    for table in results.published:
        print(f"Beside it: {table.source}.")
    print(f"Report: {folder / 'report.html'}")
    return DONE


def _report_folders(options: argparse.Namespace) -> int:
    from reality_check.api import report_folders

    if options.out is None or len(options.dirs) == 1 or options.compare:
        raise UsageError(
            "a report of several folders is written as reality-check report DIR DIR ... --out DIR, "
            "without --compare; that of one folder goes into the folder itself, without --out."
        )
    found = report_folders(options.dirs, options.out)
    if len(found) > 1:
        print(f"{len(found)} groups whose numbers are not comparable; the report says why.")
    for results in found:
        print(f"{results.name}:")
        _print_summary(results)
    print(f"Report: {options.out / 'report.html'}")
    return DONE


def _score(options: argparse.Namespace) -> int:
    from reality_check.api import report
    from reality_check.launch.rescore import draw_maps, rescore
    from reality_check.studies.campaign import Campaign
    from reality_check.studies.output_folder import load_locked

    campaign = Campaign(load_locked(options.dir), options.dir)
    done = rescore(campaign, print)
    problems = [*done.problems, *(draw_maps(campaign, print) if options.map else ())]
    report(options.dir)
    diverged = f", {done.diverged} diverged" if done.diverged else ""
    print(
        f"{done.scored} reproductions scored again, {done.there} had their scores already"
        f"{diverged}. Report: {options.dir / 'report.html'}"
    )
    for problem in problems:
        print(f"reality-check: {problem}", file=sys.stderr)
    return FAILED if problems else DONE
