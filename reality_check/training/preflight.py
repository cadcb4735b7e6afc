"""Checks before any training: whether the data fit, and whether the losses run."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pml_extensions.losses import HeatedUpSoftmaxLoss
from pml_extensions.modules import BatchNormNeck
from reality_check.config.classes import find_class
from reality_check.config.described import description_of
from reality_check.config.method import Method
from reality_check.config.metrics import Stage, metric_of, own_metrics
from reality_check.config.model import Model
from reality_check.config.protocol import Protocol
from reality_check.config.schema import Experiment
from reality_check.config.training import Training
from reality_check.config.values import Choices, Searched, choices_of, ends_of
from reality_check.data import ClassSplits, SampleSet, build_sampler, split_dataset
from reality_check.data.pairs import read_pairs
from reality_check.evaluation.scoring import Sample, own_metric
from reality_check.models import build_trunk
from reality_check.models.network import Network, build_network
from reality_check.models.pipeline import build_augmentation, input_shape
from reality_check.models.trunk_building import origin_mark, state_digest
from reality_check.training.first_values import check_first_values
from reality_check.training.methods import (
    SAMPLES_PER_CLASS,
    FilledMethod,
    build_loss,
    build_miner,
    check_start,
    check_warm_start,
    enter_second_phase,
    fill_method,
    loss_value,
    middles,
    search_space,
    toy_labels,
)
from reality_check.training.optimizers import build_optimizers
from reality_check.training.schedules import ScheduledValues
from reality_check.training.sub_batches import save_memory
from reality_check.utils.errors import UsageError, users_code

#: Size of the toy test set for trying the user's metrics: classes, and embeddings per class.
_TOY_CLASSES, _TOY_SAMPLES_PER_CLASS = 8, 4
#: Prefix of the searched learning rates, on which no loss depends.
_RATES = "learning_rates."
#: If there are more pairs of choices than this, none is tried.
_MAX_PAIRS = 64


@dataclass(frozen=True)
class LossCheck:
    """The outcome of a forward and a backward pass of a method in float32.

    Attributes:
        value: the value of the loss on the toy batch.
        parameters: the shapes of the loss's own parameters, by name.
        problem: one sentence if something is wrong, otherwise ``None``.
    """

    value: float
    parameters: dict[str, tuple[int, ...]]
    problem: str | None = None


def check_loss(experiment: Experiment, method: Method, num_classes: int | None = None) -> LossCheck:
    """Run a method's loss forward and backward on random embeddings, labelled as a batch.

    All :func:`changes` of the searched parameters and the width of a final network are tried too.

    Args:
        experiment: the experiment.
        method: one of its methods.
        num_classes: the number of classes that the loss is built for; ``None`` means the number of
            classes in the batch.

    Returns:
        The outcome with every searched parameter at the middle of its range.

    Raises:
        UsageError: the loss cannot be built, does not return one number, or has no gradient.
    """
    protocol, model = experiment.protocol, experiment.model_of(method)
    size = experiment.training_of(method).embedding_size
    space, checks = search_space(method, protocol, model), []
    sizes = [size]
    if Stage.FINAL in protocol.stages:
        sizes.append(size * protocol.split.folds)
    for change in changes({key: space[key] for key in space if not key.startswith(_RATES)}):
        with _name_in_errors(method, change):
            filled = fill_method(method, protocol, middles(space) | change, model)
            # The width of a final network is tried with the middles only.
            for width in sizes if not change else [size]:
                checks.append(_check_loss_once(experiment, method, filled, width, num_classes))
            # At the ends of a range, random embeddings may well be too far apart for a gradient.
            only_choices = change and all(isinstance(space[name], Choices) for name in change)
            if only_choices and checks[-1].problem and not checks[0].problem:
                raise UsageError(checks[-1].problem)
    return checks[0]


def changes(space: Mapping[str, Searched]) -> list[dict[str, Any]]:
    """Return the values to try instead of the middles, by parameter.

    First come no changes, then each end of a range, each choice, and pairs of choices if there are
    few.
    """
    single = [{name: end} for name, value in space.items() for end in ends_of(value)]
    choices = {name for name, value in space.items() if isinstance(value, Choices)}
    pairs = [
        first | second
        for first, second in itertools.combinations(single, 2)
        if len(choices & {*first, *second}) == 2  # choices of two parameters
    ]
    return [{}, *single, *(pairs if len(pairs) <= _MAX_PAIRS else [])]


@contextlib.contextmanager
def _name_in_errors(method: Method, change: Mapping[str, Any]) -> Iterator[None]:
    """Add the method and the searched values that are not at their middles to error messages."""
    label = f"method {method.name!r}"
    try:
        with users_code(label):
            yield
    except UsageError as error:
        values = ", ".join(f"{name}={value!r}" for name, value in change.items())
        searched = f" (with {values}, which is searched)" if values else ""
        text = str(error).removeprefix(f"{label}: ")  # which users_code may have added
        raise UsageError(f"{label}: {text}{searched}") from error


def _check_loss_once(
    experiment: Experiment,
    method: Method,
    filled: FilledMethod,
    size: int,
    num_classes: int | None,
) -> LossCheck:
    """Try a loss with one set of sampled values, through its schedules and phases."""
    training = experiment.training_of(method)
    torch.manual_seed(0)
    samples = filled.samples_per_class or SAMPLES_PER_CLASS
    batch = training.filled(filled.params).batch_sizes[0]
    # A softmax needs at least two classes, even where a batch has only one.
    loss_classes = max(num_classes or 2, batch // samples, 2)
    loss, miner = build_loss(filled, loss_classes, size), build_miner(filled, loss_classes, size)
    labels = toy_labels(batch, samples, loss_classes)
    leaf = torch.randn(len(labels), size).requires_grad_()
    label = (
        f"{type(loss).__name__} failed on a batch of {len(labels)} embeddings of size {size}, of "
        f"{loss_classes} classes"
    )
    with users_code(label):
        # As in a training, the embeddings are not a leaf, so that losses may change them in place.
        value = loss_value(loss, miner, leaf.clone(), labels)
        value.backward()
    scheduled = ScheduledValues(loss, filled.schedules, training.max_epochs)
    for epoch in (0, training.max_epochs):  # set the first and the last values
        scheduled.set(epoch, 1)  # as if an epoch had one iteration
    if filled.second_phase is not None:
        enter_second_phase(loss, filled.second_phase)
    return _outcome_of_pass(samples, loss, leaf, value)


def _outcome_of_pass(
    samples_per_class: int, loss: torch.nn.Module, leaf: torch.Tensor, value: torch.Tensor
) -> LossCheck:
    """Return the outcome of a backward pass, with the first problem that is found.

    Args:
        samples_per_class: of the batch.
        leaf: the embeddings, with their gradient.
        value: the loss.
    """
    loss_parameters = {name: p for name, p in loss.named_parameters() if p.requires_grad}
    gradient = leaf.new_tensor(torch.nan) if leaf.grad is None else leaf.grad
    missing = [name for name, p in loss_parameters.items() if p.grad is None]
    problem = None
    if not value.isfinite():
        problem = f"the loss of a random batch is {float(value.detach())}; it must be finite"
    elif not gradient.isfinite().all():
        problem = "the gradient of the embeddings is missing, NaN or infinite on a random batch"
    elif not gradient.any():
        problem = (
            "the gradient of every embedding is 0 on a random batch with "
            f"samples_per_class={samples_per_class}"
        )
    elif missing:
        problem = f"the parameter {missing[0]!r} of the loss gets no gradient"
    elif any(p.dtype != torch.float32 for p in loss_parameters.values()):
        problem = "the loss changed the type of its own parameters"
    shapes = {name: tuple(p.shape) for name, p in loss_parameters.items()}
    return LossCheck(float(value.detach()), shapes, problem)


def check_data(experiment: Experiment, dataset: SampleSet) -> None:
    """Make sure that the classes suffice for the folds and the batches.

    Raises:
        UsageError: there are too few classes, a batch needs more classes than a fold has, or a
            list of pairs is invalid.
    """
    splits = split_dataset(dataset, experiment.protocol.split)
    _check_class_sizes(dataset, splits)
    read_pairs(experiment.protocol.pairs, dataset.subset(splits.test))
    training_classes = [fold.train for fold in splits.folds]
    if experiment.protocol.selects_on != "validation":
        training_classes = [splits.trainval]
    sizes = np.bincount(dataset.labels)
    for method in experiment.methods:
        batches = experiment.training_of(method).batch_sizes
        all_options = itertools.product(
            training_classes, batches, choices_of(method.samples_per_class)
        )
        for classes, batch, per_class in all_options:
            # The labels of the subset of these classes.
            labels = np.repeat(np.arange(len(classes)), sizes[list(classes)])
            try:
                build_sampler(labels, batch, per_class, seed=0)
            except UsageError as error:
                raise UsageError(f"method {method.name!r}: {error}") from None


def _check_class_sizes(dataset: SampleSet, splits: ClassSplits) -> None:
    """Make sure that every part has a class with several images, since others have no queries."""
    sizes = np.bincount(dataset.labels)
    parts = {f"validation of fold {n}": fold.validation for n, fold in enumerate(splits.folds)}
    for name, classes in {**parts, "test": splits.test}.items():
        if sizes[list(classes)].max() < 2:
            raise UsageError(
                f"All {len(classes)} classes of {dataset.name!r} for {name} have a single image, "
                "but retrieval needs at least 2 of a class; add images."
            )


def check_metrics(protocol: Protocol) -> None:
    """Make sure that the final metrics can be computed after all trainings.

    The user's own metrics are tried on random embeddings.
    """
    names = [name for name in protocol.final_metrics if metric_of(name).needs_faiss]
    if names and importlib.util.find_spec("faiss") is None:
        raise UsageError(
            f"protocol.final_metrics has {', '.join(names)}, which faiss computes, but that is not "
            "installed; write pip install faiss-cpu, or leave them out."
        )
    size = _TOY_CLASSES * _TOY_SAMPLES_PER_CLASS, protocol.training.embedding_size
    embeddings = torch.randn(size, generator=torch.Generator().manual_seed(0))
    labels = np.repeat(np.arange(_TOY_CLASSES), _TOY_SAMPLES_PER_CLASS)
    for name in own_metrics([*protocol.final_metrics, protocol.selects_by]):
        own_metric(Sample(embeddings, labels, normalize=True), [metric_of(name)])


def check_column(name: str) -> None:
    """Make sure that a column function of the user can be called when the run ends.

    Raises:
        UsageError: the name cannot be imported, or the function takes other arguments.
    """
    function = find_class(name, "column")
    with users_code(f"column {name!r}"):
        description_of(function)  # raises if the function describes itself wrongly
    try:
        inspect.signature(function).bind(None)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"column {name!r} must be a function of one argument, the records of a method "
            f"(reality_check.MethodRecords), but calling it with one fails: {error}."
        ) from None


def check_starts(experiment: Experiment) -> None:
    """Make sure that searches can start from their ``warm_start`` or another method's winner."""
    for method in experiment.methods:
        if method.warm_start is not None:
            model = experiment.model_of(method)
            check_warm_start(method, search_space(method, experiment.protocol, model))
        if method.starts_from is not None:
            simpler = experiment.method(method.starts_from.method)
            check_start(method, simpler, experiment.protocol)


