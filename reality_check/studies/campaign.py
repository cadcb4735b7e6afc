"""One experiment from search to scores, as units of work that any number of workers share.

Stages run in the order search, reproductions, complete, for all methods. What is left to do is
read from the storage every time, so a worker can stop or be killed at any moment.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from optuna.storages import BaseStorage

from reality_check.config.classes import one_line
from reality_check.config.metrics import METRICS, PRIMARY
from reality_check.config.model import Model
from reality_check.config.schema import Experiment, Method
from reality_check.config.training import Training
from reality_check.data import ClassSplits, ImageSet, load_dataset, split_dataset
from reality_check.data.augmentation.preprocessing import Preprocessing
from reality_check.evaluation.categories import (
    concatenate,
    load_network,
    score_baselines,
    score_folds,
    score_networks,
)
from reality_check.evaluation.gallery import GALLERY_FILE, draw_gallery
from reality_check.evaluation.metrics import Diverged, Metrics, embed, evaluate_both_geometries
from reality_check.evaluation.query_scores import (
    SCORES_FILE,
    Recorded,
    read_query_scores,
    write_query_scores,
    write_test_queries,
)
from reality_check.launch.devices import name_of
from reality_check.launch.fold_executors import (
    FoldExecutor,
    FoldJob,
    ProcessExecutor,
    SerialExecutor,
)
from reality_check.models.network import Network, preprocessing
from reality_check.models.pipeline import Pipeline, build_pipeline, input_shape
from reality_check.results import QueryScores
from reality_check.studies.storage import holds_study, open_storage
from reality_check.studies.study import Study, TrialContext, TrialResult, WorkFailed, best_trial
from reality_check.training.fold import FoldResult, FoldTask
from reality_check.training.methods import MethodSettings, fill_settings, search_space
from reality_check.training.strategy import Strategy
from reality_check.training.trainer import MODEL
from reality_check.utils.errors import UsageError
from reality_check.utils.interrupt import Stopped, check, pause
from reality_check.utils.lease import LeaseCheck, no_lease
from reality_check.utils.passwords import without_password
from reality_check.utils.seeds import derive

#: Name of the stage that scores what no training reaches; it belongs to no method.
BASELINES = "baselines"
#: Seconds between two looks for work, at least and at most.
PAUSES = 1.0, 15.0

Progress = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class StageWork:
    """A stage of a method that can be worked on now."""

    method: str
    stage: str
    study: Study


class Campaign:
    """All work of one experiment in one output folder.

    Args:
        experiment: validated.
        out_dir: its output folder.
        on_progress: told what this worker does, as plain data.
        folds_at_once: how many folds of a trial train at a time, in processes of their own.
        strategy: the processes that train each network together, this one being the main one.
        wait_for_storage: whether to wait for a database server that does not answer.
    """

    def __init__(
        self,
        experiment: Experiment,
        out_dir: Path,
        on_progress: Progress = lambda _: None,
        folds_at_once: int = 1,
        strategy: Strategy | None = None,
        wait_for_storage: bool = False,
    ) -> None:
        self.experiment = experiment
        self.out_dir = out_dir
        self.on_progress = on_progress
        self.folds_at_once = folds_at_once
        self.strategy = strategy or Strategy()
        self.storage = open_storage(storage_url(experiment, out_dir), wait_for_storage)
        self._stages: dict[tuple[str, str], Study] = {}
        self._about: dict[str, Any] = {}
        self._pipelines: dict[tuple[Preprocessing, str], Pipeline] = {}
        self._renew_lease: LeaseCheck = no_lease

    # -- what there is to do ----------------------------------------------------------------

    def work(self) -> None:
        """Work until nothing is left, waiting for other workers where their results are needed.

        Raises:
            WorkFailed: a unit of work failed here or in another worker.
            UsageError: a unit of work found that the user's input cannot be used.
            Stopped: this process was asked to stop.
        """
        while True:
            check()
            looked = time.monotonic()
            outcome = self._work_on_first_free_unit()
            if outcome == "done":
                self.tidy()
                return
            if outcome == "wait":
                self.on_progress({"doing": "waiting for other workers"})
                self._pause(time.monotonic() - looked)

    def _pause(self, look: float) -> None:
        """Wait after a look in vain, which took so many seconds; longer where looks are slow.

        Many workers that wait must not keep the storage from those that work.
        """
        least, most = PAUSES
        pause(min(max(least, 10 * look), most))

    def release_all(self) -> None:
        """Free what other workers had: there is none but this one."""
        for unit in self.units():
            unit.study.release_all()

    def tidy(self) -> None:
        """End what is left over of complete stages: attempts that came too late, or were lost."""
        for unit in self.units():
            unit.study.tidy()

    def follow(self) -> None:
        """Train with the main process of the strategy until its work is done."""
        SerialExecutor(self.dataset, self.device, self.strategy).follow()

    def units(self) -> Iterator[StageWork]:
        """All stages whose predecessors are complete, in working order."""
        for stage in ("search", "reproductions", "complete"):
            for method in self.experiment.methods:
                study = self._stage(method, stage)
                if study is not None:
                    yield StageWork(method.name, stage, study)
        yield StageWork("", BASELINES, self.baselines())

    def is_complete(self) -> bool:
        """Whether every stage of every method is complete."""
        units = list(self.units())
        ready = {(unit.method, unit.stage) for unit in units}
        wanted = {
            (method.name, stage)
            for method in self.experiment.methods
            for stage in self.stages_of(method)
        }
        return wanted <= ready and all(unit.study.is_complete() for unit in units)

    def stages_of(self, method: Method) -> list[str]:
        """The stages a method goes through."""
        if self._all_diverged(method):
            return ["search"]
        return list(self.experiment.protocol.stages)

    def _work_on_first_free_unit(self) -> str:
        for unit in self.units():
            if unit.study.is_complete():  # first, since that is remembered and not asked again
                continue
            failure = unit.study.failure()
            if failure is not None:
                raise _failed(unit, failure)
            try:
                work = functools.partial(self._do, unit)
                if unit.study.work_once(work, self._resources(unit.stage)):
                    self._prune(unit)
                    return "worked"
            except UsageError as error:
                unit.study.record_failure(str(error), usage=True)
                raise
            except (WorkFailed, Stopped):
                raise
            except Exception as error:
                message = _reason(error)
                with contextlib.suppress(Exception):  # on a full disk, the first reason is to tell
                    unit.study.record_failure(message, usage=False)
                raise _failed(unit, {"message": message, "usage": False}) from error
        return "done" if self.is_complete() else "wait"

    def _prune(self, unit: StageWork) -> None:
        """Of a complete trial of the search nothing stays but its records.

        Only once it is in the storage; also of trials that others did, since a worker that was
        paused can have written after the end.
        """
        if unit.stage != "search" or not self.strategy.is_main:
            return
        for trial_index in unit.study.complete():
            remove_checkpoints(self.folder(unit.method, unit.stage, trial_index))

    # -- stages -----------------------------------------------------------------------------

    def _stage(self, method: Method, stage: str) -> Study | None:
        """The study of a stage; ``None`` while its predecessor is not complete."""
        key = (method.name, stage)
        if key not in self._stages:
            made = self._make_stage(method, stage)
            if made is None:
                return None
            self._stages[key] = made
        return self._stages[key]

    def _make_stage(self, method: Method, stage: str) -> Study | None:
        protocol = self.experiment.protocol
        if stage not in protocol.stages:
            return None
        if stage == "search":
            space = search_space(method, protocol)
            return self._study(f"{method.name}/search", protocol.search.trials, space)
        if stage not in self.stages_of(method):
            return None
        earlier = protocol.stages[: protocol.stages.index(stage)]
        if earlier:
            before = self._stage(method, earlier[-1])
            if before is None or not before.is_complete():
                return None
        fixed = self._fixed(method, stage)
        return self._study(f"{method.name}/{stage}", protocol.reproductions, {}, fixed)

    def _fixed(self, method: Method, stage: str) -> dict[str, Any]:
        """What every run of a stage after the search trains with; without a search, no more."""
        if "search" not in self.experiment.protocol.stages:
            return {}
        winner = self.winner(method)
        assert winner is not None
        fixed = dict(winner["params"])
        if stage == "complete":
            fixed["epochs"], fixed["follow_up_epochs"] = self.complete_epochs(method)
        return fixed

    def baselines(self) -> Study:
        """The stage that scores what no training reaches; it belongs to no method."""
        key = ("", BASELINES)
        if key not in self._stages:
            num_trials = self.experiment.protocol.reproductions
            self._stages[key] = self._study(BASELINES, num_trials, {}, {})
        return self._stages[key]

    def _study(
        self, name: str, num_trials: int, space: dict[str, Any], fixed: dict[str, Any] | None = None
    ) -> Study:
        search = self.experiment.protocol.search
        seed = derive(self.experiment.seed, name)
        return Study(
            self.storage,
            study_name(self.experiment, name),
            num_trials,
            space,
            search.sampler,
            search.startup_trials,
            seed,
            fixed,
        )

    def winner(self, method: Method) -> dict[str, Any] | None:
        """Slot and parameters of the best trial of a complete search; ``None`` before that."""
        search = self._stage(method, "search")
        if search is None or not search.is_complete():
            return None
        best = best_trial(search)
        if best is None:
            return None
        return {"trial_index": best.user_attrs["trial_index"], "params": dict(best.params)}

    def has_complete_trials(self, name: str) -> bool:
        """Whether any trial of that method's first stage is complete."""
        first = self._stage(self.experiment.method(name), self.experiment.protocol.stages[0])
        return first is not None and bool(first.complete())

    def _all_diverged(self, method: Method) -> bool:
        search = self._stage(method, "search")
        return search is not None and search.is_complete() and best_trial(search) is None

    def complete_epochs(self, method: Method) -> tuple[int, int]:
        """Epochs of both phases of the complete run, from the reproductions (protocol section 6).

        The means of the total and of the follow-up epochs over all fold runs of the reproductions
        are each rounded up; the first phase gets the difference. Where no category needs
        reproductions, they are those of the search's winner.
        """
        has_reproductions = "reproductions" in self.experiment.protocol.stages
        study = self._stage(method, "reproductions" if has_reproductions else "search")
        assert study is not None
        trials = [t for t in study.complete().values() if not t.user_attrs.get("diverged")]
        if not has_reproductions:
            trials = [best for best in [best_trial(study)] if best is not None]
        totals = [epoch for t in trials for epoch in t.user_attrs["fold_epochs"]]
        follow_ups = [epoch for t in trials for epoch in t.user_attrs["follow_up_epochs"]]
        step = self.experiment.protocol.complete.round_epochs_up_to
        return complete_epochs(totals, follow_ups, step)

    # -- doing it ---------------------------------------------------------------------------

    def _resources(self, stage: str) -> dict[str, Any]:
        """On what device a unit of work is done, and by how many processes (on GPUs: how many)."""
        alone = self.device.type != "cpu" or stage in ("complete", BASELINES)
        folds = 1 if alone else min(self.folds_at_once, self.experiment.protocol.split.folds)
        count = self.strategy.size
        return {"device": name_of(self.device, count), "processes": max(count, folds)}

    def _do(self, unit: StageWork, attempt: TrialContext) -> TrialResult:
        self._renew_lease = attempt.renew_lease
        self._about = {
            "doing": unit.stage,
            "method": unit.method,
            "trial_index": attempt.trial_index,
            "since": time.time(),
            "device": name_of(self.device, self.strategy.size),
        }
        self.on_progress(self._about)
        if unit.stage == BASELINES:
            return TrialResult(0.0, {"scores": self._score_baselines(attempt.trial_index)})
        work = {
            "search": self._search,
            "reproductions": self._reproduce,
            "complete": self._complete,
        }[unit.stage]
        method = self.experiment.method(unit.method)
        try:
            return work(method, attempt)
        except Diverged as error:
            attempt.renew_lease()
            remove_checkpoints(self.folder(unit.method, unit.stage, attempt.trial_index))
            return TrialResult(0.0, {"diverged": str(error)})

    def _search(self, method: Method, attempt: TrialContext) -> TrialResult:
        results = self._train_folds(method, "search", attempt)
        return _outcome(results)

    def _reproduce(self, method: Method, attempt: TrialContext) -> TrialResult:
        results = self._train_folds(method, "reproductions", attempt)
        protocol = self.experiment.protocol
        scores, embeddings = self.score(method, "reproductions", attempt.trial_index)
        self.keep_queries(method, "reproductions", attempt.trial_index, scores)
        if protocol.gallery and attempt.trial_index == 0:
            path, normalize = self.gallery_path(method.name), method.normalize_embeddings
            vectors = concatenate(embeddings, normalize)
            draw_gallery(path, self.test_set, vectors, normalize, protocol.gallery)
        return _outcome(results, scores)

    def score(
        self, method: Method, stage: str, trial_index: int
    ) -> tuple[dict[str, Metrics], list[torch.Tensor]]:
        """Measure the kept networks of a trained reproduction on the test classes.

        Args:
            method: of the experiment.
            stage: ``reproductions`` (a network a fold) or ``complete`` (one wide network).
            trial_index: number of the reproduction.

        Returns:
            The metrics by category, and the embeddings of the test images by each network.

        Raises:
            Diverged: an embedding is not finite.
            FileNotFoundError: a network is not there.
        """
        protocol, test = self.experiment.protocol, self.test_set
        networks = self._networks(method, stage, trial_index)

        def score(embeddings: Sequence[torch.Tensor], extra: Sequence[str]) -> dict[str, Metrics]:
            how = (method.normalize_embeddings, extra, test.queries)
            if stage == "complete":
                return {"complete": evaluate_both_geometries(embeddings[0], test.labels, *how)}
            return score_folds(embeddings, test.labels, *how)

        model, training = self.experiment.model_of(method), self.experiment.training_of(method)
        images = self._test_images(model, training)
        return score_networks(networks, images, self.device, score, protocol.final_metrics)

    def embed_test_rows(
        self, method: Method, stage: str, trial_index: int, rows: np.ndarray
    ) -> list[torch.Tensor]:
        """Embed some test images with each kept network of a reproduction.

        Args:
            method: of the experiment.
            stage: ``reproductions`` (a network a fold) or ``complete`` (one wide network).
            trial_index: number of the reproduction.
            rows: which test images.

        Returns:
            Of each network float32 (len(rows), D), raw, on the device.

        Raises:
            FileNotFoundError: a network is not there.
        """
        model, training = self.experiment.model_of(method), self.experiment.training_of(method)
        images = self._test_images(model, training)
        return [
            embed(network.to(self.device), network, images.evaluation_batches(rows))
            for network in self._networks(method, stage, trial_index)
        ]

    def _networks(self, method: Method, stage: str, trial_index: int) -> list[Network]:
        """The kept networks of a reproduction: one a fold, or one wide network."""
        size = self.experiment.training_of(method).embedding_size
        folds = self.experiment.protocol.split.folds
        if stage == "complete":
            size, folds = size * folds, 1
        return [self._network(method, stage, trial_index, fold, size) for fold in range(folds)]

    def keep_queries(
        self, method: Method, stage: str, trial_index: int, scores: dict[str, Metrics]
    ) -> None:
        """Write the scores of every query of a reproduction."""
        write_test_queries(self.out_dir, self.test_set)
        write_query_scores(self.folder(method.name, stage, trial_index), scores)

    def read_queries(self, recorded: Recorded) -> QueryScores | None:
        """The scores of every query that were kept; see :func:`read_query_scores`."""

        def path_of(method: str, category: str, trial_index: int) -> Path:
            stage = "complete" if category == "complete" else "reproductions"
            return self.folder(method, stage, trial_index) / SCORES_FILE

        return read_query_scores(self.out_dir, path_of, recorded)

    def gallery_path(self, method: str) -> Path:
        """Where the worker of the first reproduction leaves the gallery, where one is asked for."""
        return self.folder(method, "reproductions", 0) / GALLERY_FILE

    def _complete(self, method: Method, attempt: TrialContext) -> TrialResult:
        protocol = self.experiment.protocol
        if protocol.selects_on == "test":
            result = self._train_selecting_on_test(method, attempt)
        else:
            result = self._train_on_trainval(method, attempt)
        scores, _ = self.score(method, "complete", attempt.trial_index)
        self.keep_queries(method, "complete", attempt.trial_index, scores)
        value = scores["complete"][PRIMARY]
        return TrialResult(value, {"scores": scores, "epochs": result.epoch})

    def _train_on_trainval(self, method: Method, attempt: TrialContext) -> FoldResult:
        """One network on all trainval classes, for a number of epochs that is known before."""
        params = dict(attempt.params)
        settings = fill_settings(method, self.experiment.protocol, _without_epochs(params))
        if self.experiment.protocol.selects_on == "last":
            has_two = settings.second_phase is not None
            epochs = self.experiment.training_of(method).phase_epochs(has_two)
        else:
            epochs = (params["epochs"], params["follow_up_epochs"])
        size = self._complete_size(method)
        task = self._task(settings, "complete", attempt.trial_index, 0, size, epochs)
        return self._train_complete(method, attempt, task, None)

    def _train_selecting_on_test(self, method: Method, attempt: TrialContext) -> FoldResult:
        """One network on all trainval classes, of which the best epoch on the test classes is kept.

        The only training that is handed test classes, because ``selects_on: test`` asks for what
        papers did.
        """
        settings = fill_settings(method, self.experiment.protocol, attempt.params)
        size = self._complete_size(method)
        task = self._task(settings, "complete", attempt.trial_index, 0, size, None)
        task = dataclasses.replace(task, selects_on="test")
        return self._train_complete(method, attempt, task, self.splits.test)

    def _train_complete(
        self,
        method: Method,
        attempt: TrialContext,
        task: FoldTask,
        selects_on: tuple[int, ...] | None,
    ) -> FoldResult:
        folder = self.fold_folder(method.name, "complete", attempt.trial_index, 0)
        job = FoldJob(task, 0, self.splits.trainval, selects_on, folder)
        (result,) = self._run([job])
        return result

    def _complete_size(self, method: Method) -> int:
        """Width of the embedding of a network on all trainval classes."""
        folds = self.experiment.protocol.split.folds
        return self.experiment.training_of(method).embedding_size * folds

    def _score_baselines(self, trial_index: int) -> dict[str, dict[str, float]]:
        """Untrained networks of the trial's seeds, mean over folds; in trial 0 raw pixels too."""
        protocol = self.experiment.protocol
        folds = [
            score_baselines(
                self.experiment.model,
                protocol.training,
                self._network_seed("reproductions", trial_index, fold),
                self.test_set,
                self.device,
                raw_pixels=trial_index == fold == 0,
                extra_metrics=protocol.final_metrics,
            )
            for fold in range(protocol.split.folds)
        ]
        return {
            name: {
                key: fmean(fold[name][key] for fold in folds if name in fold)
                for key in (*METRICS, *protocol.final_metrics)
            }
            for name in folds[0]
        }

    def _train_folds(self, method: Method, stage: str, attempt: TrialContext) -> list[FoldResult]:
        protocol = self.experiment.protocol
        settings = fill_settings(method, protocol, attempt.params)
        size = self.experiment.training_of(method).embedding_size
        jobs = [
            FoldJob(
                self._task(settings, stage, attempt.trial_index, number, size, None),
                number,
                fold.train,
                fold.validation,
                self.fold_folder(method.name, stage, attempt.trial_index, number),
            )
            for number, fold in enumerate(self.splits.folds)
        ]
        return self._run(jobs)

    def _task(
        self,
        settings: MethodSettings,
        stage: str,
        trial_index: int,
        fold: int,
        embedding_size: int,
        fixed_epochs: tuple[int, int] | None,
    ) -> FoldTask:
        method = self.experiment.method(settings.name)
        return FoldTask(
            settings=settings,
            model=self.experiment.model_of(method),
            training=self.experiment.training_of(method),
            embedding_size=embedding_size,
            network_seed=self._network_seed(stage, trial_index, fold),
            loss_seed=derive(self.experiment.seed, settings.name, stage, trial_index, fold, "loss"),
            fixed_epochs=fixed_epochs,
            keep_model=stage != "search",
        )

    def _network_seed(self, stage: str, trial_index: int, fold: int) -> int:
        """The same for all methods, so that they are compared on common seeds."""
        return derive(self.experiment.seed, stage, trial_index, fold, "network")

    def _run(self, jobs: list[FoldJob]) -> list[FoldResult]:
        def progress(position: dict[str, Any]) -> None:
            self.on_progress({**self._about, **position})

        return self.runner.run(jobs, progress, self._renew_lease)

    @functools.cached_property
    def runner(self) -> FoldExecutor:
        """Who trains."""
        if self.folds_at_once == 1 or self.strategy.size > 1:
            return SerialExecutor(self.dataset, self.device, self.strategy)
        load = functools.partial(load_dataset, self.experiment.dataset)
        return ProcessExecutor(min(self.folds_at_once, len(self.splits.folds)), load, self.device)

    def close(self) -> None:
        """End the processes that train."""
        if "runner" in vars(self):
            self.runner.close()
        elif self.strategy.is_main:
            with contextlib.suppress(RuntimeError):  # the others wait for jobs that never came
                self.strategy.broadcast(None)

    def _network(
        self, method: Method, stage: str, trial_index: int, fold: int, size: int
    ) -> Network:
        path = self.fold_folder(method.name, stage, trial_index, fold) / MODEL
        shape = input_shape(self.dataset, self.experiment.training_of(method))
        return load_network(path, self.experiment.model_of(method), shape, size)

    def folder(self, method: str, stage: str, trial_index: int) -> Path:
        """Where the fold runs of a unit of work live."""
        return self.out_dir / method / stage / f"{trial_index:03d}"

    def fold_folder(self, method: str, stage: str, trial_index: int, fold: int) -> Path:
        """Where one fold run lives."""
        return self.folder(method, stage, trial_index) / f"fold_{fold}"

    @functools.cached_property
    def device(self) -> torch.device:
        """Where this worker trains."""
        return pick_device(self.experiment.device)

    def record_data(self, dataset: ImageSet, device: str | None = None) -> None:
        """Keep with the studies what the report says of the data, so that it needs none later.

        Where others train, the caller says on what ``device``.
        """
        splits = split_dataset(dataset, self.experiment.protocol.split)
        test = dataset.subset(splits.test)
        facts = {
            "name": self.experiment.dataset.name,
            "classes": dataset.num_classes,
            "images": len(dataset),
            "image_shape": list(dataset.image_shape or ()),
            "input_shape": list(input_shape(dataset, self.experiment.protocol.training)),
            "trainval_classes": len(splits.trainval),
            "test_classes": len(splits.test),
            "test_images": len(test),
            "queries": None if test.queries is None else int(test.queries.sum()),
            "lone_images": int((np.bincount(dataset.labels) == 1).sum()),
            "skipped": list(dataset.skipped),
            "folds": [[len(fold.train), len(fold.validation)] for fold in splits.folds],
            "device": device or str(self.device),
        }
        self.baselines().note("data", facts)

    # -- data -------------------------------------------------------------------------------

    @functools.cached_property
    def dataset(self) -> ImageSet:
        """The whole data set."""
        return load_dataset(self.experiment.dataset)

    @functools.cached_property
    def splits(self) -> ClassSplits:
        """The classes of every fold, and of the test half."""
        return split_dataset(self.dataset, self.experiment.protocol.split)

    @functools.cached_property
    def test_set(self) -> ImageSet:
        """The test classes. Only scoring is handed them."""
        return self.dataset.subset(self.splits.test)

    def _test_images(self, model: Model, training: Training) -> Pipeline:
        """The test classes as evaluation with that model and training sees them."""
        seen = preprocessing(model, self.test_set.images.channels)
        key = (seen, training.augmentation.model_dump_json())
        if key not in self._pipelines:
            self._pipelines[key] = build_pipeline(self.test_set, model, training, self.device)
        return self._pipelines[key]


