"""Scores of trained and of untrained networks on the test classes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import torch

from pml_extensions.evaluation import average_distance_to_proxy
from pml_extensions.functional import allow_tf32
from reality_check.config.metrics import Stage, names_on
from reality_check.config.model import Model
from reality_check.config.training import Training
from reality_check.data.augmentation.preprocessing import Preprocessing
from reality_check.data.pairs import Pairs, read_pairs
from reality_check.data.sample_set import ImageSet, SampleSet
from reality_check.data.tensors import InputShape
from reality_check.evaluation.baselines import score_baselines
from reality_check.evaluation.categories import (
    embed_images,
    load_network,
    renamed,
    score_folds,
    score_networks,
)
from reality_check.evaluation.query_scores import write_query_scores, write_test_queries
from reality_check.evaluation.scoring import Metrics, evaluate_both_geometries
from reality_check.launch.full_gpu import once_more_if_full
from reality_check.models import preprocessing
from reality_check.models.network import Network
from reality_check.models.pipeline import Pipeline, build_pipeline
from reality_check.studies.output_folder import fold_folder, query_scores_path
from reality_check.training.fold_checkpoints import MODEL, PROXIES
from reality_check.training.prepared_experiment import PreparedExperiment, PreparedMethod
from reality_check.utils import checkpoints
from reality_check.utils.errors import UsageError
from reality_check.utils.seeds import derive

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _retry_if_full(
    method: Callable[Concatenate[Scorer, Arguments], Result],
) -> Callable[Concatenate[Scorer, Arguments], Result]:
    """Decorate a method of the scorer so that :func:`once_more_if_full` calls it."""

    @functools.wraps(method)
    def wrapper(scorer: Scorer, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        work = functools.partial(method, scorer, *args, **kwargs)
        return once_more_if_full(scorer._prepared.device, work)

    return wrapper


class Scorer:
    """Scores networks on the test classes, both trained networks and untrained baselines."""

    def __init__(self, prepared: PreparedExperiment, out_dir: Path) -> None:
        self._prepared = prepared
        self._out_dir = out_dir
        self._pipelines: dict[tuple[Preprocessing | None, str, bool], Pipeline] = {}

    @_retry_if_full
    def score(
        self, method: PreparedMethod, stage: Stage, trial_index: int
    ) -> tuple[dict[str, Metrics], list[torch.Tensor]]:
        """Score the networks of a trained reproduction on the test classes.

        Args:
            method: the method of the reproduction.
            stage: that of its networks: reproductions or search (one network per fold), or final
                (one wide network).
            trial_index: the number of the trial that trained them.

        Returns:
            The metrics by category, and each network's embeddings of the test images.

        Raises:
            Diverged: an embedding is not finite.
            FileNotFoundError: a network is missing.
        """
        test, final_metrics = self._prepared.test_set, self._prepared.protocol.final_metrics
        normalize = method.method.normalize_embeddings

        def score_embeddings(
            embeddings: Sequence[torch.Tensor],
            extra_metrics: Sequence[str],
            labels: np.ndarray = test.labels,
            queries: np.ndarray | None = test.queries,
        ) -> dict[str, Metrics]:
            pairs = self._pairs if labels is test.labels else {}  # the pairs are of test images
            scoring_args = (labels, normalize, extra_metrics, queries, pairs)
            if stage is Stage.FINAL:
                return {"complete": evaluate_both_geometries(embeddings[0], *scoring_args)}
            return score_folds(embeddings, *scoring_args)

        networks = self._networks(method, stage, trial_index)
        images = self._evaluation_images(method.model, method.training, test)
        device = self._prepared.device
        with allow_tf32(device, method.training.tf32):
            scores, embeddings = score_networks(
                networks, images, device, score_embeddings, final_metrics
            )
            if names := names_on("trainval", final_metrics):
                trainval = self._prepared.dataset.subset(self._prepared.splits.trainval)
                images = self._evaluation_images(method.model, method.training, trainval)
                trainval_embeddings = [
                    embed_images(network, images, device) for network in networks
                ]
                trainval_scores = score_embeddings(
                    trainval_embeddings, names, trainval.labels, queries=None
                )
                for category, metrics in trainval_scores.items():
                    scores[category].update(renamed(metrics, "trainval_", names))
            if names_on("training", final_metrics):
                distances = self._distances_to_proxies(method, stage, trial_index, networks)
                next(iter(scores.values())).update(distances)  # only in the first category
        return scores, embeddings

    @functools.cached_property
    def _pairs(self) -> dict[str, Pairs]:
        return read_pairs(self._prepared.protocol.pairs, self._prepared.test_set)

    def _distances_to_proxies(
        self, method: PreparedMethod, stage: Stage, trial_index: int, networks: Sequence[Network]
    ) -> dict[str, float]:
        """Return AvgDTP, the average distance of training images to the proxies of their classes.

        It is the mean over networks, each on its own training classes. The result is empty if the
        loss has no proxy per class.
        """
        splits, device, distances = self._prepared.splits, self._prepared.device, []
        for fold, network in enumerate(networks):
            folder = fold_folder(self._out_dir, method.name, stage, trial_index, fold)
            state = checkpoints.load(folder / PROXIES)
            if state is None:
                raise UsageError(
                    f"{folder} has no {PROXIES}, because an earlier version trained this network, "
                    "so there is no AvgDTP of it; leave that out, or run into a new folder."
                )
            classes = splits.trainval if stage is Stage.FINAL else splits.folds[fold].train
            shape = len(classes), method.embedding_size(stage)
            # The loss may have other proxies too, such as several per class.
            proxies = [value for value in state.values() if value.shape == shape]
            if not proxies:
                return {}
            samples = self._prepared.dataset.subset(classes)
            images = build_pipeline(samples, method.model, method.training.augmentation, device)
            x = embed_images(network, images, device)
            distances.append(average_distance_to_proxy(x, samples.labels, proxies[-1]))
        return {"AvgDTP": fmean(distances)}

    def keep_queries(
        self, method: PreparedMethod, stage: Stage, trial_index: int, scores: dict[str, Metrics]
    ) -> None:
        """Write the scores of every query of a reproduction."""
        write_test_queries(self._out_dir, self._prepared.test_set)
        path = query_scores_path(self._out_dir, method.name, stage, trial_index)
        write_query_scores(path, scores)

    @_retry_if_full
    def score_baselines(self, trial_index: int) -> dict[str, dict[str, float]]:
        """Score untrained networks as means over folds; trial 0 also scores the raw input."""
        prepared, protocol = self._prepared, self._prepared.protocol
        # With these images, the raw input is scored too.
        trainval = None if trial_index else prepared.dataset.subset(prepared.splits.trainval)
        model, training = prepared.experiment.model, protocol.training
        test = self._evaluation_images(model, training, prepared.test_set)
        seed = prepared.experiment.seed
        with allow_tf32(prepared.device, training.tf32):
            folds = [
                score_baselines(
                    model,
                    training,
                    network_seed(seed, [Stage.REPRODUCTIONS.value, trial_index], fold),
                    prepared.test_set,
                    prepared.device,
                    trainval=None if fold else trainval,
                    extra_metrics=protocol.final_metrics,
                    images=test,
                )
                for fold in range(protocol.split.folds)
            ]
        # The raw input is scored only in the first fold.
        return {
            name: {
                key: fmean(fold[name][key] for fold in folds if name in fold)
                for key in folds[0][name]
            }
            for name in folds[0]
        }

    def _networks(self, method: PreparedMethod, stage: Stage, trial_index: int) -> list[Network]:
        """Load the networks of a reproduction: one for each fold, or a single wide network."""
        shape = self._prepared.input_shape(method.name)
        return [
            load_kept(self._out_dir, method, (stage, trial_index, fold), shape)
            for fold in range(method.networks(stage))
        ]

    def _evaluation_images(self, model: Model, training: Training, samples: SampleSet) -> Pipeline:
        """Return the evaluation pipeline of some images for a model and a training; cached."""
        steps = None
        if isinstance(samples, ImageSet):
            steps = preprocessing(model, samples.images.channels)
        augmentation = training.augmentation
        # The samples are those of the test classes or of the trainval classes.
        key = (steps, augmentation.model_dump_json(), samples is self._prepared.test_set)
        if key not in self._pipelines:
            device = self._prepared.device
            self._pipelines[key] = build_pipeline(samples, model, augmentation, device)
        return self._pipelines[key]


def load_kept(
    out_dir: Path, method: PreparedMethod, which: tuple[Stage, int, int], shape: InputShape
) -> Network:
    """Load a network of a trial.

    Args:
        out_dir: the output folder.
        method: the method that trained the network.
        which: the stage, the number of the trial, and the fold.
        shape: the shape of a sample.
    """
    stage, trial_index, fold = which
    folder = fold_folder(out_dir, method.name, stage, trial_index, fold)
    return load_network(folder / MODEL, method.model, shape, method.embedding_size(stage))


def network_seed(seed: int, seed_key: Sequence[Any], fold: int) -> int:
    """Return the seed of a network.

    All methods of an experiment get the same seeds of networks, since they have the same ``seed``;
    controls have other seeds.

    Args:
        seed: the seed of the method.
        seed_key: what identifies the trial, see :meth:`StudyState.seed_key`.
        fold: the number of the fold.
    """
    return derive(seed, *seed_key, fold, "network")
