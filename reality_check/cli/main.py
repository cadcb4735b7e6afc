"""The command ``reality-check``: parses, calls, prints."""

from __future__ import annotations

import argparse
import functools
import re
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from reality_check._version import __version__
from reality_check.cli import completion
from reality_check.cli import figure as figure_command
from reality_check.cli import verdicts as verdict_command
from reality_check.cli.report import _REPORT, _SCORE, _report, _score
from reality_check.cli.run import _RUN, _run
from reality_check.utils.errors import UsageError
from reality_check.utils.exit_status import DONE, FAILED, INTERRUPTED, USAGE
from reality_check.utils.text import nearest

_DESCRIPTION = """\
Is this loss really better? Runs deep-metric-learning losses under one
protocol: class-disjoint cross-validation, hyper-parameter search with equal
budgets, reproductions with fresh seeds, and a report with intervals.

A first look, four losses on embedded images, some minutes:
  reality-check run quickstart --workers 2

A loss of your own, in an empty folder:
  reality-check init                    a YAML and a loss file to change
  reality-check check experiment.yaml   does it work, what will it cost
  reality-check run experiment.yaml     ends with a table and a report
  reality-check status experiment.yaml  how far is it, from another terminal
"""
_STATUS = """\
Shows for each method how many trials, reproductions and complete runs are
done, the best validation MAP@R so far, what each worker does now, where, for
how long and with which log, what failed or was lost, the hours of GPUs and CPU
processes used, and about how long it still takes. It may be called at any time,
on any machine that sees the folder and the storage.

examples:
  reality-check status runs/quickstart
  reality-check status runs/quickstart --watch
  reality-check status runs/quickstart --json
"""
_WORKER = """\
One more process that takes trainings from an experiment that `reality-check
run` has started, and ends when none is left. Start as many as there are free
GPUs, each where the output folder and your own loss files can be seen: in the
folder that `run` was called in. A worker takes the GPU that it sees first.

examples:
  reality-check worker runs/quickstart
  CUDA_VISIBLE_DEVICES=1 reality-check worker runs/quickstart

SIGTERM or SIGUSR2 ask it to stop: it writes a checkpoint, gives its training
back and ends with exit status 75. A job script of a cluster: docs/cluster.md.
"""
_INIT = """\
Writes FILE, an experiment with every usual key explained, and beside it
my_losses.py, a loss to change into your own, and reality-check.schema.json,
from which editors complete and check FILE. A FILE that is there already is
refused, a my_losses.py stays as it is.

examples:
  reality-check init
  reality-check init arcface_or_mine.yaml

Then: reality-check check FILE, and reality-check run FILE.
"""
_CHECK = """\
Reads the YAML and the images, builds each loss, runs it forward and backward on
random embeddings in float32 and bfloat16, says whether gradients reach the
embeddings and the loss's own parameters, and what the whole run will cost.
Nothing is trained or written. A mistake is a sentence that says what to write.

examples:
  reality-check check experiment.yaml
  reality-check check experiment.yaml protocol=mlrc     what would that cost?
  reality-check check cub200_mlrc dataset.path=/my/CUB_200_2011

exit status: 0 all of it can run, 2 something cannot
"""
_SHOW = """\
examples:
  reality-check show methods       names for `methods:` in a YAML
  reality-check show losses        classes for `loss:`, with their arguments
  reality-check show quickstart    all settings of an experiment
  reality-check show papers        the tables of the papers, as experiments
  reality-check show experiment.yaml protocol=mlrc
  reality-check show schema > reality-check.schema.json

What installed packages add stands in the lists with the name of the package.
"""


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line that says what to write instead."""

    def error(self, message: str) -> NoReturn:
        choice = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if choice:
            valid = choice[2].replace("'", "").split(", ")
            message = (
                f"there is no command {choice[1]!r}; commands: {', '.join(valid)}."
                f"{nearest(choice[1], valid)}"
            )
        message = message.replace("the following arguments are required:", "missing:")
        if message == "missing: COMMAND":
            message += "; a comparison of your own begins with reality-check init"
        self.exit(USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


#: Seconds between two looks of `status --watch`.
_WATCH_SECONDS = 5.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status (0 done, 1 failed, 2 wrong usage, 130 stopped)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _parse(given)
    options.again = shlex.join(["reality-check", *given])
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


def _parse(given: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; overrides may stand after options, which argparse alone refuses."""
    options, rest = _parser().parse_known_args(given)
    for text in rest:
        if text.startswith("-") or not hasattr(options, "overrides"):
            known = re.findall(r"--[a-z]+", options.parser.format_help())
            what = f"option {text!r}" if text.startswith("-") else f"place for {text!r}"
            options.parser.error(f"there is no {what}.{nearest(text, known)}")
        options.overrides.append(text)
    return options