def check_model(experiment: Experiment, dataset: SampleSet) -> None:
    """Build the augmentation, the networks and the optimisers, as a training would.

    Raises:
        UsageError: a trunk or an argument is unknown, or a trunk does not fit the images.
    """
    protocol = experiment.protocol
    classes = len(split_dataset(dataset, protocol.split).trainval)
    for model, training, methods in _group_by_training(experiment):
        size = training.embedding_size
        _check_stored(model, dataset)
        shape = input_shape(dataset, training.augmentation)
        build_augmentation(model, training.augmentation, shape)
        searched = model.searched()
        # The last network, which is used below, is the one without changes.
        for change in reversed(changes(searched)):
            fixed_model = model.filled(middles(searched) | change)
            network = build_network(fixed_model, shape, size, seed=0)
        save_memory(network, training)
        # PCA needs as many features as the embedding of a final network is wide.
        if Stage.FINAL in protocol.stages and model.embedder and model.embedder.init == "pca":
            build_network(fixed_model, shape, size * protocol.split.folds, seed=0)
        for method in methods:
            space = search_space(method, protocol, model)
            _check_trunk_rate(method, model, network, space)
            for change in changes(space):
                with _name_in_errors(method, change):
                    filled = fill_method(method, protocol, middles(space) | change, model)
                    loss = build_loss(filled, classes, size)
                    _check_loss_compares_output(loss, network)
                    check_first_values(filled, network, loss, training)
                    build_optimizers(network, loss, filled, training)


