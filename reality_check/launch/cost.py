"""Estimates how long an experiment takes on this machine, from a few steps of each method."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pml_extensions.functional import allow_tf32
from reality_check.config.method import Method
from reality_check.config.metrics import METRICS, Stage, names_on
from reality_check.config.schema import Experiment
from reality_check.data import SampleSet
from reality_check.evaluation.scoring import embed, evaluate, evaluate_both_geometries
from reality_check.studies.plan import BASELINES, count_trainings, make_plan
from reality_check.training.fold import FoldTask
from reality_check.training.methods import fill_method, middle_params, middles
from reality_check.training.prepared_experiment import PreparedExperiment
from reality_check.training.trainer import Trainer
from reality_check.utils.errors import every, users_code

#: Seconds that each measurement takes, if a single call does not take longer.
_TIMING_SECONDS = 0.7
#: Number of training steps before the timing, and the maximum number that are timed.
_WARM_UP, _MAX_STEPS = 2, 20
#: Maximum number of samples whose comparison is timed; its time grows with their square.
_MAX_SAMPLES = 1500
#: Seconds that checkpoints, curves and records in the storage add to each training.
_RECORD_SECONDS = 0.3
#: Seconds for a report, and for each method's figures and tables in it.
_REPORT_SECONDS, _METHOD_REPORT_SECONDS = 4.0, 2.5


#: A function that returns the seconds of computing metrics in one geometry. Its arguments are the
#: number of samples, and whether the final metrics are computed too.
_Comparison = Callable[[int, bool], float]


@dataclass(frozen=True)
class CostEstimate:
    """The duration of an experiment with one worker, from the command to the report, in seconds.

    Attributes:
        trainings: the number of networks that are trained, over all stages.
        kept_bytes: the size of the weights that are kept until trials are scored.
        least: the duration if every training stopped as early as its patience allows.
        most: the duration if every training used all its epochs.
    """

    trainings: int
    kept_bytes: int
    least: float
    most: float

    @property
    def seconds(self) -> float:
        """The middle of ``least`` and ``most``."""
        return (self.least + self.most) / 2


@dataclass(frozen=True)
class _Times:
    """The size of a network, and the measured seconds of building, training and evaluating it."""

    network_bytes: int
    build: float
    epoch: float
    embed_sample: float
    compare: _Comparison

    def evaluation(self, samples: int, geometries: int = 1, final: bool = False) -> float:
        """Return the seconds of embedding samples and computing their (``final``) metrics."""
        return samples * self.embed_sample + geometries * self.compare(samples, final)


def estimate_cost(experiment: Experiment, dataset: SampleSet, device: torch.device) -> CostEstimate:
    """Estimate the duration of an experiment from some steps and evaluations of every method.

    Raises:
        UsageError: the training of a method fails or diverges in these steps.
    """
    prepared = PreparedExperiment(experiment, dataset)
    # ``fixed`` is the time that does not depend on the epochs of trainings.
    startup = time.process_time()  # importing and reading, which the worker repeats
    fixed = 2 * startup + _REPORT_SECONDS + _METHOD_REPORT_SECONDS * len(experiment.methods)
    # Measured once for each size of embeddings, since methods may share it.
    measure_comparison = functools.cache(functools.partial(_measure_comparison, prepared, device))
    with _single_thread():
        times = every(
            functools.partial(_measure, prepared, method, device, measure_comparison)
            for method in experiment.methods
        )
    # Two evaluations for each network of a baseline, of the trunk's features and of the embedder's,
    # and two more, once, of the raw input and its principal components. Each takes as long as those
    # of the first method.
    (baselines,) = (study for study in make_plan(experiment) if study.key == BASELINES)
    networks = 1 + baselines.num_trials * prepared.protocol.split.folds
    evaluation = times[0].evaluation(len(prepared.test_set), final=True)
    fixed += networks * (times[0].build + 2 * evaluation)
    least, most = (
        fixed
        + sum(
            _seconds_of(prepared, method, measured, longest)
            for method, measured in zip(experiment.methods, times, strict=True)
        )
        for longest in (False, True)
    )
    kept = sum(
        _kept_bytes(experiment, method, measured.network_bytes)
        for method, measured in zip(experiment.methods, times, strict=True)
    )
    return CostEstimate(count_trainings(experiment), kept, least, most)


def _seconds_of(
    prepared: PreparedExperiment, method: Method, times: _Times, longest: bool
) -> float:
    """Return the seconds of all stages of a method, with the fewest epochs or (``longest``) all."""
    protocol, experiment = prepared.protocol, prepared.experiment
    training, folds = experiment.training_of(method), protocol.split.folds
    epochs = training.max_epochs if longest else _fewest_epochs(experiment, method)
    labels = prepared.dataset.labels
    validation_size = np.mean([np.isin(labels, f.validation).sum() for f in prepared.splits.folds])
    test_size = len(prepared.test_set)
    evaluations = 2 + epochs / training.evaluate_every  # two before the training
    training_seconds = times.build + _RECORD_SECONDS + epochs * times.epoch
    fold_seconds = training_seconds + evaluations * times.evaluation(int(validation_size))
    test_seconds = times.evaluation(test_size, geometries=2, final=True)
    # The concatenated embeddings of all folds, in two geometries, with the final metrics.
    ensemble_seconds = 2 * times.compare(test_size, True)
    test_seconds_of = {
        Stage.REPRODUCTIONS: folds * test_seconds + ensemble_seconds,
        Stage.FINAL: test_seconds,
    }
    total = 0.0
    for study in make_plan(experiment):
        if study.key.method == method.name:
            each = training_seconds if study.key.stage is Stage.FINAL else fold_seconds
            trial_seconds = study.networks * each + test_seconds_of.get(study.key.stage, 0.0)
            total += study.num_trials * trial_seconds
    return total


def _kept_bytes(experiment: Experiment, method: Method, network_bytes: int) -> int:
    """Return how many bytes the networks of a search take at most until they are scored."""
    if experiment.protocol.search.retrain != "none":
        return 0
    networks = []
    for study in make_plan(experiment):
        if study.key.method == method.name and study.folds is not None:
            networks.append(study.num_trials * (max(study.folds) + 1))
    return max(networks) * network_bytes


def _fewest_epochs(experiment: Experiment, method: Method) -> int:
    """Return the epochs of a training whose first evaluation of each phase is the best."""
    training = experiment.training_of(method)
    if training.patience is None or experiment.protocol.selects_on == "last":
        return training.max_epochs
    num_phases, step = 1 + experiment.two_phases(method), training.evaluate_every
    # The first evaluation, those within the patience, and the one that exceeds it.
    phase_epochs = step * (1 + training.patience // step + 1)
    # Evaluations before the last change of a schedule do not count.
    lengths = [schedule.length for schedule in method.schedules.values()]
    scheduled_epochs = max(lengths, default=0) // step * step
    return min(training.max_epochs, int(scheduled_epochs) + num_phases * phase_epochs)


# -- measuring ------------------------------------------------------------------------------------


def _measure(
    prepared: PreparedExperiment,
    method: Method,
    device: torch.device,
    measure_comparison: Callable[[int], _Comparison],
) -> _Times:
    """Measure the times of a method on the first fold.

    ``measure_comparison`` takes the size of the embeddings.
    """
    failed = (
        f"method {method.name!r}: its training fails in the first {_WARM_UP + _MAX_STEPS} steps, "
        "with searched values at the middle of their ranges"
    )
    with users_code(failed):
        trainer = _trainer(prepared, method, device)
        clock = _clock_for(device)
        started = clock()
        trainer.build()  # this and the steps below write no files
        build_seconds = clock() - started
        images = trainer.validation_images
        indices = np.arange(min(len(images), 128))
        with allow_tf32(device, trainer.task.training.tf32):
            trainer.train_steps(_WARM_UP)
            step_seconds = _mean_seconds(lambda: trainer.train_steps(1), clock)
            # The network is both what embeds a batch and what is put in evaluation mode.
            embed_seconds = _mean_seconds(
                lambda: embed(trainer.network, trainer.network, images.evaluation_batches(indices)),
                clock,
            )
    return _Times(
        sum(v.nbytes for v in trainer.network.kept_state().values() if torch.is_tensor(v)),
        build_seconds,
        step_seconds * trainer.epoch_length,
        embed_seconds / len(indices),
        measure_comparison(trainer.task.embedding_size),
    )


def _trainer(prepared: PreparedExperiment, method: Method, device: torch.device) -> Trainer:
    """Return the trainer that a search would create for the first fold."""
    protocol, training = prepared.protocol, prepared.experiment.training_of(method)
    model = prepared.experiment.model_of(method)
    model = model.filled(middles(model.searched()))  # searched values at the middle of their ranges
    fold = prepared.splits.folds[0]
    filled = fill_method(method, protocol, middle_params(method, protocol))
    training = training.filled(filled.params)
    task = FoldTask(filled, model, training, training.embedding_size, network_seed=0, loss_seed=0)
    has_validation = protocol.selects_on == "validation"
    train = prepared.dataset.subset(fold.train if has_validation else prepared.splits.trainval)
    return Trainer(task, train, prepared.dataset.subset(fold.validation), Path("nowhere"), device)


def _measure_comparison(
    prepared: PreparedExperiment, device: torch.device, size: int
) -> _Comparison:
    """Measure the computation of metrics for embeddings of a size."""
    protocol = prepared.protocol
    extra = names_on("test", protocol.final_metrics)
    selection_metrics = [] if protocol.selects_by in METRICS else [protocol.selects_by]
    count = min(_MAX_SAMPLES, len(prepared.test_set))
    labels = np.arange(count) // 4  # four samples per class
    embeddings = torch.randn(count, size, generator=torch.Generator().manual_seed(0)).to(device)
    clock = _clock_for(device)
    normalize = True
    plain_seconds = _mean_seconds(
        lambda: evaluate(embeddings, labels, normalize, selection_metrics), clock
    )
    final_seconds = plain_seconds
    if set(extra) - set(METRICS):  # metrics that take more time than those that are always measured
        started = clock()
        evaluate_both_geometries(embeddings, labels, normalize, extra)
        final_seconds = (clock() - started) / 2
    # Every sample is compared with every other one.
    return lambda samples, final: (
        (final_seconds if final else plain_seconds) * (samples / count) ** 2
    )


def _clock_for(device: torch.device) -> Callable[[], float]:
    """Return a clock: CPU time on a CPU, since other processes do not affect it, else wall time."""
    return time.process_time if device.type == "cpu" else time.perf_counter


@contextlib.contextmanager
def _single_thread() -> Iterator[None]:
    """Use one thread inside the context, as workers do."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _mean_seconds(function: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return the mean seconds of a call, over as many calls as fit into the time limit."""
    started, calls = clock(), 0
    while calls < _MAX_STEPS and (calls == 0 or clock() - started < _TIMING_SECONDS):
        function()
        calls += 1
    return (clock() - started) / calls