def complete_epochs(totals: list[int], follow_ups: list[int], step: int) -> tuple[int, int]:
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


def _without_epochs(params: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in params.items() if k not in ("epochs", "follow_up_epochs")}


def _outcome(results: list[FoldResult], scores: dict[str, Any] | None = None) -> TrialResult:
    attributes: dict[str, Any] = {
        "fold_values": [result.value for result in results],
        "fold_epochs": [result.epoch for result in results],
        "follow_up_epochs": [result.follow_up_epochs for result in results],
        "epochs_spent": [result.epochs_spent for result in results],
        "curves": [[[row["step"], row[PRIMARY]] for row in result.curve] for result in results],
    }
    if scores is not None:
        attributes["scores"] = scores
    return TrialResult(fmean(result.value for result in results), attributes)


def remove_checkpoints(folder: Path) -> None:
    """Delete the checkpoints below a folder, also half-written ones; records stay."""
    for pattern in ("*.pt", ".*.tmp"):
        for path in folder.rglob(pattern):
            path.unlink(missing_ok=True)


def _reason(error: Exception) -> str:
    """Why a unit of work failed, and what to do where that is known."""
    if isinstance(error, torch.OutOfMemoryError):
        return (
            f"the GPU's memory is too small ({one_line(error)}). With fewer folds at once, fewer "
            "workers on it or a larger GPU the same command goes on; a smaller "
            "protocol.training.batch_size, or autocast, makes another experiment, for another --out"
        )
    return f"{type(error).__name__}: {one_line(error)}"


