"""Collect the records of an experiment into the plain data that the report shows."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from reality_check.config.method import Method
from reality_check.config.metrics import DIVERGED, METRICS, PRIMARY, STAGES, Stage, metric_of
from reality_check.config.schema import Experiment
from reality_check.config.search import INDEPENDENT
from reality_check.config.values import Range
from reality_check.evaluation.query_scores import read_query_scores
from reality_check.report.deviations import find_deviations
from reality_check.report.own_columns import read_columns
from reality_check.report.run_facts import run_facts
from reality_check.report.treatment import origins
from reality_check.results import (
    Cost,
    ExperimentResults,
    MethodResults,
    ResultRow,
    State,
    TrialRecord,
)
from reality_check.studies.attempts import joined
from reality_check.studies.growth import read_steps
from reality_check.studies.importance import parameter_importance
from reality_check.studies.output_folder import gallery_path, query_scores_path
from reality_check.studies.plan import Retrained, States, Studies, StudyKey, StudyState
from reality_check.studies.recorded_experiment import RecordedExperiment
from reality_check.utils.environment import split_versions


def collect(recorded: RecordedExperiment, importance: bool = True) -> ExperimentResults:
    """Return everything recorded so far; the experiment need not be finished.

    Args:
        recorded: the experiment whose records are read.
        importance: whether to compute the importance of parameters, which takes most of the time.
    """
    experiment = recorded.experiment
    states = recorded.states()
    stages = states.begun()
    parameters = recorded.attribute("parameters") or {}
    methods = tuple(
        _method(recorded, method, states, importance, parameters.get(method.name))
        for method in experiment.methods
    )
    rows = tuple(
        row
        for method in methods
        for stage in STAGES[1:]
        for row in _rows(experiment, method, stage, stages.get(StudyKey(method.name, stage, 0)))
    )
    protocol = experiment.protocol
    on_test = " (epochs selected on the test classes)" if protocol.selects_on == "test" else ""
    finished = states.is_complete()
    environment, data = _environment(recorded, stages), recorded.attribute("data") or {}
    gpus = _attempts_by(stages, "gpu"), _attempts_by(stages, "trained_with")
    return ExperimentResults(
        name=experiment.name + on_test,
        protocol=protocol.name,
        reference=protocol.reference,
        finished=finished,
        methods=methods,
        rows=rows,
        baselines=tuple(_baseline_rows(experiment, stages.get(StudyKey("", Stage.BASELINES, 0)))),
        deviations=(
            *find_deviations(
                experiment,
                methods,
                finished,
                _parallel_methods(stages),
                read_steps(recorded.out_dir),
                data.get("copies", ""),
            ),
            *origins(experiment, stages),
        ),
        facts=tuple(run_facts(experiment, data, environment, *gpus)),
        config=experiment.plain(),
        queries=read_query_scores(
            recorded.out_dir, functools.partial(query_scores_path, recorded.out_dir), _by_run(rows)
        ),
        costs=costs(stages),
        versions=split_versions(environment.get("versions", "")),
        noun=data.get("noun", "image"),
        measure=METRICS[PRIMARY] + (" (own networks)" if protocol.search.retrain == "none" else ""),
    )


def _by_run(rows: Iterable[ResultRow]) -> dict[tuple[str, str, int], dict[str, float]]:
    """Return the metrics by (method, category, reproduction)."""
    metrics: dict[tuple[str, str, int], dict[str, float]] = {}
    for row in rows:
        metrics.setdefault((row.method, row.category, row.reproduction), {})[row.metric] = row.value
    return metrics


def _environment(recorded: RecordedExperiment, stages: Studies) -> dict[str, Any]:
    """Return the environment of the worker that opened the first study; empty before that."""
    experiment = recorded.experiment
    # Studies of methods that start from another one's winner are opened later.
    first = next(method for method in experiment.methods if method.starts_from is None)
    study = stages.get(StudyKey(first.name, experiment.protocol.stages[0], 0))
    return {} if study is None else dict(study.about)


def _attempts_by(stages: Studies, attribute: str) -> Counter[str]:
    """Return the number of attempts for each value of a trial's attribute, such as ``gpu``."""
    return Counter(
        value
        for study in stages.values()
        for trial in study.attempts
        if (value := getattr(trial, attribute)) is not None
    )


