"""The stages of an experiment, and the parameters that their trials train with.

Stages run in the order search, reproductions, final, for all methods. The remaining work is always
read from the storage, so a worker can stop or be killed at any time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from optuna.storages import BaseStorage, InMemoryStorage
from sqlalchemy import URL

from reality_check.config.method import Method
from reality_check.config.metrics import STAGES, Stage
from reality_check.config.schema import Experiment
from reality_check.config.values import Searched
from reality_check.studies.growth import read_steps, reproduction_order
from reality_check.studies.output_folder import load_locked, stage_name
from reality_check.studies.storage import holds_study, open_storage, storage_file
from reality_check.studies.study import Study, StudyPlan
from reality_check.studies.trial import StoredTrial
from reality_check.utils.errors import UsageError
from reality_check.utils.own_names import own_path
from reality_check.utils.passwords import without_password
from reality_check.utils.seeds import derive

#: Maximum number of baseline trials; more untrained networks add nothing.
MOST_BASELINES = 10


@dataclass(frozen=True)
class StageWork:
    """A stage of a method whose trials can run now.

    Attributes:
        method: the name of the method; ``""`` for the baselines.
        stage: the stage.
        study: the study of the stage.
        search: the number of the search, for that stage.
    """

    method: str
    stage: Stage
    study: Study
    search: int = 0


@dataclass(frozen=True)
class Retrained:
    """The trial of a search whose parameters a reproduction trains with.

    Attributes:
        search: the number of the search.
        trial: the trial; ``None`` if all trials of that search diverged.
    """

    search: int
    trial: StoredTrial | None

    @property
    def trial_index(self) -> int | None:
        """The index of the trial in its search, or ``None`` if there is no trial."""
        return None if self.trial is None else self.trial.trial_index


class Campaign:
    """The studies of an experiment, in the order in which they run.

    Args:
        experiment: the experiment.
        out_dir: its output folder.
        wait_for_storage: whether to wait for a database server that does not answer.
        only_reads: whether to leave out studies that no worker has begun. Beginning a study needs
            torch, the user's loss, and write access to the folder.
    """

    def __init__(
        self,
        experiment: Experiment,
        out_dir: Path,
        wait_for_storage: bool = False,
        only_reads: bool = False,
    ) -> None:
        self.experiment = experiment
        self.out_dir = out_dir
        self._only_reads = only_reads
        self.storage: BaseStorage
        url = storage_url(experiment, out_dir)
        file = storage_file(url)
        if not only_reads or file is None or file.exists():
            self.storage = open_storage(url, wait_for_storage)
        elif experiment.storage is None:
            self.storage = InMemoryStorage()  # opening the file would create it
        else:
            raise UsageError(
                f"the storage of {out_dir}, {url}, is not there: {file.absolute()} does not exist. "
                "Bring that file back; if it was named by a path from the folder in which the run "
                "began, write this command there."
            )
        self._studies: dict[tuple[str, Stage, int], Study] = {}

    def ready_stages(self) -> Iterator[StageWork]:
        """Yield the stages whose predecessors are complete, in the order in which they run."""
        for stage in STAGES:
            for search in self.searches_of(stage):
                for method in self.experiment.methods:
                    study = self.study(method, stage, search)
                    if study is not None:
                        yield StageWork(method.name, stage, study, search)
        if self._may_open(Stage.BASELINES):
            yield StageWork("", Stage.BASELINES, self.baselines())

    def studies(self) -> dict[tuple[str, Stage, int], Study]:
        """Return the studies of :meth:`ready_stages` by method, stage and search."""
        return {(work.method, work.stage, work.search): work.study for work in self.ready_stages()}

    @property
    def searches(self) -> int:
        """The number of searches per method."""
        return self.experiment.protocol.search.repeats

    def searches_of(self, stage: Stage) -> range:
        """Return the numbers of a stage's studies, of which each search has one."""
        return range(self.searches if stage is Stage.SEARCH else 1)

    def is_complete(self) -> bool:
        """Whether every stage of every method is complete."""
        ready = list(self.ready_stages())
        ready_keys = {(work.method, work.stage, work.search) for work in ready}
        expected = {
            (method.name, stage, search)
            for method in self.experiment.methods
            for stage in self.stages_of(method)
            for search in self.searches_of(stage)
        } | {("", Stage.BASELINES, 0)}
        return expected <= ready_keys and all(work.study.is_complete() for work in ready)

    def stages_of(self, method: Method) -> tuple[Stage, ...]:
        """Return the stages of a method, which is only the search if all trials diverged."""
        searches = [self.study(method, Stage.SEARCH, number) for number in range(self.searches)]
        if all(study and study.is_complete() and study.best() is None for study in searches):
            return (Stage.SEARCH,)
        return self.experiment.protocol.stages

    def clear_failures(self) -> None:
        """Forget failures and lost workers, since the user runs the command again."""
        for work in self.ready_stages():
            work.study.clear_failures()

    def release_lost(self) -> None:
        """Release the trials of lost workers."""
        for work in self.ready_stages():
            work.study.release_lost()

    def release_all(self, only_started_by_run: bool = False) -> None:
        """Release all running trials; see :meth:`Study.release_all`."""
        for work in self.ready_stages():
            work.study.release_all(only_started_by_run)

    def tidy(self) -> None:
        """End the attempts at trials of complete stages that are still running or waiting."""
        for work in self.ready_stages():
            work.study.tidy()

    def winner(self, method: Method, search: int = 0) -> StoredTrial | None:
        """Return the best trial of a search; ``None`` until it is complete, or if all diverged."""
        study = self.study(method, Stage.SEARCH, search)
        return study.best() if study is not None and study.is_complete() else None

    def retrained(self, method: Method) -> list[Retrained]:
        """Return what each reproduction of a method retrains, once all searches are complete.

        Reproductions of the same trial are adjacent. Trials are ordered by search, or, if the best
        trials of one search are retrained, by value. Reproductions that were added when the
        experiment grew come last.
        """
        search = self.experiment.protocol.search
        if search.retrain_best is None:
            trials = [
                Retrained(number, self.winner(method, number)) for number in range(self.searches)
            ]
        else:
            study = self.study(method, Stage.SEARCH)
            assert study is not None
            trials = [Retrained(0, trial) for trial in study.ranked()[: search.retrain_best]]
        order = reproduction_order(self.experiment, read_steps(self.out_dir))
        return [trials[setting] for setting, _ in order if setting < len(trials)]

    def has_complete_trials(self, name: str) -> bool:
        """Whether any trial of that method's first stage is complete."""
        method, first = self.experiment.method(name), self.experiment.protocol.stages[0]
        studies = [self.study(method, first, search) for search in range(self.searches)]
        return any(study is not None and study.complete() for study in studies)

    def final_epochs(self, method: Method, index: int) -> tuple[int, int]:
        """Return the epochs of both phases of a final run (protocol section 6).

        The total and the follow-up epochs are each averaged over all fold runs of the
        reproductions of the same trial, and rounded up; the first phase gets the difference. If no
        category needs reproductions, the fold runs of the trial itself are averaged.
        """
        plan = self.retrained(method)
        trials = [item.trial for item in plan[index : index + 1] if item.trial is not None]
        if Stage.REPRODUCTIONS in self.experiment.protocol.stages:
            study = self.study(method, Stage.REPRODUCTIONS)
            assert study is not None
            runs = study.complete()
            same_trial = [runs[other] for other, item in enumerate(plan) if item == plan[index]]
            trials = [run for run in same_trial if run.diverged is None]
        totals = [epoch for trial in trials for epoch in trial.fold_epochs]
        follow_ups = [epoch for trial in trials for epoch in trial.follow_up_epochs]
        step = self.experiment.protocol.complete.round_epochs_up_to
        return final_epochs(totals, follow_ups, step)

    def study(self, method: Method, stage: Stage, search: int = 0) -> Study | None:
        """Return the study of a stage, or ``None`` while an earlier stage is not complete."""
        key = (method.name, stage, search)
        study = self._studies.get(key) or self._make_study(method, stage, search)
        if study is not None:
            self._studies[key] = study
        return study

    def baselines(self) -> Study:
        """Return the study of the untrained baselines, which belong to no method."""
        key = ("", Stage.BASELINES, 0)
        if key not in self._studies:
            trials = min(self.experiment.protocol.runs, MOST_BASELINES)
            self._studies[key] = self._fixed_study(Stage.BASELINES, [{}] * trials)
        return self._studies[key]

    def attribute(self, key: str) -> Any:
        """Return data stored with the study of the baselines, or ``None`` if there is none."""
        return self.baselines().attribute(key) if self._may_open(Stage.BASELINES) else None

    def _may_open(self, name: str) -> bool:
        name = study_name(self.experiment, name)
        return not self._only_reads or holds_study(self.storage, name)

    def _make_study(self, method: Method, stage: Stage, search: int) -> Study | None:
        protocol = self.experiment.protocol
        name = f"{method.name}/{stage_name(stage, search)}"
        if stage not in protocol.stages or not self._may_open(name):
            return None
        if stage is Stage.SEARCH:
            return self._search_study(method, search)
        if stage not in self.stages_of(method):
            return None
        earlier = protocol.stages[: protocol.stages.index(stage)]
        for stage_before in earlier[-1:]:
            studies = [
                self.study(method, stage_before, number)
                for number in self.searches_of(stage_before)
            ]
            if not all(study is not None and study.is_complete() for study in studies):
                return None
        searched = self.study(method, Stage.SEARCH)
        space = {} if searched is None else searched.space
        is_packed = method.packed is not None
        return self._fixed_study(name, self._fixed_params(method, stage), space, is_packed)

    def _search_study(self, method: Method, search: int) -> Study | None:
        experiment, options = self.experiment, self.experiment.protocol.search
        first, start = None, method.starts_from
        if start is not None:
            first_search = self.study(experiment.method(start.method), Stage.SEARCH, search)
            if first_search is None or not first_search.is_complete():
                return None
            best = first_search.best()
            first = None if best is None else {**start.neutral, **best.params}
        if method.warm_start is not None:
            first = dict(method.warm_start.values)
        trials = experiment.trials_of(method)
        name = f"{method.name}/{stage_name(Stage.SEARCH, search)}"
        plan = StudyPlan(
            study_name(experiment, name),
            trials,
            derive(experiment.seed, name),
            lambda: self._search_space(method),
            options.sampler,
            min(options.startup_trials, trials),
            derive(experiment.seed_of(method), stage_name(Stage.SEARCH, search), "draws"),
            first=first,
            sampler_arguments=options.sampler_arguments,
            made_of=() if first is None else [{"first": first}],
        )
        return Study(self.storage, plan)

    def _search_space(self, method: Method) -> Mapping[str, Searched]:
        # Imported here, since torch and the user's loss are needed only if a search begins.
        from reality_check.training.methods import search_space

        experiment = self.experiment
        return search_space(method, experiment.protocol, experiment.model_of(method))

    def _fixed_params(self, method: Method, stage: Stage) -> list[dict[str, Any] | None]:
        """Return the parameters of every trial of a stage after the search."""
        if Stage.SEARCH not in self.experiment.protocol.stages:
            return [{}] * self.experiment.protocol.runs
        fixed: list[dict[str, Any] | None] = []
        for index, retrained in enumerate(self.retrained(method)):
            params = None if retrained.trial is None else dict(retrained.trial.params)
            if params is not None and stage is Stage.FINAL:
                params["epochs"], params["follow_up_epochs"] = self.final_epochs(method, index)
            fixed.append(params)
        return fixed

    def _fixed_study(
        self,
        name: str,
        fixed: Sequence[Mapping[str, Any] | None],
        space: Mapping[str, Searched] | None = None,
        is_packed: bool = False,
    ) -> Study:
        final_metrics = self.experiment.protocol.final_metrics
        plan = StudyPlan(
            study_name(self.experiment, name),
            len(fixed),
            derive(self.experiment.seed, name),
            space or {},
            fixed=fixed,
            made_of=None
            if is_packed
            else [{"params": params, "final_metrics": final_metrics} for params in fixed],
        )
        return Study(self.storage, plan)