def _parser() -> _Parser:
    parser = _Parser(
        prog="reality-check",
        description=_DESCRIPTION,
        epilog="reality-check COMMAND --help says all about a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"reality-check {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    about = "write a commented YAML and a loss file to start from"
    init = _add(commands, "init", _init, about, _INIT)
    init.add_argument(
        "file",
        nargs="?",
        default="experiment.yaml",
        metavar="FILE",
        help="the YAML, in this or another folder (default: experiment.yaml)",
    )

    about = "validate an experiment and its losses; no training"
    check = _add(commands, "check", _check, about, _CHECK)
    _add_experiment(check)

    run = _add(commands, "run", _run, "run an experiment to its end, or continue it", _RUN)
    _add_experiment(run)
    run.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="output folder (default: runs/NAME, with the name of the experiment)",
    )
    run.add_argument(
        "--workers",
        type=_positive,
        metavar="N",
        help="trials at a time, each a process of its own, which takes one CPU core or shares the "
        "GPU (default: 1, or one for each of --devices)",
    )
    run.add_argument(
        "--devices",
        type=lambda text: text.split(","),
        default=[],
        metavar="0,1,...",
        help="what the workers train on, in turn: numbers of GPUs, or cpu (default: the "
        "experiment's device, which all share)",
    )
    run.add_argument(
        "--folds-at-once",
        type=_positive,
        default=1,
        metavar="N",
        help="folds of a trial that a worker trains at a time, each a process (default: 1); "
        "several share a GPU well, and the results are the same",
    )
    run.add_argument(
        "--processes-per-network",
        type=_positive,
        default=1,
        metavar="N",
        help="processes that train each network together, on N GPUs (default: 1); for large "
        "networks and batches",
    )

    run.add_argument(
        "--launcher",
        choices=("local", "slurm"),
        default="local",
        help="who starts the workers: this machine, or SLURM as an array of jobs, which go on when "
        "this command or the login ends; the same command finds them again (default: local)",
    )
    run.add_argument(
        "--slurm",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="what a job asks for, as in the experiment's block slurm: partition, hours, gpus, "
        "cpus, memory, account, qos, ...; may be given several times",
    )

    status = _add(commands, "status", _status, "show how far an experiment is", _STATUS)
    status.add_argument(
        "dir",
        metavar="DIR",
        help="output folder, e.g. runs/quickstart, or the experiment that was run here",
    )
    status.add_argument(
        "--json", action="store_true", help="as one line of JSON (keys: docs/status.md)"
    )
    status.add_argument(
        "--watch", action="store_true", help="refresh until all is done or nothing goes on"
    )

    report = _add(commands, "report", _report, "write the report anew from the records", _REPORT)
    report.add_argument(
        "dirs",
        nargs="+",
        type=Path,
        metavar="DIR",
        help="output folder, e.g. runs/quickstart; or several, with --out",
    )
    report.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for the report of several folders"
    )
    report.add_argument(
        "--compare",
        choices=("published",),
        help="published: with the tables of the Reality Check and of Appendix D beside the "
        "results, where they are of the same data set",
    )

    about = "list what exists, or print a resolved experiment"
    show = _add(commands, "show", _show, about, _SHOW)
    show.add_argument(
        "what",
        metavar="WHAT",
        help="datasets, models, methods, protocols, experiments, papers, losses, trunks, miners, "
        "distances, reducers, regularizers, figures, schema (JSON, for editors), or an experiment "
        "(its resolved YAML)",
    )
    show.add_argument(
        "--markdown", action="store_true", help="of papers: the table of docs/papers.md"
    )
    show.add_argument(
        "overrides",
        nargs="*",
        default=[],
        metavar="KEY=VALUE",
        help="changes to the experiment, as for run",
    )

    about = "score the kept networks again, query by query"
    score = _add(commands, "score", _score, about, _SCORE)
    score.add_argument("dir", type=Path, metavar="DIR", help="output folder, e.g. runs/quickstart")
    score.add_argument(
        "--map", action="store_true", help="also a t-SNE of test images by each method"
    )

    worker = _add(commands, "worker", _worker, "join the work on an output folder", _WORKER)
    worker.add_argument("dir", type=Path, metavar="DIR", help="output folder of a started run")
    worker.add_argument(
        "--storage",
        metavar="URL",
        help="how this machine reaches the database, if not by the URL that the run was started "
        "with; its password may stand in REALITY_CHECK_STORAGE_PASSWORD",
    )
    worker.add_argument(
        "--folds-at-once",
        type=_positive,
        default=1,
        metavar="N",
        help="folds of a trial that it trains at a time, each a process (default: 1)",
    )

    figure = _add(commands, "figure", figure_command.run, figure_command.TITLE, figure_command.MORE)
    figure_command.add_arguments(figure)

    about, more = verdict_command.TITLE, verdict_command.MORE
    verdicts = _add(commands, "verdicts", verdict_command.run, about, more)
    verdict_command.add_arguments(verdicts)

    about, run_it = completion.TITLE, functools.partial(completion.run, parser=parser)
    completion.add_arguments(_add(commands, "completion", run_it, about, completion.MORE))
    return parser


