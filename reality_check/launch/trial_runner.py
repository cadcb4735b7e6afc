"""Runs a trial: trains its networks, scores them, and returns the result for the storage."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

from reality_check.config.metrics import PRIMARY, Stage, metric_of
from reality_check.data import load_dataset
from reality_check.evaluation.categories import concatenate
from reality_check.evaluation.gallery import draw_gallery
from reality_check.evaluation.scoring import Diverged
from reality_check.launch.devices import name_of
from reality_check.launch.fold_executors import (
    FoldExecutor,
    FoldJob,
    ProcessExecutor,
    SerialExecutor,
)
from reality_check.launch.scorer import Scorer, network_seed
from reality_check.results import TrialRecord
from reality_check.studies.attempts import BY_FOLD
from reality_check.studies.output_folder import (
    fold_folder,
    gallery_path,
    remove_checkpoints,
    trial_folder,
)
from reality_check.studies.plan import PlannedStudy, StudyState
from reality_check.studies.trial import TrialContext, TrialResult
from reality_check.training.fold import FoldResult, FoldTask
from reality_check.training.fold_checkpoints import MODEL
from reality_check.training.methods import FilledMethod
from reality_check.training.prepared_experiment import PreparedExperiment, PreparedMethod
from reality_check.training.strategy import Strategy
from reality_check.utils.environment import describe_gpu
from reality_check.utils.seeds import derive

Progress = Callable[[dict[str, Any]], None]


class TrialRunner:
    """Runs trials of any stage in an output folder.

    Args:
        prepared: the experiment.
        out_dir: the output folder.
        on_progress: called with what the runner is doing, for live views.
        folds_at_once: the number of folds of a trial that are trained at a time, each in a
            separate process.
        strategy: the processes that train each network together, including this one.
    """

    def __init__(
        self,
        prepared: PreparedExperiment,
        out_dir: Path,
        on_progress: Progress = lambda _: None,
        folds_at_once: int = 1,
        strategy: Strategy | None = None,
    ) -> None:
        self.prepared = prepared
        self.out_dir = out_dir
        self.on_progress = on_progress
        self.strategy = strategy or Strategy()
        self.scorer = Scorer(prepared, out_dir)
        self._metric = metric_of(prepared.protocol.selects_by, prepared.protocol.described)
        self._folds_at_once = min(folds_at_once, prepared.protocol.split.folds)

    def resources(self, planned: PlannedStudy) -> dict[str, Any]:
        """Return the device of a trial and its number of processes (or GPUs), as its attributes."""
        device = self.prepared.device
        # Folds on a GPU share it, and these stages have no folds that are trained at once.
        is_single = device.type != "cpu" or planned.key.stage in (Stage.FINAL, Stage.BASELINES)
        count = self.strategy.size
        folds = len(planned.folds or range(self._folds_at_once))
        at_once = 1 if is_single or planned.own_networks else min(self._folds_at_once, folds)
        processes = max(count, at_once)
        about = {"device": name_of(device, count), "processes": processes}
        return about | ({"gpu": describe_gpu(device)} if device.type == "cuda" else {})

    def do(self, study: StudyState, context: TrialContext) -> TrialResult:
        """Run one trial of a stage.

        If the method diverges, the trial gets the value of a diverged one, and its checkpoints are
        deleted.
        """
        about = {
            "doing": study.stage,
            "method": study.method,
            "search": study.search,
            "trial_index": context.trial_index,
            "since": time.time(),
            "device": name_of(self.prepared.device, self.strategy.size),
        }
        self.on_progress(about)
        if study.stage is Stage.BASELINES:
            scores = self.scorer.score_baselines(context.trial_index)
            best = max(metrics[PRIMARY] for metrics in scores.values())
            return TrialResult(best, {"scores": scores})
        if context.params is None:
            return TrialResult(
                self._metric.diverged, {"diverged": "every trial of its search diverged"}
            )
        run_stage = {
            Stage.SEARCH: self._search,
            Stage.RACE: self._search,
            Stage.REPRODUCTIONS: self._reproduce,
            Stage.FINAL: self._train_final,
        }[study.stage]
        trial = _Trial(
            self.prepared.method(study.method),
            study.stage,
            study.search,
            study.planned,
            study.own_trial(context.trial_index),
            context,
            context.params,
            study.seed_key(context.trial_index),
            lambda position: self.on_progress({**about, **position}),
        )
        try:
            result = run_stage(trial)
            attributes = {**result.attributes, **trial.notes}
            return dataclasses.replace(result, attributes=attributes)
        except Diverged as error:
            context.renew_lease()  # raises if the files are another worker's now
            index, search = context.trial_index, study.search
            remove_checkpoints(trial_folder(self.out_dir, study.method, study.stage, index, search))
            return TrialResult(self._metric.diverged, {"diverged": str(error)})

    def follow(self) -> None:
        """Take part in the trainings of the strategy's main process until its work is done."""
        SerialExecutor(self.prepared.dataset, self.prepared.device, self.strategy).follow()

    def close(self) -> None:
        """End the other processes that train."""
        if "executor" in vars(self):  # the property has been used
            vars(self).pop("executor").close()
        elif self.strategy.is_main:  # the others wait for a job that never came
            with contextlib.suppress(RuntimeError):  # they have ended already
                self.strategy.broadcast(None)

    def forget_data(self) -> None:
        """End the other processes, and let the data set leave memory: no trial is left."""
        if "executor" in vars(self):
            self.close()
        for name in ("dataset", "splits", "test_set"):
            vars(self.prepared).pop(name, None)

    @functools.cached_property
    def executor(self) -> FoldExecutor:
        """The executor that trains the networks of a trial; created when it is first used."""
        prepared = self.prepared
        if self._folds_at_once == 1 or self.strategy.size > 1:
            return SerialExecutor(prepared.dataset, prepared.device, self.strategy)
        load = functools.partial(load_dataset, prepared.experiment.dataset)
        return ProcessExecutor(self._folds_at_once, load, prepared.device)

    # -- stages -----------------------------------------------------------------------------

    def _search(self, trial: _Trial) -> TrialResult:
        return self._mean_result(self._train_folds(trial))

    def _reproduce(self, trial: _Trial) -> TrialResult:
        """Train and score a network for each fold; the first reproduction draws the gallery."""
        method, index = trial.method, trial.context.trial_index
        if trial.own is None:
            networks_of, result = (trial.stage, index), self._search(trial)
        else:
            networks_of = Stage.SEARCH, trial.own.trial_index or 0
            result = self._own_networks(trial, trial.own)
        scores, embeddings = self.scorer.score(method, *networks_of)
        self.scorer.keep_queries(method, trial.stage, index, scores)
        gallery_size = self.prepared.protocol.gallery
        if gallery_size and index == 0:
            normalize = method.method.normalize_embeddings
            vectors = concatenate(embeddings, normalize)
            path = gallery_path(self.out_dir, method.name)
            draw_gallery(path, self.prepared.test_set, vectors, normalize, gallery_size)
        return TrialResult(result.value, {**result.attributes, "scores": scores})

    def _own_networks(self, trial: _Trial, found: TrialRecord) -> TrialResult:
        """Return the result of a trial of the search whose networks are scored.

        Networks that were lost are trained again, with the seeds of the search.
        """
        assert found.trial_index is not None
        index, stage = found.trial_index, Stage.SEARCH
        seed_key = [stage.category_of_seeds, index]
        context = dataclasses.replace(trial.context, trial_index=index)
        searched = dataclasses.replace(trial, stage=stage, context=context, seed_key=seed_key)
        folds = range(self.prepared.protocol.split.folds)
        if not all((self._fold_folder(searched, fold) / MODEL).exists() for fold in folds):
            self._train_folds(searched)
        return TrialResult(found.value or 0.0, {name: getattr(found, name) for name in BY_FOLD})

    def _train_final(self, trial: _Trial) -> TrialResult:
        """Train and score one wide network on all trainval classes."""
        selects_on_test = self.prepared.protocol.selects_on == "test"
        train = self._train_selecting_on_test if selects_on_test else self._train_fixed_epochs
        result = train(trial)
        index = trial.context.trial_index
        scores, _ = self.scorer.score(trial.method, trial.stage, index)
        self.scorer.keep_queries(trial.method, trial.stage, index, scores)
        return TrialResult(scores["complete"][PRIMARY], {"scores": scores, "epochs": result.epoch})

    def _train_fixed_epochs(self, trial: _Trial) -> FoldResult:
        """Train for a fixed number of epochs, without validation."""
        params = dict(trial.params)
        epochs = params.pop("epochs", 0), params.pop("follow_up_epochs", 0)  # of the two phases
        filled = trial.method.filled(params)
        if self.prepared.protocol.selects_on == "last":
            has_two_phases = filled.second_phase is not None
            epochs = trial.method.training.phase_epochs(has_two_phases)
        task = self._task(trial, filled, 0, epochs)
        return self._train_alone(trial, task, selection_classes=None)

    def _train_selecting_on_test(self, trial: _Trial) -> FoldResult:
        """Train, and keep the epoch with the best score on the test classes.

        No other training gets the test classes. ``selects_on: test`` asks for it, to repeat what
        some papers did.
        """
        filled = trial.method.filled(trial.params)
        task = dataclasses.replace(self._task(trial, filled, 0), selects_on="test")
        return self._train_alone(trial, task, self.prepared.splits.test)

    def _mean_result(self, results: list[FoldResult]) -> TrialResult:
        """Return the result of a trial, whose value is the mean over its folds."""
        metric = self._metric
        attributes = {
            "fold_values": [result.value for result in results],
            "fold_epochs": [result.epoch for result in results],
            "follow_up_epochs": [result.follow_up_epochs for result in results],
            "epochs_spent": [result.epochs_spent for result in results],
            "cut_short": [result.cut_short for result in results],
            "curves": [  # pairs of epoch and score, with higher scores for better ones
                [[row["step"], metric.sign * row[metric.name]] for row in result.curve]
                for result in results
            ],
        }
        return TrialResult(fmean(result.value for result in results), attributes)

    # -- training ---------------------------------------------------------------------------

    def _train_alone(
        self, trial: _Trial, task: FoldTask, selection_classes: tuple[int, ...] | None
    ) -> FoldResult:
        """Train one network on all trainval classes, as fold 0 of its trial.

        ``selection_classes`` are those on which epochs are compared; ``None`` for fixed epochs.
        """
        train, folder = self.prepared.splits.trainval, self._fold_folder(trial, 0)
        (result,) = self._run(trial, [FoldJob(task, 0, train, selection_classes, folder)])
        return result

    def _train_folds(self, trial: _Trial) -> list[FoldResult]:
        """Train a network for each fold."""
        filled = trial.method.filled(trial.params)
        jobs = [
            FoldJob(
                self._task(trial, filled, number),
                number,
                fold.train,
                fold.validation,
                self._fold_folder(trial, number),
            )
            for number, fold in enumerate(self.prepared.splits.folds)
            if trial.planned.folds is None or number in trial.planned.folds
        ]
        return self._run(trial, jobs)

    def _task(
        self,
        trial: _Trial,
        filled: FilledMethod,
        fold: int,
        fixed_epochs: tuple[int, int] | None = None,
    ) -> FoldTask:
        """Return the task of a fold run."""
        method, stage = trial.method, trial.stage
        seed = self.prepared.experiment.seed_of(method.method)
        return FoldTask(
            settings=filled,
            model=method.model.filled(filled.params),
            training=method.training.filled(filled.params),
            embedding_size=method.embedding_size(stage),
            network_seed=network_seed(seed, trial.seed_key, fold),
            loss_seed=derive(seed, method.name, *trial.seed_key, fold, "loss"),
            fixed_epochs=fixed_epochs,
            keep_model=stage not in (Stage.SEARCH, Stage.RACE)
            or self.prepared.protocol.search.retrain == "none",
            selects_by=self._metric.name,
            sign=self._metric.sign,
        )

    def _fold_folder(self, trial: _Trial, fold: int) -> Path:
        method, index = trial.method.name, trial.context.trial_index
        return fold_folder(self.out_dir, method, trial.stage, index, fold, trial.search)

    def _run(self, trial: _Trial, jobs: list[FoldJob]) -> list[FoldResult]:
        """Train the jobs, and note in the trial how: settings, remarks, and the GPU's memory."""
        results = self.executor.run(jobs, trial.on_progress, trial.context.renew_lease)
        # Settings that could not be used, with the reason; each once.
        notes = list(dict.fromkeys(remark for result in results for remark in result.remarks))
        if self.prepared.device.type == "cuda":
            notes = [trial.method.training.gpu.described(), *notes]
            trial.notes["gpu_memory"] = max(result.gpu_memory for result in results)
        if notes:
            trial.notes["trained_with"] = "; ".join(notes)
        return results


@dataclasses.dataclass(frozen=True)
class _Trial:
    """A trial that is being run.

    Attributes:
        planned: the plan of its study.
        own: the trial of the search whose networks are scored, if none is trained.
        seed_key: what its seeds are derived from, see :meth:`StudyState.seed_key`.
        notes: attributes of the trial that :meth:`TrialRunner._run` adds.
    """

    method: PreparedMethod
    stage: Stage
    search: int
    planned: PlannedStudy
    own: TrialRecord | None
    context: TrialContext
    params: dict[str, Any]
    seed_key: list[Any]
    on_progress: Progress
    notes: dict[str, Any] = dataclasses.field(default_factory=dict)
