"""What ``reality-check check`` and ``reality-check show`` print."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

import torch
import yaml
from rich.console import Console
from rich.table import Table

from reality_check.campaign import pick_device
from reality_check.checking import LossCheck, check_data, check_loss, estimate_cost
from reality_check.config import config_files, load_experiment
from reality_check.config.schema import Experiment
from reality_check.data import load_dataset
from reality_check.errors import UsageError
from reality_check.methods import search_space
from reality_check.objects import NAMESPACES, registered_names
from reality_check.view import duration

_GROUPS = ("datasets", "models", "methods", "protocols", "experiments")
_KINDS = {"losses": "loss"} | {f"{kind}s": kind for kind in NAMESPACES if kind != "loss"}


def print_check(experiment: Experiment) -> int:
    """Check an experiment without training; return 0 only if all its losses work in float32."""
    dataset = load_dataset(experiment.dataset)
    check_data(experiment, dataset)
    print(f"data set {dataset.name}: {dataset.num_classes} classes, {len(dataset)} images: fits")
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
        f"machine at most {duration(cost.seconds)} for one worker, evaluation apart"
    )
    return 0


def _print_loss_check(experiment: Experiment, name: str, precision: torch.dtype) -> int:
    """Print one line; return 1 if training would not work."""
    try:
        found = check_loss(experiment, experiment.method(name), precision)
    except UsageError as error:
        if precision is torch.float32:
            raise
        print(
            f"  bfloat16 embeddings: not supported ({_first_line(error)}); training gives "
            "losses float32 embeddings, so this does no harm here"
        )
        return 0
    print(f"  {found.precision} embeddings: {_describe(found)}")
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


def print_listing(what: str, overrides: Sequence[str] = ()) -> int:
    """Print a list of names, or a resolved experiment."""
    if what in _GROUPS:
        return _print_group(what)
    if what in _KINDS:
        return _print_classes(_KINDS[what])
    experiment = load_experiment(what, overrides)
    print(yaml.safe_dump(experiment.plain(), sort_keys=False, allow_unicode=True), end="")
    return 0


def _print_group(group: str) -> int:
    table = Table("name", "what it is", box=None, pad_edge=False)
    for name, path in sorted(config_files(group).items()):
        comments = []
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line.startswith("#"):
                break
            comments.append(line.lstrip("# "))
        table.add_row(name, " ".join(comments))
    Console().print(table)
    return 0


def _print_classes(kind: str) -> int:
    table = Table("name", "from", "what it is", box=None, pad_edge=False)
    for name, module in sorted(registered_names(kind).items()):
        doc = getattr(import_module(module), name).__doc__ or ""
        table.add_row(name, module.partition(".")[0], doc.strip().partition("\n")[0])
    Console().print(table)
    return 0
