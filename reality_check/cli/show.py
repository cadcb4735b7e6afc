"""``reality-check show``: lists of names, and resolved experiments."""

from __future__ import annotations

import argparse
from typing import Any

from reality_check.cli.parsing import Commands, add_command, add_overrides, complete_experiment
from reality_check.utils.exit_status import DONE

_DETAILS = """\
examples:
  reality-check show methods       names for `methods:` in a YAML
  reality-check show losses        classes for `loss:`, with their arguments
  reality-check show quickstart    all settings of an experiment
  reality-check show quick         a protocol; or a data set, model, method
  reality-check show papers        the tables of the papers, as experiments
  reality-check show experiment.yaml protocol=mlrc
  reality-check show schema > reality-check.schema.json

Classes of installed packages are listed with the package's name.
"""


def add_parser(commands: Commands) -> None:
    title = "list losses, data sets, protocols, ..., or print a resolved experiment"
    command = add_command(commands, "show", run, title, _DETAILS)
    argument: Any = command.add_argument(
        "what",
        metavar="WHAT",
        help="datasets, models, methods, protocols, experiments, papers, losses, trunks, miners, "
        "distances, reducers, regularizers, optimizers, schema (JSON, for editors), "
        "or the name of an experiment, data set, model, method or protocol (its resolved YAML)",
    )
    argument.completer = complete_experiment
    add_overrides(command, "overrides, as for run")


def run(options: argparse.Namespace) -> int:
    from reality_check.cli.listings import print_listing

    print_listing(options.what, options.overrides)
    return DONE
