"""The plan of an experiment: its studies, and what may be worked on, as plain data.

Everything here follows from the experiment, the steps in which it has grown, and the records of its
trials. Nothing reads a storage, a folder or a network, so any part can be tested with records that
are written by hand.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

from reality_check.config.method import Method
from reality_check.config.metrics import STAGES, Stage
from reality_check.config.schema import Experiment
from reality_check.config.search import num_raced
from reality_check.config.values import Searched, parse_value
from reality_check.results import TrialRecord
from reality_check.studies.attempts import (
    best_trial,
    complete_by_index,
    joined,
    mark_superseded,
    ranked_trials,
)
from reality_check.utils.seeds import derive

#: Maximum number of baseline trials; more untrained networks add nothing.
MOST_BASELINES = 10


@dataclass(frozen=True)
class Step:
    """One growth of an experiment.

    Attributes:
        time: the time of the step, in seconds since 1970.
        changes: the values before and after by key; for methods, lists of their names.
        settings: the number of retrained trials per method before the step.
        reproductions: the number of reproductions of each of these trials before the step.
        done: the number of complete trials before the step, by method and stage; whoever took the
            step could know their results.
    """

    time: float
    changes: dict[str, list[Any]]
    settings: int
    reproductions: int
    done: dict[str, dict[str, int]] = field(default_factory=dict)


# -- the plan -------------------------------------------------------------------------------------


class StudyKey(NamedTuple):
    """What identifies a study of an experiment.

    Attributes:
        method: the name of the method; ``""`` for the baselines.
        stage: the stage.
        search: the number of the search, for that stage.
    """

    method: str
    stage: Stage
    search: int = 0

    @property
    def name(self) -> str:
        """The name of the study: ``contrastive/search_1`` or ``baselines``."""
        return f"{self.method}/{stage_name(self.stage, self.search)}".removeprefix("/")


#: The study of the untrained baselines, which belong to no method.
BASELINES = StudyKey("", Stage.BASELINES)


def stage_name(stage: Stage, search: int = 0) -> str:
    """Return the name of a stage in folders and studies; searches after the first have a number."""
    return stage.value if search == 0 else f"{stage}_{search}"


@dataclass(frozen=True)
class Drawn:
    """The parameters of a study's trials are drawn by a sampler.

    Attributes:
        sampler: the sampler, see :data:`reality_check.config.search.SAMPLERS`.
        sampler_arguments: further arguments of the sampler.
        startup_trials: the number of random trials before the sampler starts to model.
        draw_seed: the seed of random draws, which is the same for all methods.
        first: the parameters that the first trial uses instead of sampling.
        starts_from: the search whose best trial the first trial uses, with ``first`` as the values
            of the parameters that this search lacks.
    """

    sampler: str
    sampler_arguments: Mapping[str, Any]
    startup_trials: int
    draw_seed: int
    first: Mapping[str, Any] | None = None
    starts_from: StudyKey | None = None


@dataclass(frozen=True)
class Given:
    """The parameters of a study's trials are those of earlier trials.

    Attributes:
        retrains: for each trial, the search of the trial that it retrains, the rank of that trial
            there, and the number of earlier retrainings of it. Empty if nothing is searched, so
            that there are no parameters.
        epochs_from: the study whose fold runs give the number of epochs of a final run, or
            ``None`` if the retrained trials do; used if ``round_epochs_up_to`` is given.
        round_epochs_up_to: see :class:`reality_check.config.protocol.Complete`.
        final_metrics: the metrics that are measured in addition to those of every run.
        from_pack: whether the trials come from a pack, so that all of them count.
    """

    retrains: Sequence[tuple[StudyKey, int, int]] = ()
    epochs_from: StudyKey | None = None
    round_epochs_up_to: int | None = None
    final_metrics: Sequence[str] = ()
    from_pack: bool = False


@dataclass(frozen=True)
class Raced:
    """The trials of a study are the best ones of a search so far, which continue."""


@dataclass(frozen=True)
class PlannedStudy:
    """The trials of a stage of a method, or of one of its searches.

    Attributes:
        key: what identifies the study.
        num_trials: the number of trials; fewer if too many trials of a search diverge.
        networks: the number of networks that each trial trains.
        seed: the seed of the study.
        parameters: where the parameters of its trials come from.
        waits_for: the studies that must be complete before a trial can start.
        folds: the folds that each trial trains; ``None`` for all.
        own_networks: whether each trial scores the networks of an earlier one, and trains none.
    """

    key: StudyKey
    num_trials: int
    networks: int
    seed: int
    parameters: Drawn | Given | Raced
    waits_for: Sequence[StudyKey] = ()
    folds: Sequence[int] | None = None
    own_networks: bool = False


def make_plan(experiment: Experiment, steps: Sequence[Step] = ()) -> tuple[PlannedStudy, ...]:
    """Return the studies of an experiment in the order in which they are worked on.

    Args:
        experiment: the experiment.
        steps: the steps in which it has grown.
    """
    protocol, methods = experiment.protocol, experiment.methods
    searches = range(protocol.search.repeats)
    by_stage = {
        Stage.SEARCH: [_search(experiment, m, number) for number in searches for m in methods]
        + [rung for method in methods for rung in _race(experiment, method)],
        Stage.REPRODUCTIONS: [_retraining(experiment, m, steps) for m in methods],
        Stage.FINAL: [_retraining(experiment, m, steps, is_final=True) for m in methods],
    }
    studies = [study for stage in STAGES if stage in protocol.stages for study in by_stage[stage]]
    baselines = PlannedStudy(
        BASELINES,
        min(protocol.runs, MOST_BASELINES),
        networks=0,
        seed=derive(experiment.seed, BASELINES.name),
        parameters=Given(final_metrics=protocol.final_metrics),
    )
    return (*studies, baselines)


def count_trainings(experiment: Experiment) -> int:
    """Return the number of networks that an experiment trains, over all stages."""
    return sum(study.num_trials * study.networks for study in make_plan(experiment.trained()))


def reproduction_order(experiment: Experiment, steps: Sequence[Step]) -> list[tuple[int, int]]:
    """Return, for each reproduction, the numbers of the retrained trial and of the repetition.

    A reproduction keeps its position in this list when others are added.
    """
    protocol = experiment.protocol
    # The numbers of retrained trials, and of reproductions of each, before each step and now.
    sizes = [(step.settings, step.reproductions) for step in steps]
    sizes.append((protocol.search.settings, protocol.reproductions))
    order: dict[tuple[int, int], None] = {}  # an ordered set
    for settings, reproductions in sizes:
        pairs = itertools.product(range(settings), range(reproductions))
        order.update(dict.fromkeys(pairs))  # known pairs keep their positions
    return list(order)


def _search(experiment: Experiment, method: Method, number: int) -> PlannedStudy:
    """Return the plan of a method's search, the one with this number."""
    options, trials = experiment.protocol.search, experiment.trials_of(method)
    key = StudyKey(method.name, Stage.SEARCH, number)
    warm_start, start = method.warm_start, method.starts_from
    first = starts_from = None
    waits_for: tuple[StudyKey, ...] = ()
    if start is not None:
        starts_from = StudyKey(start.method, Stage.SEARCH, number)
        waits_for = (starts_from,)
        first = dict(start.neutral)
    if warm_start is not None:  # all parameters are known, so none come from another search
        starts_from, first = None, dict(warm_start.values)
    drawn = Drawn(
        options.sampler,
        options.sampler_arguments,
        min(options.startup_trials, trials),
        derive(experiment.draw_seed_of(method), stage_name(Stage.SEARCH, number), "draws"),
        first,
        starts_from,
    )
    seed, race = derive(experiment.seed, key.name), experiment.protocol.search.race
    folds = range(1 if race else experiment.protocol.split.folds)
    return PlannedStudy(key, trials, len(folds), seed, drawn, waits_for, folds)


