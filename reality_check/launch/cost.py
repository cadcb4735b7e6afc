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
from reality_check.config.schema import Experiment, count_trainings
from reality_check.data import SampleSet
from reality_check.evaluation.scoring import embed, evaluate, evaluate_both_geometries
from reality_check.studies.campaign import MOST_BASELINES
from reality_check.training.fold import FoldTask
from reality_check.training.methods import fill_method, middle_params, middles
from reality_check.training.prepared_experiment import PreparedExperiment
from reality_check.training.trainer import Trainer
from reality_check.utils.errors import every, users_code

#: Seconds that are spent on each thing that is timed, if one step does not take longer.
_TIMING_SECONDS = 0.7
#: Steps before a method is timed, and the most that are.
_WARM_UP, _STEPS = 2, 20
#: Samples whose evaluation is timed; that of more takes longer by the square of their number.
_SAMPLES = 1500
#: Seconds of a training beyond those of its network: checkpoint, curves, the storage's records.
_RECORDS = 0.3
#: Seconds of a report, and of each method's figures and tables in it.
_REPORT, _REPORT_OF_METHOD = 4.0, 2.5


#: Seconds of comparing so many samples in one geometry, with the further metrics or without.
_Comparison = Callable[[int, int], float]


@dataclass(frozen=True)
class CostEstimate:
    """The duration of an experiment with one worker, from the command to the report, in seconds.

    Attributes:
        trainings: number of networks that are trained, over all stages.
        least: if every training stopped as early as its patience lets it.
        most: if every training used all its epochs.
    """

    trainings: int
    least: float
    most: float

    @property
    def seconds(self) -> float:
        """The middle of ``least`` and ``most``."""
        return (self.least + self.most) / 2


@dataclass(frozen=True)
class _Times:
    """Measured seconds of building a network, of an epoch, and of evaluating samples."""

    build: float
    epoch: float
    embed_sample: float
    compare: _Comparison

    def evaluation(self, samples: int, geometries: int = 1, further: int = 0) -> float:
        """Return the seconds of embedding samples and computing their metrics."""
        return samples * self.embed_sample + geometries * self.compare(samples, further)


def estimate_cost(experiment: Experiment, dataset: SampleSet, device: torch.device) -> CostEstimate:
    """Time some steps and evaluations of every method, and add up what the stages do.

    Raises:
        UsageError: the training of a method fails in these steps, or diverges.
    """
    prepared = PreparedExperiment(experiment, dataset)
    started = time.process_time()  # of importing and reading, which the worker does again
    fixed = 2 * started + _REPORT + _REPORT_OF_METHOD * len(experiment.methods)
    comparison = functools.cache(functools.partial(_comparison, prepared, device))
    with _single_thread():
        times = every(
            functools.partial(_measure, prepared, method, device, comparison)
            for method in experiment.methods
        )
    # Of baselines: trunk and embedder of every fold, and once the raw input and its components.
    networks = 1 + min(prepared.protocol.runs, MOST_BASELINES) * prepared.protocol.split.folds
    fixed += networks * (times[0].build + 2 * times[0].evaluation(len(prepared.test_set), 1, 1))
    least, most = (
        fixed
        + sum(
            _seconds_of(prepared, method, measured, longest)
            for method, measured in zip(experiment.methods, times, strict=True)
        )
        for longest in (False, True)
    )
    return CostEstimate(count_trainings(experiment), least, most)


def _seconds_of(
    prepared: PreparedExperiment, method: Method, times: _Times, longest: bool
) -> float:
    """Return the seconds of all stages of a method, with the most or the fewest epochs."""
    protocol, experiment = prepared.protocol, prepared.experiment
    training, folds = experiment.training_of(method), protocol.split.folds
    epochs = training.max_epochs if longest else _fewest_epochs(experiment, method)
    labels = prepared.dataset.labels
    validation = np.mean([np.isin(labels, f.validation).sum() for f in prepared.splits.folds])
    test = len(prepared.test_set)
    evaluations = 2 + epochs / training.evaluate_every
    overhead = times.build + _RECORDS
    fold = overhead + epochs * times.epoch + evaluations * times.evaluation(int(validation))
    each = {
        Stage.SEARCH: folds * fold,
        Stage.REPRODUCTIONS: folds * (fold + times.evaluation(test, 2, 1))
        + 2 * times.compare(test, 1),
        Stage.FINAL: overhead + epochs * times.epoch + times.evaluation(test, 2, 1),
    }
    counts = dict.fromkeys((Stage.REPRODUCTIONS, Stage.FINAL), protocol.runs)
    counts[Stage.SEARCH] = experiment.trials_of(method) * protocol.search.repeats
    return float(sum(counts[stage] * each[stage] for stage in protocol.stages))


