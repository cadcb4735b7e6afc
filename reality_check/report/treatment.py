"""Deviations by unequal settings and software of methods, and by extensions of experiments."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from reality_check.config.method import BeforeTraining, open_values
from reality_check.config.metrics import Stage
from reality_check.config.schema import Experiment
from reality_check.config.search import INDEPENDENT
from reality_check.report.wording import counts_text, listed
from reality_check.results import Deviation, MethodResults
from reality_check.studies.growth import NUMBERS, describe_changes
from reality_check.studies.plan import Step, Studies, StudyState
from reality_check.utils.environment import split_versions

#: The protocol of experiments that repeat a paper's table.
AS_PUBLISHED = "as_published"
#: Keys that extend searches.
_LONGER_SEARCH = {*NUMBERS[:2]}
#: Keys that add searches or runs.
_MORE_RUNS = {*NUMBERS[2:]}


def unequal_treatment(
    experiment: Experiment, methods: Sequence[MethodResults]
) -> Iterator[Deviation]:
    """Yield deviations on settings other than the loss that differ between the methods."""
    num_trials = {m.name: sum(t.state == "complete" for t in m.search) for m in methods}
    per_parameter = experiment.protocol.search.trials_per_parameter
    # By method, the number of hyper-parameters that are searched
    num_searched = {m.name: len(m.searched) for m in methods if m.search}
    if per_parameter is not None:
        trials = {name: per_parameter * max(1, count) for name, count in num_searched.items()}
        yield Deviation(
            "trials per parameter",
            f"Each search has {per_parameter} trials for every hyper-parameter, not an equal "
            f"number for all methods, as was declared: {counts_text(trials)}.",
        )
    else:
        if len(set(num_trials.values())) > 1:
            yield Deviation(
                "unequal search",
                f"The methods have unequal numbers of trials: {counts_text(num_trials)}.",
                True,
            )
        if len(set(num_searched.values())) > 1:
            yield Deviation(
                "searched parameters",
                "All methods get the same number of trials, but they search different numbers of "
                f"hyper-parameters: {counts_text(num_searched)}.",
            )
    two_phases = [m.name for m in experiment.methods if m.phase2 is not None]
    single_phase = [m.name for m in experiment.methods if m.phase2 is None]
    if experiment.protocol.training.phases == "method" and two_phases and single_phase:
        others = (
            ", ".join(single_phase) if len(single_phase) <= 6 else f"the other {len(single_phase)}"
        )
        yield Deviation(
            "phases",
            f"Trained in two phases: {', '.join(two_phases)}; in one: {others}. The limit of "
            "epochs is the same for all.",
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
    if text := open_schedules(experiment):
        yield Deviation("open schedules", text)
    yield from _own_settings(experiment)
    raw = [m.name for m in experiment.methods if not m.normalize_embeddings]
    if raw and len(raw) < len(methods):
        yield Deviation(
            "geometry",
            f"Retrieval by raw Euclidean distance: {', '.join(raw)}; on unit vectors: the others. "
            "results.csv has both geometries for all.",
        )


def open_schedules(experiment: Experiment) -> str:
    """Return a sentence on methods that may be scored before the end of a schedule, or ``""``."""
    names = [
        f"{m.name} ({', '.join(values)})"
        for m in experiment.methods
        if (values := open_values(m.schedules, experiment.training_of(m), experiment.two_phases(m)))
    ]
    if not names or experiment.protocol.selects_on == "last":
        return ""
    return (
        f"Values of the loss change for as long as a training lasts: {listed(names)}. The scored "
        "weights may be those of any epoch, before most of the change; at, epochs, or patience: "
        "null (with second_phase_epochs where there are two phases) would end it before."
    )


def _own_settings(experiment: Experiment) -> Iterator[Deviation]:
    """Yield deviations on methods with their own networks or trainings.

    In a repetition of a paper's table, which compares just these, they are not serious.
    """
    serious = experiment.protocol.reference != AS_PUBLISHED
    models = [
        f"{m.name} has {', '.join(f'{key} {value}' for key, value in m.model.items())}"
        for m in experiment.methods
        if m.model
    ]
    if any(method.model != experiment.methods[0].model for method in experiment.methods):
        yield Deviation(
            "models",
            f"The methods do not all train the same network: {'; '.join(models)}. A difference "
            "from them is one of loss and network together.",
            serious,
        )
    if names := [method.name for method in experiment.methods if method.training is not None]:
        yield Deviation(
            "training",
            f"Methods with settings of their own for the training: {', '.join(names)}. A "
            "difference from them is one of loss and training together.",
            serious,
        )


def origins(experiment: Experiment, studies: Studies) -> Iterator[Deviation]:
    """Yield deviations on methods from packs, and on software that differs between methods.

    Args:
        experiment: the experiment as it was run.
        studies: the studies of the experiment, which record the software with which they began.
    """
    packs: dict[str, list[str]] = {}
    for method in experiment.methods:
        if method.packed is not None:
            source = f"{method.packed.experiment} ({method.packed.checksum[:12]})"
            packs.setdefault(source, []).append(method.name)
    for source, names in packs.items():
        yield Deviation(
            "packed results",
            f"Not trained in this run, but taken from the pack of {source}, with the same data, "
            f"split, network, protocol and seed: {listed(names)}.",
        )
    yield from _software(studies)


def _software(studies: Studies) -> Iterator[Deviation]:
    """Yield deviations on packages, machines and devices that differ between methods."""
    methods_by_software: dict[str, dict[str, list[str]]] = {}
    first_studies: dict[str, StudyState] = {}
    for (method, _, _), study in studies.items():
        first_studies.setdefault(method, study)
    first_studies.pop("", None)  # the baselines
    for method, study in first_studies.items():
        for kind, value in _software_of(study).items():
            methods_by_software.setdefault(kind, {}).setdefault(value, []).append(method)
    for kind, methods_by_value in methods_by_software.items():
        if len(methods_by_value) > 1:
            listing = "; ".join(
                f"{value}: {listed(names)}" for value, names in methods_by_value.items()
            )
            text = f"Not all methods ran with the same {kind}: {listing}."
            if kind == "optuna":
                text += " Each version draws other trials from the same seed."
            yield Deviation("versions", text, kind == "optuna")


def _software_of(study: StudyState) -> dict[str, str]:
    """Return the versions of packages, the machine and the devices that a study ran with."""
    about = study.about
    devices = {trial.gpu or trial.device_kind for trial in study.complete.values()}
    versions = split_versions(about.get("versions", ""))
    if about.get("sampler") in INDEPENDENT:
        versions.pop("optuna", None)  # an independent sampler draws nothing with it
    return {
        **versions,
        "kind of machine": str(about.get("machine")),
        **({"kind of device": " and ".join(sorted(devices))} if devices else {}),
    }


def grown(steps: Sequence[Step]) -> Iterator[Deviation]:
    """Yield a deviation for each step in which the experiment was extended.

    A step that adds trials or runs after results could be seen is serious: extending or stopping a
    run because of its results is selection by the result.
    """
    for number, step in enumerate(steps, 1):
        start = time.strftime("%Y-%m-%d %H:%M", time.gmtime(step.time))
        text = f"Step {number} ({start} UTC): {describe_changes(step.changes)}."
        search = _results_before(step, Stage.SEARCH)
        runs = _results_before(step, Stage.REPRODUCTIONS, Stage.FINAL) or search
        if search and _LONGER_SEARCH & step.changes.keys():
            text += (
                f" The searches were extended after their results could be seen ({search}), which "
                "may favour methods that looked bad before."
            )
            yield Deviation("extended search", text, True)
        elif runs and _MORE_RUNS & step.changes.keys():
            text += (
                f" More was trained after results could be seen ({runs}), which may favour "
                "stopping at a welcome result."
            )
            yield Deviation("more runs", text, True)
        else:
            yield Deviation("grown in steps", text)


def _results_before(step: Step, *stages: Any) -> str:
    """Return in words how many trials of the stages each method had before the step, or ``""``."""
    return ", ".join(
        f"{count} of {method}"
        for method, done in step.done.items()
        if (count := sum(done.get(stage, 0) for stage in stages))
    )
