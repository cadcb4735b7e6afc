"""``reality-check compare``: the verdict on trials that were made elsewhere."""

from __future__ import annotations

import argparse

from reality_check.cli.parsing import Commands, add_command, positive
from reality_check.utils.errors import UsageError
from reality_check.utils.exit_status import DONE

_DETAILS = """\
TABLE.csv has a row for each trial of a sweep, with the columns method, trial,
validation (the score by which the sweep chooses, higher is better) and test (a
fraction or percent; empty where nothing was scored), and perhaps search (the
number of a repeated search), draw, seed (of a retraining) and params.NAME.
trials.csv of an output folder is such a table. What no table says is asked for.

examples:
  reality-check compare sweep.csv --draws independent --scores own --common-draws no
  reality-check compare wandb.csv --columns method=optimizer,trial=ID,validation=-val_loss,test=acc
  reality-check compare --optuna sqlite:///sweep.db adam sgd --columns test=test_accuracy
"""


#: The options that :func:`reality_check.compare` takes as they are, with their help.
_OPTIONS = {
    "draws": "independent (random search) or adaptive: how a search drew its trials",
    "scores": "retrained or own: which network of a trial was scored on the test data",
    "common-draws": "yes or no: whether trial k of every method has the same draws",
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
        help="a .csv file; with --optuna the names of studies, STUDY or METHOD=STUDY",
    )
    command.add_argument("--optuna", metavar="URL", help="storage of the studies")
    command.add_argument(
        "--columns",
        type=_columns,
        metavar="COLUMN=NAME,...",
        help="what the table, or an attribute of Optuna's trials, calls a column; -NAME if lower "
        "is better",
    )
    command.add_argument(
        "--budget",
        type=positive,
        metavar="N",
        help="number of trials of the search that the verdict is about (default: a third)",
    )
    for option, text in _OPTIONS.items():
        command.add_argument(f"--{option}", help=text)
    command.add_argument("--json", action="store_true", help="print the content of summary.json")


def run(options: argparse.Namespace) -> int:
    from reality_check.report.compared import compare, study_rows
    from reality_check.report.render.summary_json import summary_json

    table, *others = options.table
    if options.optuna is not None:
        table = list(study_rows(options.optuna, options.table))
    elif others:
        raise UsageError(f"one table is compared at a time, got {len(options.table)}.")
    names = ("columns", "budget", "draws", "scores", "common_draws", "metric", "html")
    data = compare(table, **{name: getattr(options, name) for name in names})
    print(summary_json(data) if options.json else data["text"], end="")
    return DONE


def _columns(text: str) -> dict[str, str]:
    """Parse names of columns, for argparse."""
    return dict(pair.split("=", 1) for pair in text.split(","))