def _parallel_methods(stages: Studies) -> list[str]:
    """Return the methods whose sampler drew a trial while another trial was running."""
    parallel = []
    for (method, stage, _), study in stages.items():
        about = study.about
        if stage is not Stage.SEARCH or about["sampler"] in INDEPENDENT:
            continue
        startup_trials = about["sampler_arguments"].get("n_startup_trials", 0)
        # Start and end of each trial, and whether the sampler drew it from what it had learned
        spans = [
            (trial.started, trial.ended, index >= startup_trials)
            for index, trial in study.complete.items()
            if trial.started is not None and trial.ended is not None
        ]
        pairs = itertools.permutations(spans, 2)
        if any(drawn and start <= began < end for (start, end, _), (began, _, drawn) in pairs):
            parallel.append(method)
    return parallel


def _method(
    recorded: RecordedExperiment,
    method: Method,
    states: States,
    importance: bool,
    parameters: Any,
) -> MethodResults:
    """Return the records of a method, and the settings of it that the report shows."""
    protocol, stages = recorded.experiment.protocol, states.begun()
    # Earlier versions recorded the number of trained parameters alone.
    trained, total = parameters if isinstance(parameters, list) else (parameters, None)
    gallery = gallery_path(recorded.out_dir, method.name)
    keys = [StudyKey(method.name, Stage.SEARCH, k) for k in range(protocol.search.repeats)]
    searches = [stages.get(key) for key in keys]
    # Every stage after the search retrains the same trials.
    after_search = next(stage for stage in protocol.stages if stage is not Stage.SEARCH)
    retraining = states.get(StudyKey(method.name, after_search))
    plan = () if retraining is None else retraining.retrained
    search = tuple(
        dataclasses.replace(record, search=number)
        for number, key in enumerate(keys)
        if key in stages
        for record in _searched(states, key)
    )
    retrained = [(run.search, run.trial_index) for run in plan if run.trial_index is not None]
    space = searches[0].space if searches[0] is not None else {}
    return MethodResults(
        name=method.name,
        loss=method.loss,
        search=search,
        reproductions=_retrainings(method.name, Stage.REPRODUCTIONS, plan, stages),
        final=_retrainings(method.name, Stage.FINAL, plan, stages),
        retrained=tuple(dict.fromkeys(retrained)),
        searched=tuple(space),
        logarithmic=tuple(k for k, v in space.items() if isinstance(v, Range) and v.log),
        importance=parameter_importance(space, search) if importance else None,
        control_of=method.control_of,
        has_own_draws=recorded.experiment.draw_seed_of(method) != recorded.experiment.seed,
        normalize_embeddings=method.normalize_embeddings,
        trained_parameters=trained,
        network_parameters=total,
        gallery=gallery if protocol.gallery and gallery.exists() else None,
        columns=read_columns(recorded.out_dir, method.name, recorded.experiment.report.columns),
    )


def _searched(states: States, search: StudyKey) -> Iterator[TrialRecord]:
    """Yield the trials of a search, each with its results in all rungs of its race.

    A trial that the race has stopped has no value of its own.
    """
    rungs, planned = states.rungs(search), states.race(search)
    records = [_records(rung) for rung in rungs]
    if len(planned) == 1:
        yield from records[0].values()
        return
    for index in records[0]:
        own = [rung for rung in rungs if index in rung.indices]
        parts = [of[index] for of in records[: len(own)] if index in of]
        trial = joined(parts, [rung.planned.folds or () for rung in own[: len(parts)]])
        if len(parts) < len(own) or (own[-1] is rungs[-1] and len(rungs) < len(planned)):
            ended = parts[-1].state
            state: State = "running" if ended == "complete" else ended  # or about to run
            yield dataclasses.replace(trial, state=state, value=None)
        elif len(own) == len(planned) or trial.diverged is not None:
            yield trial
        else:
            trained = sum(rung.planned.networks for rung in own)
            yield dataclasses.replace(trial, value=None, stopped_after=trained)


