"""``reality-check verdicts``: which claims of experiments their results support."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reality_check.cli.parsing import Commands, add_command
from reality_check.utils.exit_status import DONE

_DETAILS = """\
An experiment may state, before it runs, what it should show (claims: ... in its
YAML). Given output folders or packs, this command decides their claims from the
records: supported, contradicted or neither. Given none, it lists the claims of
the replications that ship with the package (docs/replications.md).

examples:
  reality-check verdicts
  reality-check verdicts runs/sgsl_features theirs.pack
  reality-check verdicts --markdown runs/*_features runs/rbr_*
"""


def add_parser(commands: Commands) -> None:
    title = "decide which claims of the papers are supported"
    command = add_command(commands, "verdicts", run, title, _DETAILS)
    command.add_argument(
        "runs", nargs="*", type=Path, metavar="RUN", help="output folders and packs"
    )
    command.add_argument(
        "--markdown",
        action="store_true",
        help="print all replications as the table of docs/replications.md, with the verdicts of "
        "the runs",
    )


def run(options: argparse.Namespace) -> int:
    from reality_check.papers.claim_table import claim_rows, markdown, replications, tally

    experiments = replications() if options.markdown or not options.runs else []
    rows = claim_rows(experiments, options.runs, lambda sentence: print(sentence, file=sys.stderr))
    if options.markdown:
        print(markdown(rows), end="")
        return DONE
    heading = None
    for row in rows:
        if row.experiment != heading:
            heading = row.experiment
            print(f"{heading}:")
        print(f"  {row.claim.name} ({row.claim.source}): {row.claim.text}")
        # Without the signs of Markdown.
        print(f"    supported if {row.criterion.replace('`', '')}")
        print(f"    {row.verdict.replace('`', '').replace('**', '')}")
    for line in tally(rows):
        print(line)
    return DONE
