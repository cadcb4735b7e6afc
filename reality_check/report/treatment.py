"""In what the methods of one experiment were not treated alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reality_check.config.method import BeforeTraining
from reality_check.config.schema import Experiment
from reality_check.results import Deviation, MethodResults

#: The protocol of experiments that repeat a paper's table.
AS_PUBLISHED = "as_published"


def unequal_treatment(
    experiment: Experiment, methods: Sequence[MethodResults]
) -> Iterator[Deviation]:
    """Say in what the methods of an experiment were not treated alike."""
    done = {m.name: sum(t.state == "complete" for t in m.search) for m in methods}
    each = experiment.protocol.search.trials_per_parameter
    searched = {m.name: len(m.searched) for m in methods}
    if each is not None:
        counts = ", ".join(f"{name} {each * max(1, count)}" for name, count in searched.items())
        yield Deviation(
            "trials per parameter",
            f"Each search has {each} trials for every hyper-parameter, not an equal number for all "
            f"methods, as was declared: {counts}.",
        )
    elif len(set(done.values())) > 1:
        counts = ", ".join(f"{name} {count}" for name, count in done.items())
        yield Deviation(
            "unequal search", f"The methods have unequal numbers of trials: {counts}.", True
        )
    if each is None and len(set(searched.values())) > 1:
        counts = ", ".join(f"{name} {count}" for name, count in searched.items())
        yield Deviation(
            "searched parameters",
            "All methods get the same number of trials, but they search different numbers of "
            f"hyper-parameters: {counts}.",
        )
    two = [m.name for m in experiment.methods if m.phase2 is not None]
    one = [m.name for m in experiment.methods if m.phase2 is None]
    if experiment.protocol.training.phases == "method" and two and one:
        others = ", ".join(one) if len(one) <= 6 else f"the other {len(one)}"
        yield Deviation(
            "phases",
            f"Trained in two phases: {', '.join(two)}; in one: {others}. The limit of epochs is "
            "the same for all.",
        )
    fitted = [m.name for m in experiment.methods if m.before_training != BeforeTraining()]
    if fitted and len(fitted) < len(experiment.methods):
        yield Deviation(
            "before training",
            "Statistics of BatchNorms or proxies fitted to the training "
            f"classes before the first step: {', '.join(fitted)}.",
        )
    gradual = [m.name for m in experiment.methods if m.schedules]
    if gradual and len(gradual) < len(experiment.methods):
        yield Deviation("schedules", f"Values of the loss change gradually: {', '.join(gradual)}.")
    yield from _unequal_models(experiment)
    yield from _unequal_training(experiment)
    raw = [m.name for m in experiment.methods if not m.normalize_embeddings]
    if raw and len(raw) < len(methods):
        yield Deviation(
            "geometry",
            f"Retrieval by raw Euclidean distance: {', '.join(raw)}; on unit vectors: the others. "
            "results.csv has both geometries for all.",
        )


def _unequal_models(experiment: Experiment) -> Iterator[Deviation]:
    changes = {m.name: m.model for m in experiment.methods if m.model}
    if changes:
        texts = [
            f"{name} has {', '.join(f'{key} {value}' for key, value in changed.items())}"
            for name, changed in changes.items()
        ]
        yield Deviation(
            "models",
            f"The methods do not all train the same network: {'; '.join(texts)}. A difference from "
            "them is one of loss and network together.",
            not _is_a_papers_table(experiment),
        )


def _unequal_training(experiment: Experiment) -> Iterator[Deviation]:
    names = [method.name for method in experiment.methods if method.training is not None]
    if names:
        yield Deviation(
            "training",
            f"Methods with settings of their own for the training: {', '.join(names)}. A "
            "difference from them is one of loss and training together.",
            not _is_a_papers_table(experiment),
        )


def _is_a_papers_table(experiment: Experiment) -> bool:
    """Whether methods differ because the table that is repeated compares them like this."""
    return experiment.protocol.reference == AS_PUBLISHED
