"""``reality-check run``: run an experiment to the end, or resume it."""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reality_check.cli.parsing import (
    Commands,
    Parser,
    add_command,
    add_experiment,
    positive,
    seconds,
)
from reality_check.utils.errors import WorkFailed
from reality_check.utils.exit_status import DONE, FAILED, INTERRUPTED, STATUSES, STOPPED
from reality_check.utils.text import duration

if TYPE_CHECKING:
    from reality_check.config.schema import Experiment
    from reality_check.config.suite import Suite
    from reality_check.results import ExperimentResults, SuiteResults

_DETAILS = f"""\
examples:
  reality-check run quickstart --workers 2
  reality-check run experiment.yaml protocol.search.trials=8 seed=1
  reality-check run experiment.yaml protocol=mlrc --out runs/whole
  reality-check run cub200_mlrc --devices 0,1,2,3 --folds-at-once 4
  reality-check run cub200_mlrc --for 4h
  reality-check run four_features --workers 2     a suite: several data sets

Everything is checked before the first training. A mistake is reported in one
sentence, and nothing is written. Afterwards DIR holds experiment.yaml (all
settings), results.csv (a row per method, category, reproduction and metric),
report.html, report.md, tables.tex, figures/, logs/, studies.db (the searches)
and, for each method, a folder of checkpoints. After Ctrl-C, a kill or the time
of --for, the same command resumes from the last checkpoint; once everything is
done, it only writes the report. With more trials, searches, reproductions,
final metrics or methods it adds what is new; any other change is refused.

On a terminal a live table shows the progress; otherwise a line is printed for
each finished trial, reproduction and stage, with its duration and the best
score so far. These lines are also in the logs of the workers.

{STATUSES}
"""
#: The first line of the output names at most this many methods.
_MAX_NAMED = 8


def add_parser(commands: Commands) -> None:
    title = "run an experiment to the end, or resume it"
    command = add_command(commands, "run", run, title, _DETAILS)
    add_experiment(command)
    command.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="output folder (default: runs/NAME, where NAME is that of the experiment)",
    )
    command.add_argument(
        "--for",
        type=seconds,
        default=math.inf,
        dest="max_seconds",
        metavar="TIME",
        help="stop after this time, such as 90s, 4h, 1h30m or 2d: each worker ends its current "
        "epoch, or is killed 2 minutes later; the same command continues (default: run to the end)",
    )
    _add_workers(command)
    _add_launcher(command)
    command.add_argument(
        "--track",
        metavar="NAME",
        action="append",
        default=[],
        help="send finished trials to a tracker: tensorboard, mlflow, wandb; repeatable "
        "(`reality-check track` sends them afterwards)",
    )
    output = command.add_mutually_exclusive_group()
    output.add_argument("--quiet", action="store_true", help="print nothing but errors")
    output.add_argument(
        "--json",
        action="store_true",
        help="print one line of JSON per finished trial and stage (keys: docs/status.md)",
    )


def _add_workers(command: Parser) -> None:
    command.add_argument(
        "--workers",
        type=positive,
        metavar="N",
        help="number of trials to train in parallel, each in its own process, which takes one CPU "
        "core or shares the GPU (default: 1, or one for each of --devices)",
    )
    command.add_argument(
        "--devices",
        type=lambda text: text.split(","),
        default=[],
        metavar="0,1,...",
        help="devices, assigned to the workers in turn: GPU numbers, or cpu (default: all workers "
        "share the experiment's device)",
    )
    command.add_argument(
        "--folds-at-once",
        type=positive,
        default=1,
        metavar="N",
        help="number of folds of a trial that a worker trains in parallel, each in its own process "
        "(default: 1); several can share a GPU, and the results are the same",
    )
    command.add_argument(
        "--processes-per-network",
        type=positive,
        default=1,
        metavar="N",
        help="number of processes that train each network together, on N GPUs (default: 1); for "
        "large networks and batches",
    )


def _add_launcher(command: Parser) -> None:
    command.add_argument(
        "--launcher",
        choices=("local", "slurm", "command"),
        default="local",
        help="run the workers on this machine, or as jobs of SLURM or, by its commands, of any "
        "scheduler (docs/cluster.md), which keep running when this command or the login session "
        "ends; the same command finds them again (default: local)",
    )
    command.add_argument(
        "--slurm",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="what each job requests, as in the experiment's slurm block: partition, hours, gpus, "
        "cpus, memory, account, qos, ...; repeatable",
    )
    command.add_argument(
        "--command",
        action="append",
        default=[],
        dest="templates",
        metavar="KEY=VALUE",
        help="how jobs are submitted, asked for and ended, as in the experiment's command block: "
        "submit, number, state, waiting, gone, end; repeatable",
    )


