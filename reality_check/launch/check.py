"""Checks everything that can be checked before training; nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from reality_check.config.classes import named_classes, source_fingerprint
from reality_check.config.datasets import FunctionData
from reality_check.config.method import Method
from reality_check.config.metrics import own_metrics
from reality_check.config.model import Input, Model
from reality_check.config.plugins import find_plugin
from reality_check.config.protocol import Protocol
from reality_check.config.schema import Experiment
from reality_check.config.search import Search
from reality_check.data import ImageSet, SampleSet, load_dataset, split_dataset
from reality_check.models import weights_fingerprint
from reality_check.models.own_trunks import OwnTrunk
from reality_check.models.published_weights import FROM_SCRATCH
from reality_check.models.trunk_building import check_token_ids
from reality_check.models.trunk_names import is_users
from reality_check.registry.pack import Pack
from reality_check.registry.packed_methods import check_packed, packs_of
from reality_check.statistics import is_estimable
from reality_check.studies.plan import Step
from reality_check.studies.sampler import check_sampler
from reality_check.training.preflight import (
    LossCheck,
    check_column,
    check_data,
    check_loss,
    check_metrics,
    check_model,
    check_starts,
    with_trials,
)
from reality_check.training.prepared_experiment import pick_device
from reality_check.utils.errors import UsageError, every


@dataclass(frozen=True)
class Checked:
    """An experiment that can run.

    Attributes:
        experiment: the experiment; where trials are counted by parameters, with their numbers.
        dataset: its data set.
        losses: what was found about the loss of each method that is trained.
        packs: the packs from which it takes methods.
        code: the fingerprints of the data, the pretrained weights and the user's code, by name.
        trained_here: whether this machine trains; otherwise it need not have the device.
    """

    experiment: Experiment
    dataset: SampleSet
    losses: Sequence[LossCheck]
    packs: Sequence[Pack]
    code: Mapping[str, str]
    trained_here: bool = True


def check(
    experiment: Experiment,
    trained_here: bool = True,
    steps: Sequence[Step] = (),
    verify: bool = True,
) -> Checked:
    """Check everything about an experiment that can be checked before training.

    Args:
        experiment: the experiment.
        trained_here: see :class:`Checked`.
        steps: the steps in which it has grown.
        verify: whether to read all images that were decoded earlier, to check their checksums.

    Raises:
        UsageError: a check failed. The message has a line for each mistake.
    """
    packs = packs_of(experiment)
    if trained_here:
        pick_device(experiment.device)  # raises if this machine lacks it
    dataset = load_dataset(experiment.dataset, verify=verify)
    losses = _check_parts(experiment.trained(), dataset)
    experiment = with_trials(experiment)
    # The fingerprints of what is trained here and, from the packs, of packed methods.
    code = check_packed(experiment, fingerprints(experiment.trained(), dataset), steps, packs)
    return Checked(experiment, dataset, losses, packs, code, trained_here)


def _check_parts(experiment: Experiment, dataset: SampleSet) -> list[LossCheck]:
    """Check data, networks, losses and searches, and return the checks of the losses."""
    checks: list[Callable[[], LossCheck | None]] = [
        partial(check_data, experiment, dataset),
        partial(check_model, experiment, dataset),
        *(partial(check_token_ids, model, dataset) for model in _models(experiment)),
        partial(check_starts, experiment),
        partial(check_metrics, experiment.protocol),
        partial(check_sampler, experiment.protocol.search),
        partial(_check_budget, experiment.protocol.search),
        *(partial(check_column, name) for name in experiment.report.columns),
        *(
            partial(_check_method_loss, experiment, method, dataset)
            for method in experiment.methods
        ),
    ]
    # ``every`` makes all checks, and reports the mistakes of all of them together.
    return [checked for checked in every(checks) if checked is not None]


def _check_budget(search: Search) -> None:
    """Check that the subsets of a random search leave something to estimate.

    Raises:
        UsageError: no interval and no test can be made of so few trials.
    """
    if search.budget is None or is_estimable(search.trials, search.budget):
        return
    raise UsageError(
        f"nothing can be estimated from {search.trials} trials of each loss for a budget of "
        f"{search.budget}: they are hardly more than one search of that size; write "
        f"protocol.search.trials={max(3, 2 * search.budget + 1)} or more"
        f"{', or a smaller protocol.search.budget' if search.budget > 1 else ''}."
    )


def _check_method_loss(experiment: Experiment, method: Method, dataset: SampleSet) -> LossCheck:
    """Check a method's loss for the number of trainval classes; raise if it has a problem."""
    num_classes = len(split_dataset(dataset, experiment.protocol.split).trainval)
    checked = check_loss(experiment, method, num_classes)
    if checked.problem is not None:
        raise UsageError(f"method {method.name!r} ({method.loss}): {checked.problem}.")
    return checked