def _race(experiment: Experiment, method: Method) -> Iterator[PlannedStudy]:
    """Yield the plans of the rungs of a method's race, each of the best trials on more folds."""
    keys, shares = [StudyKey(method.name, Stage.SEARCH)], experiment.protocol.search.race
    for number, share in enumerate(shares):
        is_last = number + 1 == len(shares)
        folds = range(number + 1, experiment.protocol.split.folds if is_last else number + 2)
        key = StudyKey(method.name, Stage.RACE, number)
        trials = num_raced(experiment.trials_of(method), share)
        seed = derive(experiment.seed, key.name)
        yield PlannedStudy(key, trials, len(folds), seed, Raced(), tuple(keys), folds)
        keys.append(key)


def _retraining(
    experiment: Experiment, method: Method, steps: Sequence[Step], is_final: bool = False
) -> PlannedStudy:
    """Return the plan of a method's reproductions, or of its final runs."""
    protocol, search = experiment.protocol, experiment.protocol.search
    searches = [StudyKey(method.name, Stage.SEARCH, number) for number in range(search.repeats)]
    reproductions = StudyKey(method.name, Stage.REPRODUCTIONS)
    has_reproductions = Stage.REPRODUCTIONS in protocol.stages
    has_search = Stage.SEARCH in protocol.stages
    # What each trial retrains: a search, the rank of a trial in it, and the repetition. These are
    # the best trials of the first search (retrain_best), or else the best trial of each search;
    # nothing if there is no search.
    retrains = [
        (searches[0], i, repetition)
        if search.retrain_best is not None
        else (searches[i], 0, repetition)
        for i, repetition in reproduction_order(experiment, steps)
        if has_search
    ]
    own_networks = search.retrain == "none" and not is_final
    # Reproductions that are not trained have no epochs of their own.
    trained_again = is_final and has_reproductions and search.retrain != "none"
    epochs_from = reproductions if trained_again else None
    given = Given(
        tuple(retrains),
        epochs_from,
        round_epochs_up_to=protocol.complete.round_epochs_up_to
        if is_final and has_search
        else None,
        final_metrics=protocol.final_metrics,
        from_pack=method.packed is not None,
    )
    waits_for = searches if has_search else []
    waits_for += [rung.key for rung in _race(experiment, method)]
    if epochs_from is not None:
        waits_for.append(epochs_from)
    key = StudyKey(method.name, Stage.FINAL) if is_final else reproductions
    networks = 1 if is_final else 0 if own_networks else protocol.split.folds
    seed = derive(experiment.seed, key.name)
    return PlannedStudy(
        key,
        protocol.runs,
        networks,
        seed,
        given,
        tuple(waits_for),
        own_networks=own_networks,
    )


