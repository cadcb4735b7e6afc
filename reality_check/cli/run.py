"""`reality-check run`."""

from __future__ import annotations

import argparse
import functools
import sys
import time
from pathlib import Path

from reality_check.cli.report import _print_summary
from reality_check.utils.exit_status import DONE, FAILED, INTERRUPTED, STATUSES

_RUN = f"""\
examples:
  reality-check run quickstart --workers 2
  reality-check run experiment.yaml protocol.search.trials=8 seed=1
  reality-check run experiment.yaml protocol=mlrc --out runs/whole
  reality-check run cub200_mlrc --devices 0,1,2,3 --folds-at-once 4

Everything is checked before the first training; what cannot work is said in a
sentence, and nothing is written. DIR then holds experiment.yaml (all settings),
results.csv (a row per method, category, reproduction and metric), report.html,
report.md, tables.tex, figures/, logs/, studies.db (the searches) and, for each
method, a folder of checkpoints. Ctrl-C or a kill loses nothing: the same
command goes on from the last checkpoint; once all is done, it only writes the
report.

{STATUSES}
"""


#: Methods that the first line names one by one.
_MOST_NAMED = 8


def _run(options: argparse.Namespace) -> int:
    from rich.console import Console

    from reality_check.api import run
    from reality_check.cli.live_view import LiveView
    from reality_check.config import load_experiment
    from reality_check.studies.study import WorkFailed
    from reality_check.utils.text import duration

    started = time.monotonic()
    slurm = [f"slurm.{setting}" for setting in options.slurm]
    experiment = load_experiment(options.experiment, [*options.overrides, *slurm])
    out_dir = options.out or Path("runs") / experiment.name
    console = Console(stderr=True)
    names = [method.name for method in experiment.methods]
    shown = ", ".join(names) if len(names) <= _MOST_NAMED else f"{len(names)} methods"
    print(f"{experiment.name} ({shown}), protocol {experiment.protocol.name}, into {out_dir}")
    try:
        workers = options.workers or max(len(options.devices) // options.processes_per_network, 1)
        with LiveView(console, workers).shown() as view:
            processes = (options.workers, options.folds_at_once, options.processes_per_network)
            tell = functools.partial(print, flush=True)
            results = run(
                experiment, out_dir, *processes, view, options.launcher, tell, options.devices
            )
    except KeyboardInterrupt:
        print(_interrupted(options), file=sys.stderr)
        return INTERRUPTED
    except WorkFailed as error:
        print(
            f"reality-check: {error}\n"
            f"When the cause is mended, the same command goes on: {options.again}\n"
            "If that changes the code of a loss that has complete trials, name a new folder with "
            "--out: results of different code do not mix.",
            file=sys.stderr,
        )
        return FAILED
    _print_summary(results)
    print(f"Done in {duration(time.monotonic() - started)}. Report: {out_dir / 'report.html'}")
    return DONE


def _interrupted(options: argparse.Namespace) -> str:
    if options.launcher == "slurm":
        return (
            "\nThe jobs of SLURM go on; squeue --me lists them, scancel ends them. To watch them "
            f"again, and for the report at the end: {options.again}"
        )
    return f"\nStopped; nothing is lost. To go on: {options.again}"