def final_epochs(totals: list[int], follow_ups: list[int], step: int) -> tuple[int, int]:
    """Return the epochs of both phases from means, each rounded up to a multiple of ``step``.

    With step 5, totals averaging 37.2 and follow-ups averaging 11.4 give 40 - 15 = 25 and 15. A
    phase that any fold was trained in gets at least one step.
    """
    if not totals:
        return step, 0
    total = _round_up(fmean(totals), step)
    follow_up = _round_up(fmean(follow_ups), step)
    least = step if sum(totals) > sum(follow_ups) else 0
    return max(total - follow_up, least), follow_up


def _round_up(value: float, step: int) -> int:
    return math.ceil(round(value / step, 9)) * step


def read_campaign(out_dir: Path) -> Campaign:
    """Open the campaign of an output folder for reading, even if it has no records yet."""
    return Campaign(load_locked(out_dir), out_dir, only_reads=True)


def recorded_campaign(out_dir: Path) -> Campaign:
    """Open the campaign of an output folder that must have records.

    Raises:
        UsageError: this is not an output folder of reality-check, or it has no records.
    """
    campaign = read_campaign(out_dir)
    if isinstance(campaign.storage, InMemoryStorage):
        raise UsageError(
            f"{out_dir} has no studies.db, the record of all trainings, so there are no results to "
            "load; name the folder that the run wrote."
        )
    return campaign


def study_name(experiment: Experiment, name: str) -> str:
    """Return the name of a study in the storage, which several experiments can share."""
    return name if experiment.studies is None else f"{experiment.studies}/{name}"


def check_studies(experiment: Experiment, storage: BaseStorage) -> None:
    """Make sure that a storage whose URL has changed is the storage of this experiment."""
    if not holds_study(storage, study_name(experiment, Stage.BASELINES)):
        raise UsageError(
            f"the storage {without_password(experiment.storage or '')} holds no studies of this "
            "experiment; name the one that it was started with."
        )


def storage_url(experiment: Experiment, out_dir: Path) -> str | URL:
    """Return the experiment's storage URL, or that of ``studies.db`` in the output folder."""
    file = str(own_path(out_dir, "studies.db").resolve())
    return experiment.storage or URL.create("sqlite", database=file)
