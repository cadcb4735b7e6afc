"""``reality-check check``: what is wrong with an experiment, before anything trains."""

from __future__ import annotations

import argparse
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from reality_check.cli.parsing import Commands, add_command, add_experiment
from reality_check.utils.errors import every, labelled
from reality_check.utils.exit_status import DONE
from reality_check.utils.text import duration

if TYPE_CHECKING:
    from reality_check.config.schema import Experiment
    from reality_check.config.suite import Suite
    from reality_check.launch.cost import CostEstimate
    from reality_check.statistics import Shares
    from reality_check.training.preflight import LossCheck

_DETAILS = """\
Reads the YAML and the images, builds each loss, runs it forward and backward on
random embeddings, checks that gradients reach the embeddings and the loss's own
parameters, and estimates the cost of the run. What is searched is tried at its
middle, at each choice and at both ends. Nothing is trained or written.
Each mistake is reported in one sentence that says what to write instead.

examples:
  reality-check check experiment.yaml
  reality-check check experiment.yaml protocol=mlrc   the cost with mlrc
  reality-check check cub200_mlrc dataset.path=/my/CUB_200_2011
  reality-check check mine.yaml --like runs/first     detectable differences
  reality-check check four_features                   a suite: all data sets

exit status: 0 everything can run, 2 something cannot
"""


def add_parser(commands: Commands) -> None:
    title = "validate an experiment and its losses without training"
    parser = add_command(commands, "check", run, title, _DETAILS)
    add_experiment(parser)
    parser.add_argument(
        "--like",
        metavar="RUN",
        help="take the variances of searches and trainings from this finished run, a folder or "
        "a pack (default: those of docs/calibration.md)",
    )


def run(options: argparse.Namespace) -> int:
    from reality_check.config.suite import Suite, load

    like = None
    if options.like is not None:
        from reality_check.registry.pack import recorded_of
        from reality_check.report.collect import collect
        from reality_check.report.planning import scatter_of

        like = scatter_of(collect(recorded_of(Path(options.like))))
    loaded = load(options.experiment, options.overrides)
    if isinstance(loaded, Suite):
        _print_suite(loaded, like)
    else:
        print_check(loaded, like)
    command = shlex.join(["reality-check", "run", options.experiment, *options.overrides])
    print(f"Everything can run. Next: {command}")
    return DONE


def _print_suite(suite: Suite, like: Shares | None) -> None:
    """Check the experiments of a suite, and print their cost together."""
    costs = every(  # the mistakes of all data sets together, such as each that is missing
        partial(labelled, name, partial(print_check, experiment, like))
        for name, experiment in suite.members.items()
    )
    seconds, trainings = sum(c.seconds for c in costs), sum(c.trainings for c in costs)
    print(
        f"all {len(costs)} data sets: {trainings} trainings, about {duration(seconds)} for one "
        "worker; the report says on how many data sets a loss is above another one"
    )


def print_check(experiment: Experiment, like: Shares | None = None) -> CostEstimate:
    """Check an experiment without training; return its cost.

    Args:
        experiment: a validated experiment.
        like: expected variances of searches and trainings; ``None`` stands for the ones in
            docs/calibration.md.

    Raises:
        UsageError: the experiment cannot run; the message lists all mistakes.
    """
    from reality_check.data import split_dataset
    from reality_check.data.sanity import copies
    from reality_check.launch.check import assumptions, check
    from reality_check.launch.cost import estimate_cost
    from reality_check.report.planning import resolution_sentence
    from reality_check.report.treatment import open_schedules
    from reality_check.training.methods import search_space
    from reality_check.training.prepared_experiment import pick_device

    checked = check(experiment, trained_here=False, verify=False)
    dataset, trained = checked.dataset, checked.experiment.trained()
    print(
        f"data set {dataset.name}: {dataset.num_classes} classes, {len(dataset)} "
        f"{dataset.noun}s; fits"
    )
    for sentence in assumptions(trained, dataset):
        print(sentence)
    if copied := copies(dataset, split_dataset(dataset, trained.protocol.split).test):
        print(f"copies: {copied}")
    for pack in checked.packs:
        names = ", ".join(method.name for method in pack.experiment.methods)
        print(f"{names}: from the pack {pack.label}, nothing is trained")
    for method, loss in zip(trained.methods, checked.losses, strict=True):
        space = search_space(method, experiment.protocol, experiment.model_of(method))
        searched = ", ".join(space) or "nothing"
        inserted = [  # $NAME stands for a value that the harness knows
            f"{key}={value}" for key, value in method.arguments.items() if "$" in str(value)
        ]
        filled = f"; filled in for each training: {', '.join(inserted)}" if inserted else ""
        print(f"{method.name} ({method.loss}); searched: {searched}{filled}")
        print(f"  {_describe_loss(loss)}")
    if sentence := open_schedules(trained):
        print(sentence)
    cost = estimate_cost(trained, dataset, pick_device(experiment.device))
    print(
        f"cost: {cost.trainings} trainings; with evaluation, baselines and report about "
        f"{duration(cost.seconds)} for one worker on this machine ({duration(cost.least)} if every "
        f"training stops as early as it may, {duration(cost.most)} if each uses all its epochs); "
        "half with --workers 2 on two free cores"
    )
    if cost.kept_bytes:
        print(f"disk: up to {cost.kept_bytes / 1e6:,.0f} MB of weights until trials are scored")
    num_compared = sum(method.control_of is None for method in experiment.methods)
    if num_compared > 1:
        print(resolution_sentence(experiment.protocol, num_compared, like))
    return cost


def _describe_loss(checked: LossCheck) -> str:
    """Return a line on the value, the gradients and the parameters of a loss."""
    text = f"loss {checked.value:.4g} on random embeddings, gradients reach the embeddings"
    if checked.parameters:
        shapes = ", ".join(f"{name} {list(shape)}" for name, shape in checked.parameters.items())
        return f"{text} and its own parameters ({shapes})"
    return f"{text}; it has no parameters of its own"