# -- what is known of a study ---------------------------------------------------------------------


@dataclass(frozen=True)
class StudyRecord:
    """The stored records of a study that was begun.

    Attributes:
        attempts: all attempts at its trials, in the order of their numbers.
        attributes: plain data that were stored with the study.
    """

    attempts: Sequence[TrialRecord] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Retrained:
    """The trial of a search whose parameters a trial trains with.

    Attributes:
        search: the number of the search.
        trial: the trial; ``None`` if all trials of that search diverged.
        repetition: the number of earlier retrainings of the same trial.
    """

    search: int
    trial: TrialRecord | None
    repetition: int = 0

    @property
    def trial_index(self) -> int | None:
        """The index of the trial in its search, or ``None`` if there is no trial."""
        return None if self.trial is None else self.trial.trial_index

    @property
    def key(self) -> list[int | None]:
        """What identifies the retraining, whatever the rank of the trial."""
        return [self.search, self.trial_index, self.repetition]


@dataclass(frozen=True)
class StudyState:
    """A study whose trials can start, since the studies before it are complete.

    Attributes:
        planned: the plan of the study.
        record: the stored records; ``None`` if the study was not begun.
        indices: the indices of its trials.
        space: the searched parameters by name; empty before the search was begun.
        retrained: the trial that each trial retrains; empty if nothing is searched.
        given: the parameters of each trial, with ``None`` for a trial without parameters, or
            ``None`` if a sampler draws them.
        first: the parameters that the first trial uses instead of sampling.
        made_of: the data outside of the study that a trial depends on, by trial index. Attempts
            that were made of other data no longer count. ``None`` if all attempts count.
    """

    planned: PlannedStudy
    record: StudyRecord | None
    indices: Sequence[int]
    space: Mapping[str, Searched]
    retrained: Sequence[Retrained] = ()
    given: Sequence[Mapping[str, Any] | None] | None = None
    first: Mapping[str, Any] | None = None
    made_of: Sequence[Mapping[str, Any]] | None = ()

    @property
    def method(self) -> str:
        """The name of the method; ``""`` for the baselines."""
        return self.planned.key.method

    @property
    def stage(self) -> Stage:
        """The stage."""
        return self.planned.key.stage

    @property
    def search(self) -> int:
        """The number of the search, for that stage, or of the rung of a race."""
        return self.planned.key.search

    @property
    def num_trials(self) -> int:
        """The number of its trials."""
        return len(self.indices)

    @functools.cached_property
    def attempts(self) -> tuple[TrialRecord, ...]:
        """All attempts in the order of their numbers."""
        return mark_superseded(() if self.record is None else self.record.attempts, self.made_of)

    @functools.cached_property
    def complete(self) -> Mapping[int, TrialRecord]:
        """The complete attempts by trial index."""
        return complete_by_index(self.attempts, self.indices)

    @property
    def is_complete(self) -> bool:
        """Whether every trial has a complete attempt."""
        return len(self.complete) == self.num_trials

    @property
    def best(self) -> TrialRecord | None:
        """The best complete trial, or ``None`` if all diverged or none is complete."""
        return best_trial(self.complete)

    @property
    def about(self) -> Mapping[str, Any]:
        """What was recorded when the study began: sampler, arguments, search space, versions."""
        return self.attribute("about") or {}

    @property
    def failure(self) -> Mapping[str, Any] | None:
        """The recorded exception that stopped the study, or ``None``."""
        return self.attribute("failure")

    def attribute(self, key: str) -> Any:
        """Return data stored with the study, or ``None`` if there are none."""
        return None if self.record is None else self.record.attributes.get(key)

    def seed_key(self, trial_index: int) -> list[Any]:
        """Return what a trial's seeds are derived from, in addition to the experiment's seed.

        The seeds of a retraining belong to the trial that it trains again, whatever the rank of
        that trial. In studies of earlier versions, they belong to the index of the retraining.
        """
        if self.stage is Stage.RACE:  # which continues trainings of the search
            return [Stage.SEARCH.category_of_seeds, trial_index]
        is_first = self.search == 0
        stage = self.stage.category_of_seeds if is_first else stage_name(self.stage, self.search)
        # Studies of earlier versions lack "seeds_by_trial"; those not yet begun will have it.
        if self.retrained and (not self.about or "seeds_by_trial" in self.about):
            return [stage, *self.retrained[trial_index].key]
        return [stage, trial_index]

    def own_trial(self, trial_index: int) -> TrialRecord | None:
        """Return the trial of the search whose networks a trial scores; ``None`` if it trains."""
        return self.retrained[trial_index].trial if self.planned.own_networks else None

    @property
    def free(self) -> list[int]:
        """The indices of the trials that a worker may claim."""
        taken = {  # a waiting attempt may be claimed by any worker
            trial.trial_index
            for trial in self.attempts
            if trial.holds_its_index and trial.state != "waiting"
        }
        return [index for index in self.indices if index not in taken]

    @property
    def is_idle(self) -> bool:
        """Whether no trial is running."""
        return all(trial.state != "running" for trial in self.attempts)