def _retrainings(
    method: str, stage: Stage, plan: Sequence[Retrained], stages: Studies
) -> tuple[TrialRecord, ...]:
    """Return the records of reproductions or final runs, each with the trial that it retrains."""
    records = _records(stages.get(StudyKey(method, stage, 0)))
    if not plan:
        return tuple(records.values())
    return tuple(
        dataclasses.replace(record, search=run.search, retrained=run.trial_index)
        for index, record in records.items()
        for run in plan[index : index + 1]  # a record beyond the plan is left out
    )


def _records(study: StudyState | None) -> dict[int, TrialRecord]:
    """Return the complete attempt at each started trial, or else the latest, by trial index."""
    if study is None:
        return {}
    trials = [trial for trial in study.attempts if not (trial.duplicate or trial.superseded)]
    attempts = Counter(trial.trial_index for trial in trials)
    latest = {t.trial_index: t for t in trials if t.trial_index is not None}
    latest.update(study.complete)
    given = study.given  # values by trial, where they were not drawn
    sound = [t.value for t in latest.values() if t.value is not None and t.diverged is None]
    worst = min(sound, default=0.0)  # of a diverged trial where the user's metric selects
    return {
        index: dataclasses.replace(
            trial,
            value=worst if trial.value == DIVERGED else trial.value,
            params=dict((given and given[index]) or trial.params),
            attempts=attempts[index],
            curves=[[(int(epoch), value) for epoch, value in curve] for curve in trial.curves],
        )
        for index, trial in sorted(latest.items())
    }


def _rows(
    experiment: Experiment, method: MethodResults, stage: Stage, study: StudyState | None
) -> list[ResultRow]:
    """Return the scores of complete reproductions; a diverged one has zeros in all categories."""
    if study is None:
        return []
    records = {record.trial_index: record for record in getattr(method, stage)}
    searched = Stage.SEARCH in experiment.protocol.stages
    return [
        ResultRow(
            experiment.name,
            method.name,
            category,
            index,
            metric,
            value,
            records[index].search if searched else None,
            records[index].retrained,
        )
        for index, trial in study.complete.items()
        for category, metrics in (trial.scores or _zero_scores(experiment, method, stage)).items()
        if category in experiment.protocol.categories
        for metric, value in metrics.items()
    ]


def _zero_scores(
    experiment: Experiment, method: MethodResults, stage: str
) -> dict[str, dict[str, float]]:
    """Return zeros for all metrics of a reproduction that diverged, in both geometries.

    Metrics of the user are left out, since their worst value is not known.
    """
    categories = ["complete"] if stage == Stage.FINAL else ["aggregate", "ensemble"]
    asked = map(metric_of, (*METRICS, *experiment.protocol.final_metrics))
    ranked = [metric for metric in asked if metric.higher_is_better and not metric.is_own]
    names = [metric.name for metric in ranked]
    suffix = "_raw" if method.normalize_embeddings else "_normalized"
    others = [metric.name + suffix for metric in ranked if metric.both_geometries]
    return {category: dict.fromkeys((*names, *others), 0.0) for category in categories}


def _baseline_rows(experiment: Experiment, study: StudyState | None) -> list[ResultRow]:
    """Return the scores of the baselines; empty before their study was begun."""
    complete = {} if study is None else study.complete
    return [
        ResultRow(experiment.name, baseline, "aggregate", trial_index, metric, value)
        for trial_index, trial in complete.items()
        for baseline, metrics in (trial.scores or {}).items()
        for metric, value in metrics.items()
    ]


def costs(stages: Studies) -> tuple[Cost, ...]:
    """Return the hours of all attempts, by method, stage and kind of device.

    Args:
        stages: studies by (method, stage, search); baselines, of no method, have the name ``""``.
    """
    hours: dict[tuple[str, str, str], list[float]] = {}
    for (method, stage, _), study in stages.items():
        for trial in study.attempts:
            if trial.hours:
                stage = Stage.SEARCH if stage is Stage.RACE else stage
                hours.setdefault((method, stage, trial.device_kind), []).append(trial.hours)
    return tuple(Cost(*key, len(spent), sum(spent)) for key, spent in hours.items())
