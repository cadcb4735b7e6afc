"""``reality-check compare``: the verdict on trials that were made elsewhere."""

from __future__ import annotations

import argparse
from pathlib import Path

from reality_check.cli.parsing import Commands, add_command, positive
from reality_check.utils.errors import UsageError
from reality_check.utils.exit_status import DONE
from reality_check.utils.text import duplicates

_DETAILS = """\
TABLE.csv has a row for each trial of a sweep, with the columns method, trial,
validation (the score by which the sweep chooses, higher is better) and test (a
fraction or percent; empty where nothing was scored), and perhaps search (the
number of a repeated search), draw (what trials of several methods have in
common) and params.NAME. trials.csv of an output folder is such a table. What no
table says is asked for: docs/compare.md.

examples:
  reality-check compare sweep.csv --draws independent --scores own
  reality-check compare wandb.csv --columns trial=ID,validation=-loss,test=acc
  reality-check compare cub.csv cars.csv --draws independent --scores own
  reality-check compare adam,sgd --optuna sqlite:///sweep.db --columns test=acc
"""


#: The arguments of :func:`reality_check.compare`, with their help.
_OPTIONS = {
    "draws": "independent (each trial was drawn at random) or adaptive (by a sampler that learns)",
    "scores": "retrained (test scores of networks retrained with fresh seeds) or own (the trials')",
    "common-draws": "yes or no: trial k, or repeated search k, of every method has the same draws",
    "columns": "COLUMN=NAME,...: what the table, or an attribute of Optuna's trials, calls a "
    "column; -NAME if lower is better",
    "budget": "number of trials of a search that the verdict is about (default: a third of them)",
    "metric": "title of the test score",
    "html": "file for the report as a page",
}


def add_parser(commands: Commands) -> None:
    title = "give the verdict on trials that were made elsewhere"
    command = add_command(commands, "compare", run, title, _DETAILS)
    command.add_argument(
        "table",
        nargs="+",
        metavar="TABLE",
        help="a .csv file; with --optuna STUDY,METHOD=STUDY,...; several files are data sets",
    )
    command.add_argument("--optuna", metavar="URL", help="storage of the studies")
    for name, text in _OPTIONS.items():
        kind = {"columns": columns, "budget": positive}.get(name, str)
        command.add_argument(f"--{name}", type=kind, help=text)
    command.add_argument("--json", action="store_true", help="print the content of summary.json")


def run(options: argparse.Namespace) -> int:
    from reality_check.report.compared import compare, study_rows
    from reality_check.report.render.summary_json import summary_json

    table, *others = options.table
    if options.optuna is not None and not others:
        table = study_rows(options.optuna, table)
    elif others:
        names = [Path(file).stem for file in options.table]
        if options.optuna is not None or duplicates(names):
            raise UsageError(
                "several tables must be .csv files, each named after another data set."
            )
        table = dict(zip(names, options.table, strict=True))
    keywords = (name.replace("-", "_") for name in _OPTIONS)
    data = compare(table, **{name: getattr(options, name) for name in keywords})
    print(summary_json(data) if options.json else data["text"], end="")
    return DONE


def columns(text: str) -> dict[str, str]:
    """Parse ``COLUMN=NAME,COLUMN=NAME``, for argparse, whose message has the name of this."""
    return dict(pair.split("=", 1) for pair in text.split(","))