def _failed(unit: StageWork, failure: dict[str, Any]) -> Exception:
    if failure["usage"]:
        return UsageError(failure["message"])
    return WorkFailed(f"{unit.method or 'baselines'}, {unit.stage}: {failure['message']}")


def study_name(experiment: Experiment, name: str) -> str:
    """Name of a study: several experiments can share one database server's storage."""
    return name if experiment.studies is None else f"{experiment.studies}/{name}"


def check_studies(experiment: Experiment, storage: BaseStorage) -> None:
    """Make sure that a storage that is reached another way than before is still the same.

    Raises:
        UsageError: it does not hold the experiment's studies.
    """
    if not holds_study(storage, study_name(experiment, BASELINES)):
        raise UsageError(
            f"the storage {without_password(experiment.storage or '')} holds no studies of this "
            "experiment; name the one that it was started with."
        )


def storage_url(experiment: Experiment, out_dir: Path) -> str:
    """Where the studies live: the named storage, or ``studies.db`` in the output folder."""
    return experiment.storage or f"sqlite:///{(out_dir / 'studies.db').resolve()}"


def pick_device(name: str) -> torch.device:
    """The device of an experiment; ``auto`` is CUDA where there is one, else the CPU.

    Raises:
        UsageError: the named device is not there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(
            f"device {name!r} is not here; this machine has {torch.cuda.device_count()} CUDA "
            "devices. Write device: auto or cpu."
        )
    return device