#: States of studies by what identifies them.
Studies = Mapping[StudyKey, StudyState]


class States:
    """What is known of each study of a plan; a study is read when it is first asked for.

    Args:
        plan: the studies.
        read: returns the record of a study, or ``None`` if it was not begun.
        complete: the states of complete studies that are known already, to which further ones are
            added.
    """

    def __init__(
        self,
        plan: Sequence[PlannedStudy],
        read: Callable[[StudyKey], StudyRecord | None],
        complete: dict[StudyKey, StudyState] | None = None,
    ) -> None:
        self.plan = plan
        self._planned = {study.key: study for study in plan}
        self._read = read
        self._complete = {} if complete is None else complete
        self._states: dict[StudyKey, StudyState | None] = {}

    def get(self, key: StudyKey) -> StudyState | None:
        """Return the state of a study, or ``None`` while an earlier study is not complete."""
        if key in self._complete:
            return self._complete[key]
        if key not in self._states:
            self._states[key] = state = self._state(self._planned[key])
            if state is not None and state.is_complete:
                self._complete[key] = state
        return self._states[key]

    def race(self, search: StudyKey) -> list[PlannedStudy]:
        """Return the plans of a search and of the rungs of its race, in this order."""
        rungs = [p for p in self.plan if p.key[:2] == (search.method, Stage.RACE)]
        return [self._planned[search], *(rungs if search.search == 0 else ())]

    def rungs(self, search: StudyKey) -> list[StudyState]:
        """Return a search, and the rungs of its race that can start, in this order."""
        return [state for rung in self.race(search) if (state := self.get(rung.key)) is not None]

    def finished_with(self, search: StudyKey) -> set[int]:
        """Return the trials of a search whose checkpoints are no longer needed."""
        rungs = self.rungs(search)
        needed = {*rungs[-1].indices}
        after = self._planned.get(StudyKey(search.method, Stage.REPRODUCTIONS))
        if after is not None and after.own_networks:
            if (scored := self.get(after.key)) is not None:
                needed = {run.trial_index or 0 for run in scored.retrained}
        else:
            needed -= {*rungs[-1].complete}
        return {*rungs[0].complete} - needed

    def ready(self) -> Iterator[StudyState]:
        """Yield the states of the studies whose trials can start, in the order of the plan."""
        for study in self.plan:
            state = self.get(study.key)
            # No state: earlier studies are not complete. No trials: all trials of them diverged.
            if state is not None and state.num_trials:
                yield state

    def begun(self) -> Studies:
        """Return the states of the studies that were begun."""
        return {state.planned.key: state for state in self.ready() if state.record is not None}

    def is_complete(self) -> bool:
        """Whether every study is complete."""
        states = (self.get(study.key) for study in self.plan)
        return all(state is not None and state.is_complete for state in states)

    def _state(self, planned: PlannedStudy) -> StudyState | None:
        """Return the state of a study, or ``None`` while a study before it is not complete."""
        earlier = {key: self.get(key) for key in planned.waits_for}
        complete = {key: state for key, state in earlier.items() if state and state.is_complete}
        if len(complete) < len(earlier):
            return None
        record = self._read(planned.key)
        if isinstance(planned.parameters, Drawn):
            return _drawn_state(planned, planned.parameters, record, complete)
        if isinstance(planned.parameters, Raced):
            return _raced_state(planned, record, complete)
        return _given_state(planned, planned.parameters, record, complete)


