"""``reality-check pack``, ``merge`` and ``leaderboard``: finished runs as files."""

from __future__ import annotations

import argparse
from pathlib import Path

from reality_check.cli.parsing import Commands, add_command
from reality_check.report.wording import counted
from reality_check.utils.exit_status import DONE

_PACK_DETAILS = """\
Writes a finished output folder as one zip file: the experiment, every trial,
the scores of every query, software versions, checksums. It contains the sources
of your own losses, and the gallery of test images if there is one, but neither
networks nor paths on your machine. The same folder gives the same bytes.

example:
  reality-check pack runs/mine --out mine.pack

Others can report on it (reality-check report mine.pack theirs.pack --out DIR),
merge it with their own runs, or compare their own loss with it without training
yours again: methods: [{from: mine.pack}, their_loss] in their YAML.
"""
_MERGE_DETAILS = """\
Joins finished runs of different methods (output folders or packs) into one new
output folder, as if one run had trained them all. Nothing is trained. Data set,
split, network, protocol and seed must be the same; otherwise the differing keys
are named and nothing is written. For runs with different seeds, or with methods
of the same name, use reality-check report A B --out DIR. One pack alone becomes
an output folder again, without networks, which a run can extend.

examples:
  reality-check merge runs/mine theirs.pack --out runs/all
  reality-check merge theirs.pack --out runs/theirs
"""
_LEADERBOARD_DETAILS = """\
The page is one HTML file. Each table has all methods with their intervals, raw
input and untrained networks, cost and deviations. A method that several runs
searched with different seeds is one row, with all its searches.

example:
  reality-check leaderboard registry/*.pack runs/mine --out leaderboard.html
"""


def add_pack_parser(commands: Commands) -> None:
    title = "write a finished run to one file that others can compare with"
    command = add_command(commands, "pack", run_pack, title, _PACK_DETAILS)
    command.add_argument("dir", type=Path, metavar="DIR", help="output folder of a finished run")
    command.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="the file to write (default: DIR.pack); of a suite, the folder for a pack of each "
        "data set",
    )
    command.add_argument(
        "--without-queries",
        action="store_true",
        help="leave out the scores of queries: a tenth of the size, but test classes can no longer "
        "be resampled",
    )


def add_merge_parser(commands: Commands) -> None:
    title = "join finished runs of different methods into one"
    command = add_command(commands, "merge", run_merge, title, _MERGE_DETAILS)
    _add_runs(command)
    command.add_argument(
        "--out", type=Path, metavar="DIR", required=True, help="output folder, new or empty"
    )


def add_leaderboard_parser(commands: Commands) -> None:
    title = "rank finished runs on one page, with a table for each data set and protocol"
    command = add_command(commands, "leaderboard", run_leaderboard, title, _LEADERBOARD_DETAILS)
    _add_runs(command)
    command.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        required=True,
        help="the page to write, e.g. leaderboard.html",
    )


def _add_runs(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="output folders and packs"
    )


def run_pack(options: argparse.Namespace) -> int:
    from reality_check.api import pack
    from reality_check.studies.suite_folder import member_folders

    folder = options.dir.resolve()
    for member in member_folders(folder):
        target = options.out
        if member != folder:  # a data set of a suite
            target = (options.out or folder.parent) / f"{folder.name}_{member.name}.pack"
        file = pack(member, target, not options.without_queries)
        print(f"{file}: {file.stat().st_size / 1e6:.2f} MB")
    return DONE


def run_merge(options: argparse.Namespace) -> int:
    from reality_check.api import merge
    from reality_check.cli.run_summary import print_summary

    print_summary(merge(options.runs, options.out))
    print(f"Report: {options.out / 'report.html'}")
    return DONE


def run_leaderboard(options: argparse.Namespace) -> int:
    from reality_check.api import leaderboard

    tables = leaderboard(options.runs, options.out)
    print(f"{options.out}: {counted(tables, 'table')} of {counted(len(options.runs), 'run')}")
    return DONE
