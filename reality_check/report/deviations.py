"""What a reviewer should know: from config and records, what is not as published or not equal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reality_check.config.metrics import Stage
from reality_check.config.schema import Experiment
from reality_check.report.reference import AS_PUBLISHED, against_reference, own_ranges
from reality_check.results import Deviation, MethodResults


def find_deviations(
    experiment: Experiment,
    methods: Sequence[MethodResults],
    finished: bool,
    parallel: Sequence[str] = (),
) -> list[Deviation]:
    """Everything a reviewer should know before reading the numbers; serious ones first.

    Args:
        experiment: as it was run.
        methods: what was recorded.
        finished: whether all stages are complete.
        parallel: methods whose search trials overlapped in time.
    """
    found = [
        *_unequal_treatment(experiment, methods),
        *_missing_work(experiment, methods, finished),
        *_diverged(methods),
        *_cut_short(experiment, methods),
        *against_reference(experiment),
        *own_ranges(experiment),
        *_restarts(methods),
        *_parallel_search(parallel),
    ]
    return sorted(found, key=lambda deviation: not deviation.serious)


def _unequal_treatment(
    experiment: Experiment, methods: Sequence[MethodResults]
) -> Iterator[Deviation]:
    done = {m.name: sum(t.state == "complete" for t in m.search) for m in methods}
    if len(set(done.values())) > 1:
        counts = ", ".join(f"{name} {count}" for name, count in done.items())
        yield Deviation(
            "unequal search", f"The methods have unequal numbers of trials: {counts}.", True
        )
    searched = {m.name: len(m.searched) for m in methods}
    if len(set(searched.values())) > 1:
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


def _missing_work(
    experiment: Experiment, methods: Sequence[MethodResults], finished: bool
) -> Iterator[Deviation]:
    if finished:
        return
    protocol = experiment.protocol
    wanted = dict.fromkeys(protocol.stages, protocol.reproductions)
    if Stage.SEARCH in wanted:
        wanted[Stage.SEARCH] = protocol.search.trials
    for method in methods:
        missing = []
        for stage, count in wanted.items():
            done = sum(t.state == "complete" for t in getattr(method, stage))
            if done < count:
                missing.append(f"{stage} {done} of {count}")
        if missing:
            text = f"{method.name} is not finished: {', '.join(missing)}."
            yield Deviation("unfinished", text, True)


def _diverged(methods: Sequence[MethodResults]) -> Iterator[Deviation]:
    for method in methods:
        trials = [trial for trial in method.search if trial.diverged]
        runs = [t for t in (*method.reproductions, *method.final) if t.diverged]
        if trials and len(trials) == len(method.search):
            yield Deviation(
                "diverged",
                f"Every search trial of {method.name} diverged ({trials[0].diverged}); it has no "
                "results.",
                True,
            )
        elif trials:
            yield Deviation(
                "diverged",
                f"{len(trials)} of {len(method.search)} search trials of {method.name} diverged; "
                "they count with value 0.",
            )
        if runs:
            yield Deviation(
                "diverged",
                f"{len(runs)} reproductions of {method.name} diverged and count as 0 in its means "
                "and intervals.",
                True,
            )


def _parallel_search(methods: Sequence[str]) -> Iterator[Deviation]:
    if methods:
        yield Deviation(
            "parallel search",
            f"Search trials of {', '.join(methods)} ran at the same time (several workers), so "
            "which parameters were tried depends on their timing; the published search tried one "
            "at a time.",
        )


def _cut_short(experiment: Experiment, methods: Sequence[MethodResults]) -> Iterator[Deviation]:
    """Trainings whose best epoch is the last one allowed: they might have gone on improving."""
    common = experiment.protocol.training.max_epochs
    cut = []
    for method in methods:
        limit = experiment.training_of(experiment.method(method.name)).max_epochs
        epochs = [epoch for trial in method.reproductions for epoch in trial.fold_epochs]
        count = sum(epoch >= limit for epoch in epochs)
        if count:
            own = "" if limit == common else f" ({limit} allowed)"
            cut.append(f"{method.name} {count} of {len(epochs)}{own}")
    if cut:
        yield Deviation(
            "short training",
            f"Trainings of the reproductions whose best epoch was the last of the {common} "
            f"allowed, so that longer ones might have been better: {', '.join(cut)}.",
        )


def _restarts(methods: Sequence[MethodResults]) -> Iterator[Deviation]:
    lost = {m.name: sum(t.attempts - 1 for t in m.search) for m in methods}
    if any(lost.values()):
        counts = ", ".join(f"{name} {count}" for name, count in lost.items() if count)
        yield Deviation(
            "restarts",
            f"Attempts repeated after a worker was lost, with the same parameters: {counts}.",
        )