def _drawn_state(
    planned: PlannedStudy,
    drawn: Drawn,
    record: StudyRecord | None,
    earlier: Mapping[StudyKey, StudyState],
) -> StudyState:
    """Return the state of a study whose parameters are drawn.

    ``earlier`` has the complete studies that it waits for.
    """
    first = drawn.first
    if drawn.starts_from is not None:
        best = earlier[drawn.starts_from].best  # without one, the first trial is sampled
        first = None if best is None else {**(first or {}), **best.params}
    about = {} if record is None else record.attributes.get("about") or {}
    space = parse_value(about["space"]) if "space" in about else {}
    # Only trial 0 depends on data from outside of the study.
    made_of = () if first is None else [{"first": first}]
    return StudyState(
        planned, record, range(planned.num_trials), space, first=first, made_of=made_of
    )


def _raced_state(
    planned: PlannedStudy, record: StudyRecord | None, earlier: Mapping[StudyKey, StudyState]
) -> StudyState:
    """Return the state of a rung, whose trials are the best of the complete rungs ``earlier``."""
    search, *_ = earlier.values()
    best = ranked_trials(raced_trials(earlier))[: planned.num_trials]
    indices = sorted(trial.trial_index for trial in best if trial.trial_index is not None)
    params = [search.complete[index].params for index in search.indices]
    made_of = [{"params": each} for each in params]
    return StudyState(planned, record, indices, search.space, given=params, made_of=made_of)


def raced_trials(rungs: Mapping[StudyKey, StudyState]) -> dict[int, TrialRecord]:
    """Return the trials of the last rung of a race, each with its results in all rungs.

    Args:
        rungs: the search, and what it has of complete rungs, in this order.
    """
    *_, last = rungs.values()
    folds = [rung.planned.folds or () for rung in rungs.values()]
    return {
        index: joined([rung.complete[index] for rung in rungs.values()], folds)
        if len(rungs) > 1
        else trial
        for index, trial in last.complete.items()
    }


def _given_state(
    planned: PlannedStudy,
    given: Given,
    record: StudyRecord | None,
    earlier: Mapping[StudyKey, StudyState],
) -> StudyState:
    """Return the state of a study that retrains trials of the complete studies ``earlier``."""
    retrained = _retrained_trials(given, earlier)
    searches = [state for key, state in earlier.items() if key.stage is Stage.SEARCH]
    params: list[Mapping[str, Any] | None]
    if not searches:  # nothing is searched, so ``retrained`` is empty
        params = [{}] * planned.num_trials
    elif all(retraining.trial is None for retraining in retrained):  # all searches diverged
        retrained, params = [], []
    else:
        params = [_params_of(given, retrained, index, earlier) for index in range(len(retrained))]
    metrics = list(given.final_metrics)
    made_of = [
        {
            "params": trial_params,
            "final_metrics": metrics,
            "retrained": retraining and retraining.key,  # None if nothing is searched
        }
        for trial_params, retraining in itertools.zip_longest(params, retrained)
    ]
    return StudyState(
        planned,
        record,
        range(len(params)),
        searches[0].space if searches else {},
        retrained,
        params,
        made_of=None if given.from_pack else made_of,
    )


