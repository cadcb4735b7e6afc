"""What is left to do in one experiment, and what its trials train with.

Stages run in the order search, reproductions, final, for all methods. What is left to do is read
from the storage every time, so a worker can stop or be killed at any moment.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from optuna.storages import BaseStorage

from reality_check.config.method import Method
from reality_check.config.metrics import STAGES, Stage
from reality_check.config.schema import Experiment
from reality_check.config.values import Searched
from reality_check.studies.storage import holds_study, open_storage
from reality_check.studies.study import Space, Study
from reality_check.studies.trial import StoredTrial
from reality_check.utils.errors import UsageError
from reality_check.utils.passwords import without_password
from reality_check.utils.seeds import derive


@dataclass(frozen=True)
class StageWork:
    """A stage of a method that can be worked on now; the baselines belong to no method."""

    method: str
    stage: Stage
    study: Study


class Campaign:
    """The plan of one experiment: its studies, in working order.

    Args:
        experiment: validated.
        out_dir: its output folder.
        wait_for_storage: whether to wait for a database server that does not answer.
    """

    def __init__(
        self, experiment: Experiment, out_dir: Path, wait_for_storage: bool = False
    ) -> None:
        self.experiment = experiment
        self.out_dir = out_dir
        self.storage = open_storage(storage_url(experiment, out_dir), wait_for_storage)
        self._studies: dict[tuple[str, Stage], Study] = {}

    def ready_stages(self) -> Iterator[StageWork]:
        """All stages whose predecessors are complete, in working order."""
        for stage in STAGES:
            for method in self.experiment.methods:
                study = self.study(method, stage)
                if study is not None:
                    yield StageWork(method.name, stage, study)
        yield StageWork("", Stage.BASELINES, self.baselines())

    def is_complete(self) -> bool:
        """Whether every stage of every method is complete."""
        ready = list(self.ready_stages())
        names = {(work.method, work.stage) for work in ready}
        wanted = {
            (method.name, stage)
            for method in self.experiment.methods
            for stage in self.stages_of(method)
        }
        return wanted <= names and all(work.study.is_complete() for work in ready)

    def stages_of(self, method: Method) -> tuple[Stage, ...]:
        """The stages a method goes through."""
        if self._all_diverged(method):
            return (Stage.SEARCH,)
        return self.experiment.protocol.stages

    def clear_failures(self) -> None:
        """Forget earlier failures and lost workers: the user runs the same command again."""
        for work in self.ready_stages():
            work.study.clear_failures()

    def release_lost(self) -> None:
        """Free what lost workers had."""
        for work in self.ready_stages():
            work.study.release_lost()

    def release_all(self) -> None:
        """Free what other workers had: there is none but this one."""
        for work in self.ready_stages():
            work.study.release_all()

    def tidy(self) -> None:
        """End what is left over of complete stages: attempts that came too late, or were lost."""
        for work in self.ready_stages():
            work.study.tidy()

    def winner(self, method: Method) -> StoredTrial | None:
        """The best trial of a complete search; ``None`` before that, or if all diverged."""
        search = self.study(method, Stage.SEARCH)
        return search.best() if search is not None and search.is_complete() else None

    def has_complete_trials(self, name: str) -> bool:
        """Whether any trial of that method's first stage is complete."""
        first = self.study(self.experiment.method(name), self.experiment.protocol.stages[0])
        return first is not None and bool(first.complete())

    def final_epochs(self, method: Method) -> tuple[int, int]:
        """Epochs of both phases of the final run, from the reproductions (protocol section 6).

        The means of the total and of the follow-up epochs over all fold runs of the reproductions
        are each rounded up; the first phase gets the difference. Where no category needs
        reproductions, they are those of the search's winner.
        """
        reproduced = Stage.REPRODUCTIONS in self.experiment.protocol.stages
        study = self.study(method, Stage.REPRODUCTIONS if reproduced else Stage.SEARCH)
        assert study is not None
        if reproduced:
            trials = [trial for trial in study.complete().values() if trial.diverged is None]
        else:
            trials = [trial for trial in [study.best()] if trial is not None]
        totals = [epoch for trial in trials for epoch in trial.fold_epochs]
        follow_ups = [epoch for trial in trials for epoch in trial.follow_up_epochs]
        step = self.experiment.protocol.complete.round_epochs_up_to
        return final_epochs(totals, follow_ups, step)

    def study(self, method: Method, stage: Stage) -> Study | None:
        """The study of a stage; ``None`` while its predecessor is not complete."""
        key = (method.name, stage)
        if key not in self._studies:
            study = self._make_study(method, stage)
            if study is None:
                return None
            self._studies[key] = study
        return self._studies[key]

    def baselines(self) -> Study:
        """The study that scores the untrained baselines; it belongs to no method."""
        key = ("", Stage.BASELINES)
        if key not in self._studies:
            trials = self.experiment.protocol.reproductions
            self._studies[key] = self._open(Stage.BASELINES, trials, {}, {})
        return self._studies[key]

    def _make_study(self, method: Method, stage: Stage) -> Study | None:
        protocol = self.experiment.protocol
        if stage not in protocol.stages:
            return None
        if stage is Stage.SEARCH:
            name = f"{method.name}/{stage}"
            return self._open(name, protocol.search.trials, lambda: self._space(method))
        if stage not in self.stages_of(method):
            return None
        earlier = protocol.stages[: protocol.stages.index(stage)]
        if earlier:
            before = self.study(method, earlier[-1])
            if before is None or not before.is_complete():
                return None
        fixed = self._fixed(method, stage)
        return self._open(f"{method.name}/{stage}", protocol.reproductions, {}, fixed)

    def _space(self, method: Method) -> Mapping[str, Searched]:
        # Torch and the user's loss are needed only where a search begins.
        from reality_check.training.methods import search_space

        return search_space(method, self.experiment.protocol)

    def _fixed(self, method: Method, stage: Stage) -> dict[str, Any]:
        """What every run of a stage after the search trains with; without a search, no more."""
        if Stage.SEARCH not in self.experiment.protocol.stages:
            return {}
        winner = self.winner(method)
        assert winner is not None
        fixed = dict(winner.params)
        if stage is Stage.FINAL:
            fixed["epochs"], fixed["follow_up_epochs"] = self.final_epochs(method)
        return fixed

    def _open(
        self, name: str, trials: int, space: Space, fixed: dict[str, Any] | None = None
    ) -> Study:
        search = self.experiment.protocol.search
        return Study(
            self.storage,
            study_name(self.experiment, name),
            trials,
            space,
            search.sampler,
            search.startup_trials,
            derive(self.experiment.seed, name),
            fixed,
        )

    def _all_diverged(self, method: Method) -> bool:
        search = self.study(method, Stage.SEARCH)
        return search is not None and search.is_complete() and search.best() is None