def _check_stored(model: Model, dataset: SampleSet) -> None:
    """Make sure that samples that are outputs of a trunk's module are those of this trunk."""
    if model.stored is None:
        return
    assert isinstance(model.frozen, str)
    if origin_mark(model.frozen, model.stored.state) not in dataset.origin:
        raise UsageError(
            f"the trunk continues after {model.frozen}, but {dataset.name!r} does not hold its "
            "outputs there; write dataset: FOLDER and trunk: {from: FOLDER} with the same folder "
            "of reality-check embed --until."
        )
    if state_digest(build_trunk(model, model.stored.images)) != model.stored.state:
        raise UsageError(
            f"the outputs of {model.frozen} in {dataset.name!r} were computed with other weights "
            f"of {model.trunk} than weights: {model.weights}; name those, or run reality-check "
            "embed --until again."
        )


def _check_trunk_rate(
    method: Method, model: Model, network: Network, space: Mapping[str, Searched]
) -> None:
    """Refuse a search of the trunk's learning rate if the trunk has no parameters."""
    if "learning_rates.trunk" in space and not list(network.trunk.parameters()):
        raise UsageError(
            f"method {method.name!r}: the learning rate of the trunk is searched, but "
            f"{model.trunk} has no parameters; write protocol.training.optimizers.trunk.lr: 0."
        )