def run(options: argparse.Namespace) -> int:
    from reality_check.cli.run_summary import print_summary
    from reality_check.cli.status_view import print_status
    from reality_check.config.suite import Suite, load
    from reality_check.studies.recorded_experiment import read_experiment
    from reality_check.studies.suite_folder import member_folders

    started = time.monotonic()
    jobs = [f"slurm.{setting}" for setting in options.slurm]
    jobs += [f"command.{setting}" for setting in options.templates]
    experiment = load(options.experiment, options.overrides + jobs)
    out_dir = options.out or Path("runs") / experiment.name
    is_plain = not (options.quiet or options.json)
    if is_plain:
        members = experiment.members if isinstance(experiment, Suite) else {"": experiment}
        first = next(iter(members.values()))
        names = [method.name for method in first.methods]
        shown = ", ".join(names) if len(names) <= _MAX_NAMED else f"{len(names)} methods"
        protocols = ", ".join(dict.fromkeys(each.protocol.name for each in members.values()))
        on = f" on {', '.join(members)}" if len(members) > 1 else ""
        print(f"{experiment.name} ({shown}){on}, protocol {protocols}, into {out_dir}")
    try:
        results = _run_with_progress(experiment, out_dir, options)
    except KeyboardInterrupt:
        print(_interruption_message(options), file=sys.stderr)
        return INTERRUPTED
    except WorkFailed as error:
        print(
            f"reality-check: {error}\n"
            f"After fixing the cause, rerun: {options.again}\n"
            "If that changes the code of a loss that has complete trials, name a new folder with "
            "--out: results of different code do not mix.",
            file=sys.stderr,
        )
        return FAILED
    if not results.finished:
        for folder in member_folders(out_dir) if is_plain else ():
            print_status(read_experiment(folder))
        print(
            f"Stopped by --for after {duration(time.monotonic() - started)}. Scores so far, "
            f"without a verdict: {out_dir / 'report.html'}. To continue: {options.again}",
            file=sys.stderr,
        )
        return STOPPED
    if is_plain:
        print_summary(results)
        elapsed = duration(time.monotonic() - started)
        print(f"Done in {elapsed}. Report: {out_dir / 'report.html'}")
    return DONE


def _run_with_progress(
    experiment: Experiment | Suite, out_dir: Path, options: argparse.Namespace
) -> ExperimentResults | SuiteResults:
    """Run an experiment and show its progress in the form that options and terminal ask for."""
    from rich.console import Console

    from reality_check import api
    from reality_check.cli.live_view import LiveView
    from reality_check.cli.progress_lines import ProgressLines
    from reality_check.launch.parallelism import Parallelism

    # For the live view: by default one for each group of devices.
    workers = options.workers or max(len(options.devices) // options.processes_per_network, 1)
    parallelism = Parallelism(
        options.workers,
        options.folds_at_once,
        options.processes_per_network,
        options.devices,
        options.launcher,
    )
    from reality_check.config.suite import Suite

    settings: dict[str, Any] = {
        "workers": parallelism,
        "trackers": options.track,
        "max_seconds": options.max_seconds,
    }

    def run(**more: Any) -> ExperimentResults | SuiteResults:
        if isinstance(experiment, Suite):
            return api.run_suite(experiment, out_dir, **settings, **more)
        return api.run(experiment, out_dir, **settings, **more)

    if options.quiet:
        return run()
    console, lines = Console(stderr=True), ProgressLines(options.json)
    if console.is_terminal and not options.json:
        with LiveView(console, workers).shown() as view:
            return run(watch=view, log=lines.log)
    lines.event("begin", experiment=experiment.name, folder=str(out_dir))
    with lines.shown():
        results = run(watch=lines, log=lines.log)
    lines.event(
        "complete" if results.finished else "stopped",
        report=str(out_dir / "report.html"),
        summary=f"{out_dir}/summary.json",
    )
    return results


def _interruption_message(options: argparse.Namespace) -> str:
    """Return what is printed after Ctrl-C."""
    if options.launcher != "local":
        ends = "squeue --me lists them, scancel ends them"
        if options.launcher == "command":
            ends = "jobs.json in the output folder has their numbers"
        return (
            f"\nThe jobs keep running; {ends}. To watch them again, and for the report at the end: "
            f"{options.again}"
        )
    return f"\nStopped; nothing is lost. To continue: {options.again}"
