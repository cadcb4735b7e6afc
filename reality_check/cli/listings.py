"""What ``reality-check show`` prints: lists of names, and resolved experiments."""

from __future__ import annotations

import inspect
import itertools
import json
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from reality_check.cli.columns import name_table, print_table
from reality_check.config import config_files, load_experiment
from reality_check.config.classes import NAMESPACES, PLURALS, registered_names
from reality_check.config.json_schema import json_schema
from reality_check.config.metrics import Stage
from reality_check.config.named import expand
from reality_check.config.plugins import Plugin, is_usable, plugins
from reality_check.config.schema import Experiment
from reality_check.config.suite import Suite, load
from reality_check.config.yaml_text import dump_yaml
from reality_check.report.deviations import against_reference, own_ranges
from reality_check.report.wording import counted
from reality_check.studies.plan import count_trainings
from reality_check.utils.config_files import paper_files
from reality_check.utils.errors import UsageError
from reality_check.utils.text import nearest, one_line

_GROUPS = ("datasets", "models", "methods", "protocols", "experiments")
_TRUNKS = "trunks"
_SCHEMA = "schema"
_PAPERS = "papers"
_KINDS = {PLURALS[kind]: kind for kind in NAMESPACES}
#: Signatures and first docstring lines of this package's trunks, so that torch is not imported; a
#: test compares them.
OWN_TRUNKS = {
    "conv4": "width=32\n"
    "Four 3x3 convolutions of stride 2 with BatchNorm and ReLU: a trunk for small images.",
    "conv4_pool": "width=64\n"
    "Four blocks of 3x3 convolution, BatchNorm, ReLU and 2x2 maximum pooling.",
    "bn_inception": "-\nGoogLeNet with batch normalisation, up to its last feature maps.",
    "identity": "-\nA trunk that returns its input, for vectors.",
}
_ARGUMENTS = "arguments of its own (and what it is)"
#: Arguments that the harness passes itself.
_HARNESS_ARGUMENTS = {"num_classes", "embedding_size", "channels"}


def print_listing(what: str, overrides: Sequence[str] = ()) -> None:
    """Print a list of names, or a resolved experiment."""
    if what == _PAPERS:
        _print_papers()
    elif what in _GROUPS:
        _print_group(what)
    elif what == _SCHEMA:
        print(json.dumps(json_schema(Path()), indent=1))
    elif what == _TRUNKS:
        _print_trunks()
    elif what in _KINDS:
        _print_classes(_KINDS[what])
    elif Path(what).exists() or what in config_files("experiments") or what in paper_files():
        loaded = load(what, overrides)
        for experiment in loaded.members.values() if isinstance(loaded, Suite) else [loaded]:
            for line in _summary(experiment):
                print(f"# {line}")
            print(dump_yaml(experiment.plain(), compact=True), end="")
    else:
        _print_part(what, overrides)


def _print_part(name: str, overrides: Sequence[str]) -> None:
    """Print the data set, model, method and protocol of this name, if they exist.

    Raises:
        UsageError: nothing has this name, or there are overrides, which only experiments take.
    """
    groups = [group for group in _GROUPS if name in config_files(group)]
    if not groups:
        words = [*_GROUPS, _TRUNKS, _PAPERS, *_KINDS, _SCHEMA]
        named = itertools.chain.from_iterable(map(config_files, _GROUPS))
        known = [*words, *named, *paper_files()]
        raise UsageError(
            f"there is nothing named {name!r} to show; write one of {', '.join(words)}, the name "
            "of an experiment or of what it names (reality-check show experiments, protocols ... "
            f"lists them), or a YAML file.{nearest(name, known)}"
        )
    if overrides:
        raise UsageError(
            f"{name} is in {groups[0]}, and overrides ({overrides[0]}) are of an experiment; show "
            "one, or leave them out."
        )
    for group in groups:
        kind = group.removesuffix("s")
        print(f"# {kind} {name}")
        print(dump_yaml(expand(name, kind, group, None), compact=True), end="")


def _summary(experiment: Experiment) -> Iterator[str]:
    """Yield a few lines that summarise an experiment."""
    protocol = experiment.protocol
    training, reference = protocol.training, protocol.reference
    yield (
        f"{experiment.name}: {len(experiment.methods)} methods on {experiment.dataset.name}, "
        f"model {experiment.model.name}, protocol {protocol.name}"
    )
    epoch = "a pass over the data in"  # the next words are "batches of"
    if training.iterations_per_epoch != "pass":
        epoch = str(training.iterations_per_epoch)
    trainings = f"{count_trainings(experiment):,} trainings"
    if protocol.search.trials_per_parameter is not None:
        trainings = "trainings by the parameters of each method (reality-check check counts them)"
    yield (
        f"{trainings}, each at most {training.max_epochs} epochs of "
        f"{epoch} batches of {' or '.join(map(str, training.batch_sizes))}"
    )
    yield f"a method: {_describe_trainings(experiment)}"
    deviations = (*against_reference(experiment), *own_ranges(experiment))
    topics = [deviation.topic for deviation in deviations]
    differs = f"differs from {reference} in: {', '.join(dict.fromkeys(topics))}"
    yield differs if topics else f"no deviations from {reference}"


