"""``reality-check claim``: which gains of a paper's table are larger than luck."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from reality_check.cli.parsing import Commands, add_command, positive
from reality_check.utils.errors import UsageError
from reality_check.utils.exit_status import DONE

_DETAILS = """\
TABLE.csv has the columns method, metric and mean (in points) and, if the paper
prints them, n (number of retrainings), sd (of one retraining), searches, trials
(per search), networks (averaged in one retraining) and selected_on (validation
or test). Where no sd is printed, measured ones are used: docs/claim.md says
which, and how often the answers are right on simulated tables.

examples:
  reality-check claim table.csv --proposed ours
  reality-check claim table.csv --seed-sd 0.6 --selected-on test --json
  reality-check claim published/mlrc_cub200
  reality-check claim papers/000_sgsl/table3_cub200 --proposed sgsl_512
"""
#: File name extensions of figures.
_PICTURE_SUFFIXES = (".png", ".pdf", ".svg")


def add_parser(commands: Commands) -> None:
    title = "test which gains in a paper's table are larger than luck"
    command = add_command(commands, "claim", run, title, _DETAILS)
    command.add_argument(
        "table",
        metavar="TABLE",
        help="a .csv file, or the name of a published table that ships with the package",
    )
    command.add_argument(
        "--proposed",
        metavar="METHOD",
        help="compare this method with each of the others (default: compare every pair)",
    )
    command.add_argument(
        "--metric", metavar="METRIC", help="metric to compare (default: R@1 or MAP@R)"
    )
    command.add_argument(
        "--seed-sd",
        type=_points,
        metavar="POINTS",
        help="standard deviation over trainings of one network (default: as printed, or as "
        "measured by others on the data set)",
    )
    command.add_argument(
        "--selected-on",
        choices=("validation", "test"),
        help="classes on which epochs and hyper-parameters were selected, for all rows (default: "
        "as in the table)",
    )
    command.add_argument(
        "--classes",
        type=positive,
        metavar="N",
        help="number of test classes, to account for other test classes too (default: these "
        "classes only)",
    )
    command.add_argument("--json", action="store_true", help="print the answer as JSON")
    command.add_argument(
        "--figure",
        type=_picture_path,
        metavar="PICTURE",
        help="also draw the differences, as .png, .pdf or .svg",
    )


def run(options: argparse.Namespace) -> int:
    from reality_check.papers.gain_text import plain, sentences, write_figure
    from reality_check.papers.gains import correction_of, judge_gains, noise_of
    from reality_check.papers.printed_tables import load_table

    table = load_table(options.table).of(options.metric, options.selected_on)
    noise = noise_of(table, options.seed_sd, options.classes)
    correction = correction_of(table, options.proposed)
    gains = judge_gains(table, noise, correction, options.proposed)
    if options.json:
        print(json.dumps(plain(table, noise, gains, correction), indent=1, ensure_ascii=False))
    else:
        print("\n".join(sentences(table, noise, gains, correction, options.proposed)))
    if options.figure is not None:
        try:
            write_figure(options.figure, table, gains)
        except OSError as error:
            raise UsageError(f"--figure {options.figure} cannot be written: {error}.") from error
        print(f"wrote {options.figure}", file=sys.stderr)
    return DONE


def _points(text: str) -> float:
    """Parse a number of percentage points, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0  # refused below
    if not 0 < value <= 100:
        raise argparse.ArgumentTypeError(f"must be above 0 and at most 100 points, got {text!r}")
    return value


def _picture_path(text: str) -> Path:
    """Parse the path of a figure, for argparse."""
    path = Path(text)
    if path.suffix not in _PICTURE_SUFFIXES:
        raise argparse.ArgumentTypeError(
            f"must end in {', '.join(_PICTURE_SUFFIXES)}, got {text!r}"
        )
    return path
