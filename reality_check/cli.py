"""The command ``reality-check``: parses, calls, prints."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from reality_check._version import __version__
from reality_check.errors import UsageError

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

_DESCRIPTION = """\
Is this loss really better? Runs deep-metric-learning losses under one protocol: class-disjoint
cross-validation, hyper-parameter search with equal budgets, reproductions with fresh seeds, and a
report with intervals.

The first steps:
  reality-check run quickstart --workers 2   four losses on embedded images, about ten minutes
  reality-check init                         a YAML and a loss file to start from
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status (0 done, 1 failed, 2 wrong usage, 130 stopped)."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.command(options)
        return status
    except UsageError as error:
        print(f"reality-check: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("\nreality-check: stopped.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="reality-check",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"reality-check {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    run = _add(commands, "run", _run, "run an experiment to its end, or continue it")
    _add_experiment(run)
    run.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="output folder (default: runs/NAME); the same "
        "command continues an experiment that was stopped",
    )
    run.add_argument(
        "--workers",
        type=_positive,
        default=1,
        metavar="N",
        help="trainings at a time, each a process with one BLAS thread (default: 1)",
    )

    status = _add(commands, "status", _status, "show how far an experiment is")
    status.add_argument("dir", type=Path, metavar="DIR", help="output folder")

    report = _add(commands, "report", _report, "write the report anew from the records")
    report.add_argument("dir", type=Path, metavar="DIR", help="output folder")

    worker = _add(commands, "worker", _worker, "join the work on an output folder")
    worker.add_argument("dir", type=Path, metavar="DIR", help="output folder of a started run")

    init = _add(commands, "init", _init, "write a commented YAML and a loss file to start from")
    init.add_argument(
        "file",
        nargs="?",
        default="experiment.yaml",
        metavar="FILE",
        help="name of the YAML (default: experiment.yaml)",
    )

    check = _add(commands, "check", _check, "validate an experiment and its losses; no training")
    _add_experiment(check)

    show = _add(commands, "show", _show, "list what exists, or print a resolved experiment")
    show.add_argument(
        "what",
        metavar="WHAT",
        help="datasets, models, methods, protocols, experiments, losses, miners, distances, "
        "reducers, regularizers, or an experiment (its resolved YAML)",
    )
    show.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="for an experiment")
    return parser


def _add(commands, name, function, text):  # type: ignore[no-untyped-def]
    command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    command.set_defaults(command=function)
    return command


def _add_experiment(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "experiment",
        metavar="EXPERIMENT",
        help="a YAML file, or a name from `reality-check show experiments`",
    )
    command.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="changes to it, e.g. protocol.search.trials=8 protocol=mlrc "
        "methods.contrastive.samples_per_class=2",
    )


def _positive(text: str) -> int:
    value = int(text) if text.isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return value


def _run(options: argparse.Namespace) -> int:
    from rich.console import Console

    from reality_check.config import load_experiment
    from reality_check.running import run
    from reality_check.search import WorkFailed
    from reality_check.view import LiveView, duration

    started = time.monotonic()
    experiment = load_experiment(options.experiment, options.overrides)
    out_dir = options.out or Path("runs") / experiment.name
    again = "reality-check " + " ".join(sys.argv[1:])
    console = Console(stderr=True)
    print(
        f"{experiment.name}: {len(experiment.methods)} methods, protocol "
        f"{experiment.protocol.name}, into {out_dir}"
    )
    try:
        with LiveView(console, options.workers).shown() as view:
            results = run(experiment, out_dir, options.workers, view)
    except KeyboardInterrupt:
        print(f"\nStopped; nothing is lost. To go on: {again}", file=sys.stderr)
        return INTERRUPTED
    except WorkFailed as error:
        print(
            f"reality-check: {error}\nWhen the cause is mended, the same command goes on: {again}",
            file=sys.stderr,
        )
        return FAILED
    _print_summary(results)
    print(f"Done in {duration(time.monotonic() - started)}. Report: {out_dir / 'report.html'}")
    return DONE


def _print_summary(results) -> None:  # type: ignore[no-untyped-def]
    from rich.console import Console
    from rich.table import Table

    from reality_check.report.statistics import t_interval
    from reality_check.results import CATEGORIES

    table = Table(title="MAP@R on the test classes in %, mean and 95 % interval over reproductions")
    categories = [c for c in CATEGORIES if any(row.category == c for row in results.rows)]
    for column in ("method", *categories):
        table.add_column(column)
    for method in results.methods:
        cells = []
        for category in categories:
            values = [
                100 * row.value
                for row in results.rows
                if (row.method, row.category, row.metric)
                == (method.name, category, "mean_average_precision_at_r")
            ]
            interval = t_interval(values) if values else None
            if interval is None:
                cells.append("-")
            elif interval.half_width is None:
                cells.append(f"{interval.mean:.1f} (n={interval.n})")
            else:
                cells.append(f"{interval.mean:.1f} ± {interval.half_width:.1f} (n={interval.n})")
        table.add_row(method.name, *cells)
    Console().print(table)
    if results.deviations:
        print(
            f"{len(results.deviations)} deviations from the protocol {results.reference}: see "
            "the top of the report."
        )


def _status(options: argparse.Namespace) -> int:
    from rich.console import Console

    from reality_check.campaign import Campaign
    from reality_check.output import load_locked
    from reality_check.view import duration, seconds_left, stage_rows, worker_states

    campaign = Campaign(load_locked(options.dir), options.dir)
    rows = stage_rows(campaign)
    from rich.table import Table

    table = Table(title=f"{campaign.experiment.name} in {options.dir}")
    for column in ("method", "stage", "done", "running", "best MAP@R", "seconds each"):
        table.add_column(column)
    for row in rows:
        best = "" if row.best is None else f"{row.best:.4f}"
        each = "" if row.seconds is None else f"{row.seconds:.1f}"
        done = f"{row.done} of {row.wanted}"
        table.add_row(row.method, row.stage, done, str(row.running or ""), best, each)
    Console().print(table)
    for unit in campaign.units():
        failure = unit.study.failure()
        if failure:
            print(f"stopped: {unit.method} {unit.stage}: {failure['message']}")
    if campaign.is_complete():
        print(f"Complete. Report: {options.dir / 'report.html'}")
    else:
        left = seconds_left(rows, len(worker_states(options.dir)) or 1)
        print("Not complete" + (f"; about {duration(left)} of work left." if left else "."))
    return DONE


def _report(options: argparse.Namespace) -> int:
    from reality_check.running import report

    results = report(options.dir)
    _print_summary(results)
    print(f"Report: {options.dir / 'report.html'}")
    return DONE


def _worker(options: argparse.Namespace) -> int:
    import os

    from reality_check.launch.worker import work

    return work(options.dir, os.getpid())


def _init(options: argparse.Namespace) -> int:
    from reality_check.starter import write_starter

    for path in write_starter(Path(), options.file):
        print(f"wrote {path}")
    print(f"Next: reality-check check {options.file}, then reality-check run {options.file}")
    return DONE


def _check(options: argparse.Namespace) -> int:
    from reality_check.config import load_experiment
    from reality_check.inspecting import print_check

    return print_check(load_experiment(options.experiment, options.overrides))


def _show(options: argparse.Namespace) -> int:
    from reality_check.inspecting import print_listing

    return print_listing(options.what, options.overrides)


if __name__ == "__main__":
    sys.exit(main())
