"""`reality-check check`: what is wrong with an experiment, before anything trains."""

from __future__ import annotations

import sys

import torch

from reality_check.config.schema import Experiment
from reality_check.data import load_dataset
from reality_check.studies.campaign import pick_device
from reality_check.training.methods import search_space
from reality_check.training.preflight import (
    LossCheck,
    check_data,
    check_loss,
    check_model,
    estimate_cost,
)
from reality_check.utils.errors import UsageError
from reality_check.utils.text import duration

#: The second half of a sentence on a loss that fails with bfloat16 only.
_HARMLESS = "training here gives losses float32, so this does no harm"


def print_check(experiment: Experiment) -> int:
    """Check an experiment without training; return 0 only if all its losses work in float32."""
    dataset = load_dataset(experiment.dataset)
    check_data(experiment, dataset)
    check_model(experiment, dataset)
    print(f"data set {dataset.name}: {dataset.num_classes} classes, {len(dataset)} images; fits")
    problems = 0
    for method in experiment.methods:
        searched = ", ".join(search_space(method, experiment.protocol)) or "nothing"
        print(f"{method.name} ({method.loss}); searched: {searched}")
        for precision in (torch.float32, torch.bfloat16):
            problems += _print_loss_check(experiment, method.name, precision)
    if problems:
        return 2
    cost = estimate_cost(experiment, dataset, pick_device(experiment.device))
    print(
        f"cost: {cost.fold_runs} trainings; at {cost.seconds_per_epoch:.2f} s an epoch on this "
        f"machine at most {duration(cost.seconds)} for one worker, evaluation apart; less where "
        "trainings stop early, half with --workers 2 on two free cores"
    )
    return 0


def _print_loss_check(experiment: Experiment, name: str, precision: torch.dtype) -> int:
    """Print one line; return 1 if training would not work."""
    try:
        found = check_loss(experiment, experiment.method(name), precision)
    except UsageError as error:
        if precision is torch.float32:
            raise
        print(f"  bfloat16 embeddings: not supported ({_first_line(error)}); {_HARMLESS}")
        return 0
    harmless = f"; {_HARMLESS}" if found.problem and precision is not torch.float32 else ""
    print(f"  {found.precision} embeddings: {_describe(found)}{harmless}")
    if found.problem is not None and precision is torch.float32:
        print(f"reality-check: method {name!r}: {found.problem}.", file=sys.stderr)
        return 1
    return 0


def _describe(found: LossCheck) -> str:
    if found.problem is not None:
        return found.problem
    text = f"loss {found.value:.4g}, gradients reach the embeddings"
    if found.parameters:
        shapes = ", ".join(f"{name} {list(shape)}" for name, shape in found.parameters.items())
        return f"{text} and its own parameters ({shapes})"
    return f"{text}; it has no parameters of its own"


def _first_line(error: Exception) -> str:
    return str(error).rpartition(": ")[2].splitlines()[0]