def _check_loss_compares_output(loss: torch.nn.Module, network: Network) -> None:
    """Make sure that a loss which normalises batches compares the same embeddings as retrieval."""
    for part in loss.modules():
        if not isinstance(part, HeatedUpSoftmaxLoss) or part.normalization != "bn":
            continue
        # The last layer, which is a module without children.
        last = [child for child in network.embedder.modules() if not list(child.children())][-1]
        # Such a neck normalises in the same way.
        if part.shift is None and isinstance(last, BatchNormNeck) and not last.affine:
            continue
        remedy = (
            "model: {neck: heated_up_softmax} for it"
            if part.shift is None
            else "normalization: none for it, and model: {head: heated_up_softmax_bn_official}, "
            "whose BatchNorm learns the shift (alpha is then to be divided by the root of the "
            "embedding's width)"
        )
        raise UsageError(
            f"{type(part).__name__} compares batch-normalised embeddings "
            "(normalization: bn), but the network's own output, which is not, would be retrieved "
            f"with; write {remedy}."
        )


def _group_by_training(experiment: Experiment) -> list[tuple[Model, Training, list[Method]]]:
    """Return each distinct pair of model and training, with the methods that have it."""
    groups: list[tuple[Model, Training, list[Method]]] = []
    for method in experiment.methods:
        model, training = experiment.model_of(method), experiment.training_of(method)
        same = next((group for group in groups if group[:2] == (model, training)), None)
        if same is None:
            groups.append((model, training, [method]))
        else:
            same[2].append(method)
    return groups


def with_trials(experiment: Experiment) -> Experiment:
    """Return the experiment with the number of trials of each method.

    If that number does not depend on the searched parameters (``trials_per_parameter``), the
    experiment is returned unchanged.
    """
    protocol = experiment.protocol
    per_parameter = protocol.search.trials_per_parameter
    if per_parameter is None:
        return experiment
    methods = []
    for method in experiment.methods:
        if method.packed is None:
            space = search_space(method, protocol, experiment.model_of(method))
            trials = per_parameter * max(1, len(space))
            method = method.model_copy(update={"trials": trials})
        methods.append(method)
    return experiment.model_copy(update={"methods": methods})