def _rungs(search: StudyKey, states: Studies) -> Studies:
    """Return a search and the rungs of its race, in this order."""
    race = {key: s for key, s in states.items() if key[:2] == (search.method, Stage.RACE)}
    return {search: states[search], **race}


def _retrained_trials(given: Given, earlier: Mapping[StudyKey, StudyState]) -> list[Retrained]:
    """Return what each trial retrains, without ranks for which a search has too few sound trials.

    If all trials of a search diverged, rank 0 stays, with ``None`` as the trial.
    """
    searches = {key for key, *_ in given.retrains}
    ranked = {key: ranked_trials(raced_trials(_rungs(key, earlier))) for key in searches}
    return [
        Retrained(key.search, ranked[key][rank] if rank < len(ranked[key]) else None, repetition)
        for key, rank, repetition in given.retrains
        if rank < max(1, len(ranked[key]))
    ]


def _params_of(
    given: Given,
    retrained: Sequence[Retrained],
    index: int,
    earlier: Mapping[StudyKey, StudyState],
) -> dict[str, Any] | None:
    """Return the parameters of trial ``index``; ``None`` if there is no trial to retrain."""
    trial = retrained[index].trial
    if trial is None:
        return None
    if given.round_epochs_up_to is None:  # reproductions: the epochs are not fixed
        return dict(trial.params)
    runs = [trial]
    if given.epochs_from is not None:
        # Final runs and reproductions retrain the same trials in the same order.
        reproductions = earlier[given.epochs_from].complete
        key = retrained[index].key[:2]  # the search and the trial, without the repetition
        same = [reproductions[i] for i, other in enumerate(retrained) if other.key[:2] == key]
        runs = [run for run in same if run.diverged is None]
    totals = [epoch for run in runs for epoch in run.fold_epochs]
    follow_ups = [epoch for run in runs for epoch in run.follow_up_epochs]
    first_phase, follow_up = final_epochs(totals, follow_ups, given.round_epochs_up_to)
    return {**trial.params, "epochs": first_phase, "follow_up_epochs": follow_up}


def final_epochs(totals: Sequence[int], follow_ups: Sequence[int], step: int) -> tuple[int, int]:
    """Return the epochs of both phases of a final run (protocol section 6).

    ``totals`` and ``follow_ups`` have the epochs of both phases together, and of the follow-up
    phase, of each fold run of the reproductions of the same trial, or of the trial itself. Each is
    averaged and rounded up to a multiple of ``step``; the first phase gets the difference. With
    step 5, totals averaging 37.2 and follow-ups averaging 11.4 give 40 - 15 = 25 and 15. A phase
    that any fold was trained in gets at least one step.
    """
    if not totals:  # all runs diverged
        return step, 0
    total = _round_up(fmean(totals), step)
    follow_up = _round_up(fmean(follow_ups), step)
    minimum = step if sum(totals) > sum(follow_ups) else 0
    return max(total - follow_up, minimum), follow_up


def _round_up(value: float, step: int) -> int:
    return math.ceil(round(value / step, 9)) * step  # 3.0000000000000004 steps are 3


# -- what may be worked on ------------------------------------------------------------------------


@dataclass(frozen=True)
class Unit:
    """A trial that a worker may claim.

    Attributes:
        study: the study of the trial.
        trial_index: the index of the trial within the study.
    """

    study: StudyState
    trial_index: int


def next_units(states: States) -> Iterator[Unit]:
    """Yield the trials that may be worked on now, the most useful first.

    Searches without a running trial come first, since the model of a search learns most if its
    trials run one at a time. Otherwise the order is that of the plan.
    """
    searches = (state for state in states.ready() if state.stage is Stage.SEARCH)
    idle = (state for state in searches if state.is_idle)
    seen: set[StudyKey] = set()
    for state in itertools.chain(idle, states.ready()):
        if state.planned.key not in seen:
            seen.add(state.planned.key)
            yield from (Unit(state, index) for index in state.free)
