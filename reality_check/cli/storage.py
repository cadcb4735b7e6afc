"""``reality-check storage serve``: a database server for one output folder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reality_check.cli.parsing import Commands, add_command, positive
from reality_check.utils.errors import WorkFailed
from reality_check.utils.exit_status import DONE, FAILED

_DETAILS = """\
Runs a PostgreSQL of your own, so that workers on several machines need no
administrator: start it before `reality-check run EXPERIMENT storage=server`, on
a machine that the workers reach, and leave it running. It uses the machine's
PostgreSQL, or that of pip install 'pml-extensions[server]'. Data and password
are in DIR/storage, which only you can read.

examples:
  reality-check storage serve runs/cub
  reality-check storage serve runs/cub --workers 64 --port 5433

It ends on Ctrl-C, SIGTERM or SIGUSR2; workers wait up to 30 minutes for the
next one, on any machine. A second one for the same folder is refused.
"""


def add_parser(commands: Commands) -> None:
    title = "run a database server for an output folder"
    command = add_command(commands, "storage", run, title, _DETAILS)
    command.add_argument("action", choices=("serve",), metavar="serve", help="run it")
    command.add_argument("dir", type=Path, metavar="DIR", help="output folder; made if missing")
    command.add_argument(
        "--workers",
        type=positive,
        default=32,
        metavar="N",
        help="number of workers to have connections for (default: 32)",
    )
    command.add_argument(
        "--port", type=positive, default=0, metavar="P", help="TCP port (default: any free one)"
    )


def run(options: argparse.Namespace) -> int:
    from reality_check.launch.storage_server import serve

    try:
        serve(options.dir, options.workers, options.port)
    except WorkFailed as error:
        print(f"reality-check: {error}", file=sys.stderr)
        return FAILED
    return DONE