def _describe_trainings(experiment: Experiment) -> str:
    """Return a phrase that describes the trainings of a method."""
    protocol = experiment.protocol
    folds, runs, search = protocol.split.folds, protocol.runs, protocol.search
    if protocol.stages == (Stage.FINAL,):
        selection = (
            "of fixed length" if protocol.selects_on == "last" else "SELECTED ON THE TEST CLASSES"
        )
        return f"{runs} networks on all classes, {selection}"
    if Stage.REPRODUCTIONS not in protocol.stages:
        trials = f"{counted(search.trials, 'trial')} on {counted(folds, 'fold')}"
        return f"{trials} for the number of epochs, {runs} networks on all classes"
    trials = search.trials_text
    if search.repeats > 1:
        trials = f"{search.repeats} searches of {trials}"
    final = f", {runs} networks on all classes (complete)" if Stage.FINAL in protocol.stages else ""
    return f"{trials} and {runs} reproductions on {folds} folds{final}"


def _print_group(group: str) -> None:
    """Print a table of named YAML files, each with the comment that it begins with."""
    table = name_table("name", "what it is")
    for name, path in sorted(config_files(group).items()):
        lines = path.read_text(encoding="utf-8").splitlines()
        comments = itertools.takewhile(lambda line: line.startswith("#"), lines)
        table.add_row(name, escape(" ".join(line.lstrip("# ") for line in comments)))
    if group == "datasets":
        _add_plugins(table, "dataset")
    print_table(table)


def _print_papers() -> None:
    """Print a table of the experiments that repeat tables of papers."""
    counts = ("methods", "networks", "gaps")
    table = name_table("name", "item", "data", *counts, right=counts)
    for name in sorted(paper_files()):
        experiment = load_experiment(name)
        published = experiment.published_results
        assert published is not None, name
        numbers = len(experiment.methods), count_trainings(experiment), len(published.gaps)
        table.add_row(name, published.item, experiment.dataset.name, *map(str, numbers))
    print_table(table)
    print(
        "networks: how many are trained. gaps: differences from the paper, which the report and\n"
        "`reality-check show NAME` list; `show NAME` has the published figures, too."
    )


def _print_classes(kind: str) -> None:
    """Print a table of the classes of a kind, such as losses."""
    table = name_table("name", _ARGUMENTS)
    for name, module in sorted(registered_names(kind).items()):
        cls = getattr(import_module(module), name)
        table.add_row(name, escape(_describe_class(cls, module.startswith("pml_extensions"))))
    _add_plugins(table, kind)
    print_table(table)
    if kind == "loss":
        print(
            "Their arguments distance, reducer, embedding_regularizer and weight_regularizer\n"
            "take a name or {class: NAME, ...}; see reality-check show distances (reducers, ...).\n"
            "NormalizedSoftmaxLoss is that of pml_extensions; PML's, which the methods named\n"
            "normalized_softmax take, is pytorch_metric_learning.losses.NormalizedSoftmaxLoss."
        )


def _print_trunks() -> None:
    """Print a table of this package's trunks and of plugins."""
    table = name_table("name", _ARGUMENTS)
    for name, description in OWN_TRUNKS.items():
        table.add_row(name, escape(description))
    _add_plugins(table, "trunk")
    print_table(table)
    print(
        "And the networks of torchvision and timm, such as resnet50, where they are installed,\n"
        "and classes of your own by import path: docs/trunks.md."
    )


def _add_plugins(table: Table, kind: str) -> None:
    """Add a row for each name that an installed package registers, usable or not."""
    for name, entries in plugins(kind).items():
        for plugin in entries:
            table.add_row(name, escape("\n".join(_describe_plugin(plugin))))


def _describe_plugin(plugin: Plugin) -> Iterator[str]:
    """Yield lines on a registered class, or the reason why it cannot be loaded."""
    try:
        yield _describe_class(plugin.load(), documented=True)
    except UsageError as error:
        yield str(error)
        return
    yield f"from the package {plugin.title}"
    if not is_usable(plugin.entry.name):
        yield f"no name that a YAML can hold; write {plugin.import_path}"


def _describe_class(cls: Any, documented: bool) -> str:
    """Return a class's arguments and, if ``documented``, the first line of its docstring."""
    try:
        parameters = list(inspect.signature(cls).parameters.values())
    except (TypeError, ValueError):  # such as a class written in C
        parameters = []
    arguments = [
        p.name if p.default is p.empty else f"{p.name}={one_line(p.default, 30)}"
        for p in parameters
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name not in _HARNESS_ARGUMENTS
    ]
    lines = [", ".join(arguments) or "-"]
    if documented:
        lines.append((cls.__doc__ or "").strip().partition("\n")[0])
    return "\n".join(filter(None, lines))