def final_epochs(totals: list[int], follow_ups: list[int], step: int) -> tuple[int, int]:
    """Epochs of the first and the second phase: means, each rounded up to a multiple of ``step``.

    Totals averaging 37.2 and follow-ups averaging 11.4 give 40 - 15 = 25 and 15 with step 5.
    """
    if not totals:
        return step, 0
    total = _round_up(fmean(totals), step)
    follow_up = _round_up(fmean(follow_ups), step)
    return max(total - follow_up, 0), follow_up


def _round_up(value: float, step: int) -> int:
    return math.ceil(round(value / step, 9)) * step


def study_name(experiment: Experiment, name: str) -> str:
    """Name of a study: several experiments can share one database server's storage."""
    return name if experiment.studies is None else f"{experiment.studies}/{name}"


def check_studies(experiment: Experiment, storage: BaseStorage) -> None:
    """Make sure that a storage that is reached another way than before is still the same.

    Raises:
        UsageError: it does not hold the experiment's studies.
    """
    if not holds_study(storage, study_name(experiment, Stage.BASELINES)):
        raise UsageError(
            f"the storage {without_password(experiment.storage or '')} holds no studies of this "
            "experiment; name the one that it was started with."
        )


def storage_url(experiment: Experiment, out_dir: Path) -> str:
    """Where the studies live: the named storage, or ``studies.db`` in the output folder."""
    return experiment.storage or f"sqlite:///{(out_dir / 'studies.db').resolve()}"