def classes_of(method: Method) -> dict[str, str]:
    """Return the kinds of all classes that a method names (loss, miner, arguments), by name."""
    arguments = {**method.arguments, "miner": method.miner or {}}
    return {method.loss: "loss", **dict(named_classes(arguments))}


def fingerprints(experiment: Experiment, dataset: SampleSet) -> dict[str, str]:
    """Return the fingerprints of the images, the pretrained weights, and the user's classes."""
    prints, reader = {"dataset": dataset.fingerprint()}, experiment.dataset
    if isinstance(reader, FunctionData) and "." not in reader.function:  # no import path
        plugin = find_plugin("dataset", reader.function)
        if plugin is not None:
            prints["data set from"] = plugin.title
    # An ordered set over all networks, with None for random weights.
    weights = dict.fromkeys(weights_fingerprint(m, dataset) for m in _models(experiment))
    if any(weights):
        prints["pretrained weights"] = ", ".join(known or "none" for known in weights)
    for name, kind in all_classes(experiment).items():
        # A trunk such as timm:resnet50.a1_in1k is not an import path.
        source = None if ":" in name else source_fingerprint(name, kind)
        if source is not None:
            prints[name] = source
    return prints


def _models(experiment: Experiment) -> list[Model]:
    return [experiment.model, *map(experiment.model_of, experiment.methods)]


def assumptions(experiment: Experiment, dataset: SampleSet) -> list[str]:
    """Return a sentence on each trunk of the user that does not say what its pixels are."""
    if not isinstance(dataset, ImageSet):
        return []
    trunks = {m.trunk for m in _models(experiment) if m.preprocessing == Input()}
    return [
        f"trunk {trunk} declares no preprocessing, so it gets (x - 0.5) / 0.5 of pixels x from 0 "
        "to 1; for weights that take others write model.preprocessing, or preprocessing = {'mean': "
        "..., 'std': ...} in its class"
        for trunk in sorted(filter(is_users, trunks))
        if OwnTrunk(trunk).file_preprocessing is FROM_SCRATCH
    ]


def all_classes(experiment: Experiment) -> dict[str, str]:
    """Return the kinds of all classes that the experiment names, by name."""
    named = {model.trunk: "trunk" for model in _models(experiment)}
    for method in experiment.methods:
        named.update(classes_of(method))
    for training in (experiment.protocol.training, *(m.training for m in experiment.methods)):
        if training is not None:  # its optimisers are pairs of a key and an Optimizer
            named.update({part.name: "optimizer" for _, part in training.optimizers})
    protocol = experiment.protocol
    named.update(dict.fromkeys(metrics_of_user(protocol), "metric"))
    sampler = protocol.search.sampler
    if "." in sampler:  # not one of Optuna's
        named[sampler] = "sampler"
    return named


def metrics_of_user(protocol: Protocol) -> list[str]:
    """Return the names of the user's metrics that a protocol names."""
    return own_metrics([*protocol.final_metrics, protocol.selects_by])