def _add(commands: Any, name: str, function: Any, text: str, more: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.set_defaults(command=function, parser=command)
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
        default=[],
        metavar="KEY=VALUE",
        help="changes to it: any key of `reality-check show EXPERIMENT`, e.g. protocol=mlrc, "
        "protocol.search.trials=8, methods.contrastive.samples_per_class=2",
    )


def _positive(text: str) -> int:
    value = int(text) if text.isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, got {text!r}")
    return value


def _status(options: argparse.Namespace) -> int:
    from reality_check.cli.status import print_status
    from reality_check.studies.campaign import Campaign
    from reality_check.studies.output_folder import load_locked
    from reality_check.studies.progress import find_folder

    folder = find_folder(options.dir)
    campaign = Campaign(load_locked(folder), folder)
    state = print_status(campaign, options.json)
    while options.watch and state == "running":
        time.sleep(_WATCH_SECONDS)
        state = print_status(campaign, options.json, again=True)
    return FAILED if options.watch and state == "failed" else DONE


def _worker(options: argparse.Namespace) -> int:
    from reality_check.launch.worker import join

    return join(options.dir, options.folds_at_once, options.storage)


def _init(options: argparse.Namespace) -> int:
    from reality_check.cli.init import write_starter
    from reality_check.utils.errors import at_home

    path = at_home(options.file)
    print(*write_starter(path), sep="\n")
    print("Next: change the loss and the YAML as you like, or nothing at first; then")
    if path.parent != Path():
        print(f"  cd {shlex.quote(str(path.parent))}")
    print(f"  reality-check check {path.name}")
    print(f"  reality-check run {path.name}")
    return DONE


def _check(options: argparse.Namespace) -> int:
    from reality_check.cli.check import print_check
    from reality_check.config import load_experiment

    status = print_check(load_experiment(options.experiment, options.overrides))
    if status == DONE:
        command = shlex.join(["reality-check", "run", options.experiment, *options.overrides])
        print(f"All of it can run. Next: {command}")
    return status


def _show(options: argparse.Namespace) -> int:
    from reality_check.cli.show import print_listing

    return print_listing(options.what, options.overrides, options.markdown)
