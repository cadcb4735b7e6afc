"""``reality-check compare``: the verdict on trials that were made elsewhere."""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reality_check.cli.parsing import Commands, add_command, positive
from reality_check.utils.errors import UsageError
from reality_check.utils.exit_status import DONE

if TYPE_CHECKING:
    from reality_check.report.analysis import Analysis

#: Numbers of trials whose estimates are printed.
_MAX_SIZES = 6
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
        default={},
        metavar="COLUMN=NAME,...",
        help="what the table, or an attribute of Optuna's trials, calls a column; -NAME if lower "
        "is better",
    )
    command.add_argument(
        "--draws",
        choices=("independent", "adaptive"),
        help="whether trials were drawn at random, or by a sampler that learns from earlier ones",
    )
    command.add_argument(
        "--scores",
        choices=("retrained", "own"),
        help="whether a test score is that of a retraining, or of the network of the trial",
    )
    command.add_argument(
        "--common-draws",
        choices=("yes", "no"),
        help="whether trial k (of repeated searches: search k) of all methods has the same draws",
    )
    command.add_argument(
        "--budget",
        type=positive,
        metavar="N",
        help="number of trials of the search that the verdict is about (default: a third of them)",
    )
    command.add_argument("--metric", metavar="TITLE", help="title of the test score")
    command.add_argument("--json", action="store_true", help="print the content of summary.json")
    command.add_argument("--html", type=Path, metavar="FILE", help="also write the report")


def run(options: argparse.Namespace) -> int:
    from reality_check.report.analysis import Analysis
    from reality_check.report.compared import Answers, compared_results
    from reality_check.report.render.summary_json import summary_data, summary_json
    from reality_check.report.summary import Summary
    from reality_check.report.trial_tables import load_studies
    from reality_check.report.writing import write_page

    table: Any
    if options.optuna is not None:
        table, name = load_studies(options.optuna, options.table), " | ".join(options.table)
    elif len(options.table) == 1:
        (table,) = options.table
        name = Path(table).name
    else:
        raise UsageError(f"one table is compared at a time, got {len(options.table)}.")
    answers = Answers(*(getattr(options, field.name) for field in fields(Answers)))
    analysis = Analysis(Summary(compared_results(table, name, options.columns, answers)))
    if options.json:
        print(summary_json(summary_data(analysis)), end="")
    else:
        _print(analysis)
    if options.html is not None:
        write_page(analysis, options.html)
        print(f"wrote {options.html}", file=sys.stderr)
    return DONE


def _columns(text: str) -> dict[str, str]:
    """Parse names of columns, for argparse."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(name for *_, name in pairs):
        raise argparse.ArgumentTypeError(f"must be COLUMN=NAME,COLUMN=NAME,..., got {text!r}")
    return {column.strip(): name.strip() for column, _, name in pairs}


def _print(analysis: Analysis) -> None:
    """Print the estimates and the verdict, every pair, the budgets, and what all that rests on."""
    from reality_check.cli.columns import name_table, print_table
    from reality_check.cli.run_summary import print_summary
    from reality_check.report.sections.tuning import budget_curves
    from reality_check.report.sections.verdict import pair_sentence
    from reality_check.report.wording import interval_text

    summary, results = analysis.summary, analysis.summary.results
    print_summary(results)
    for category in summary.categories:
        for pair in summary.comparisons(category):
            sentence = pair_sentence(pair, summary.evidence, results.measure)
            print(f"- {category}: {sentence}")
    if curves := budget_curves(summary):
        sizes = sorted({trials for curve in curves.values() for trials in curve})
        sizes = sizes[:: math.ceil(len(sizes) / _MAX_SIZES)]
        print(f"With so many trials ({summary.categories[0]}):")
        table = name_table("method", *map(str, sizes))
        for method, curve in curves.items():
            cells = (interval_text(curve[n]) if n in curve else "-" for n in sizes)
            table.add_row(method, *cells)
        print_table(table)
    print("What this rests on:")
    for note in results.deviations:
        print(f"- {note.text}")
