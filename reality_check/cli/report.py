"""``reality-check report``: the report of a run, written again from its records."""

from __future__ import annotations

import argparse
import gc
from pathlib import Path

from reality_check.cli.parsing import Commands, add_command
from reality_check.utils.errors import UsageError
from reality_check.utils.exit_status import DONE

_DETAILS = """\
Rewrites report.html, report.md, tables.tex, references.bib, summary.json, the
CSV files and figures/ from studies.db, the record of all trainings. Works at
any time; the report of an unfinished experiment shows scores, but no verdict.

examples:
  reality-check report runs/quickstart
  reality-check report runs/cub200_mlrc --compare published
  reality-check report runs/mine runs/baselines --out runs/both
  reality-check report runs/cub runs/cars --across --out runs/both

Several folders give one report, in the folder given by --out. A pack can take
the place of an output folder, but always needs --out. Data set, split, network
and protocol must be the same, and all methods are in one table. With --across,
runs of the same methods on different data sets give one verdict
(docs/suites.md).
"""


def add_parser(commands: Commands) -> None:
    title = "rewrite the report from the records"
    command = add_command(commands, "report", run, title, _DETAILS)
    command.add_argument(
        "dirs",
        nargs="+",
        type=Path,
        metavar="DIR",
        help="output folder, e.g. runs/quickstart; or several, with --out",
    )
    command.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for a report of several folders"
    )
    command.add_argument(
        "--across",
        action="store_true",
        help="one verdict over several data sets, from a run of the same methods on each",
    )
    command.add_argument(
        "--compare",
        choices=("published",),
        help="compare with the tables of the Reality Check and of Appendix D for the same data set",
    )


def run(options: argparse.Namespace) -> int:
    from reality_check.api import report
    from reality_check.cli.run_summary import print_summary

    # Figures are many small objects with few reference cycles, the search for which took a tenth of
    # the time.
    gc.set_threshold(100_000, 20, 100)
    if len(options.dirs) > 1 or options.out is not None:
        return _report_folders(options)
    (folder,) = options.dirs
    if folder.is_file():
        raise UsageError(f"{folder} is a file; the report of a pack needs a folder: add --out DIR.")
    results = report(folder, options.compare == "published")
    print_summary(results)
    for table in getattr(results, "published", ()):
        print(f"Compared with: {table.source}.")
    print(f"Report: {folder / 'report.html'}")
    return DONE


def _report_folders(options: argparse.Namespace) -> int:
    """Write one report on several folders, or on packs, into the folder ``--out``."""
    from reality_check.api import report_across, report_folders
    from reality_check.cli.run_summary import print_summary

    is_one_folder = len(options.dirs) == 1 and not options.dirs[0].is_file()
    if options.out is None or options.compare or is_one_folder:
        raise UsageError(
            "a report of several folders is written as reality-check report DIR DIR ... --out DIR, "
            "without --compare; that of one folder goes into the folder itself, without --out."
        )
    write = report_across if options.across else report_folders
    print_summary(write(options.dirs, options.out))
    print(f"Report: {options.out / 'report.html'}")
    return DONE