def _fewest_epochs(experiment: Experiment, method: Method) -> int:
    """Return the epochs of a training whose first evaluation of each phase is the best."""
    training = experiment.training_of(method)
    if training.patience is None or experiment.protocol.selects_on == "last":
        return training.max_epochs
    two, step = experiment.two_phases(method), training.evaluate_every
    stop = step * (1 + training.patience // step + 1)
    lengths = [schedule.length for schedule in method.schedules.values()]
    before = max(lengths, default=0) // step * step
    return min(training.max_epochs, int(before) + (1 + two) * stop)


# -- measuring ------------------------------------------------------------------------------------


def _measure(
    prepared: PreparedExperiment,
    method: Method,
    device: torch.device,
    comparison: Callable[[int], _Comparison],
) -> _Times:
    failed = (
        f"method {method.name!r}: its training fails in the first {_WARM_UP + _STEPS} steps, with "
        "searched values at the middle of their ranges"
    )
    with users_code(failed):
        trainer = _trainer(prepared, method, device)
        seconds = _clock(device)
        started = seconds()
        trainer.build()  # and all that follows writes nothing
        build = seconds() - started
        images = trainer.validation_images
        rows = np.arange(min(len(images), 128))
        with allow_tf32(device, trainer.task.training.tf32):
            trainer.train_steps(_WARM_UP)
            step = _seconds_each(lambda: trainer.train_steps(1), seconds)
            embed_rows = _seconds_each(
                lambda: embed(trainer.network, trainer.network, images.evaluation_batches(rows)),
                seconds,
            )
    compare = comparison(trainer.task.embedding_size)
    return _Times(build, step * trainer.epoch_length, embed_rows / len(rows), compare)


def _trainer(prepared: PreparedExperiment, method: Method, device: torch.device) -> Trainer:
    """Return the trainer of the first fold, as a search would create it."""
    protocol, training = prepared.protocol, prepared.experiment.training_of(method)
    model = prepared.experiment.model_of(method)
    model = model.filled(middles(model.searched()))
    fold = prepared.splits.folds[0]
    filled = fill_method(method, protocol, middle_params(method, protocol))
    task = FoldTask(filled, model, training, training.embedding_size, 0, 0)
    searched = protocol.selects_on == "validation"
    train = prepared.dataset.subset(fold.train if searched else prepared.splits.trainval)
    return Trainer(task, train, prepared.dataset.subset(fold.validation), Path("nowhere"), device)


def _comparison(prepared: PreparedExperiment, device: torch.device, size: int) -> _Comparison:
    """Return a function of a number of samples, and of whether further metrics are computed.

    It returns the seconds of computing the metrics in one geometry.
    """
    protocol = prepared.protocol
    extra = names_on("test", protocol.final_metrics)
    chosen_by = [] if protocol.selects_by in METRICS else [protocol.selects_by]
    count = min(_SAMPLES, len(prepared.test_set))
    labels = np.arange(count) // 4
    embeddings = torch.randn(count, size, generator=torch.Generator().manual_seed(0)).to(device)
    seconds = _clock(device)
    plain = _seconds_each(lambda: evaluate(embeddings, labels, True, chosen_by), seconds)
    further = plain
    if set(extra) - set(METRICS):
        started = seconds()
        evaluate_both_geometries(embeddings, labels, True, extra)
        further = (seconds() - started) / 2
    return lambda samples, more: (further if more else plain) * (samples / count) ** 2


def _clock(device: torch.device) -> Callable[[], float]:
    """Return a clock: CPU time on a CPU, which other processes do not affect; else wall time."""
    return time.process_time if device.type == "cpu" else time.perf_counter


@contextlib.contextmanager
def _single_thread() -> Iterator[None]:
    """Compute with one thread meanwhile, as workers do."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _seconds_each(do: Callable[[], object], seconds: Callable[[], float]) -> float:
    """Return the mean seconds of a call, over as many calls as fit into a moment."""
    started, calls = seconds(), 0
    while calls < _STEPS and (calls == 0 or seconds() - started < _TIMING_SECONDS):
        do()
        calls += 1
    return (seconds() - started) / calls
