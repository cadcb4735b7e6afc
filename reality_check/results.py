"""Plain data that the report is made of: what was measured, by which method, in which run.

:func:`reality_check.report.collect.collect` fills these classes from the storage; the report only
reads them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from reality_check.config.described import Description
from reality_check.config.metrics import (
    METRICS,
    PRIMARY,
    STAGES,
    Metric,
    metric_of,
    stage_of,
)

if TYPE_CHECKING:
    from reality_check.config.published_scores import PublishedResults

State = Literal["complete", "running", "waiting", "failed"]


class Record(TypedDict):
    """A :class:`ResultRow` as a dict, as :meth:`ExperimentResults.records` returns them."""

    experiment: str
    method: str
    category: str
    search: int | None
    trial: int | None
    reproduction: int
    metric: str
    value: float


@dataclass(frozen=True)
class ResultRow:
    """One line of ``results.csv``: one metric of one reproduction in one category.

    ``search`` is the number of the search whose winner was trained again, and ``trial`` is the
    number of this winner. Both are ``None`` for baselines and where nothing was searched.
    ``reproduction`` counts over all searches of the method.

    ``value`` is a fraction (0..1), except for ``separability``. ``metric`` is a key of
    :data:`reality_check.config.metrics.METRICS` or one of the protocol's ``final_metrics``; a name
    with the suffix ``_raw`` or ``_normalized`` is the same metric on the geometry that the method
    does not use.
    """

    experiment: str
    method: str
    category: str
    reproduction: int
    metric: str
    value: float
    search: int | None = None
    trial: int | None = None

    def record(self) -> Record:
        """Return the line as a dict, in the order of the columns."""
        return Record(
            experiment=self.experiment,
            method=self.method,
            category=self.category,
            search=self.search,
            trial=self.trial,
            reproduction=int(self.reproduction),
            metric=self.metric,
            value=float(self.value),
        )


@dataclass(frozen=True)
class TrialRecord:
    """An attempt at a trial of a stage: a trial of a search, a reproduction, a final run, ...

    In a report, it is the complete attempt at the trial, or else the latest.

    Attributes:
        trial_index: the 0-based number of the trial within its study: within the search, or among
            the reproductions; ``None`` if another worker took the trial that was to be claimed.
        state: ``"complete"``, ``"running"``, ``"waiting"`` or ``"failed"``.
        value: the maximised value, for a trial with folds the mean over them of the best
            validation score; ``None`` unless the trial is complete.
        params: the hyper-parameters that were drawn, by dotted name; in a report also those that
            were given.
        number: the number of the attempt within the study, counted from 0.
        trial_id: Optuna's key of the attempt.
        started: the time when the worker began it.
        ended: the time when it ended.
        worker: the process that runs it; ``None`` before it has signed the trial.
        device: the device on which it runs.
        gpu: the kind of GPU, with its driver and libraries.
        trained_with: GPU settings, those that could not be used, and how batches were divided.
        gpu_memory: the most bytes of GPU memory that a fold's training had in use.
        processes: the number of processes that train it at a time.
        seconds: its duration, or that up to its last heartbeat.
        duplicate: whether another attempt has its index.
        stopped: whether its worker was asked to stop.
        error: the exception that ended it.
        diverged: why the training diverged; ``None`` if it did not.
        fold_values: the validation score of each fold, for a trial with folds.
        fold_epochs: the best epoch of each fold.
        follow_up_epochs: how many of these epochs were in the second phase, for each fold.
        epochs_spent: the number of all epochs trained, for each fold.
        cut_short: the phases whose best epoch was the last one allowed, for each fold.
        curves: pairs of epoch and validation score of every evaluation, for each fold.
        scores: the metrics by category, for a reproduction.
        epochs: the number of epochs trained, for a final run.
        made_of: the results of other studies, and the values that may grow, that it depends on.
        superseded: whether ``made_of`` has changed since then, so that it no longer counts.
        attempts: in a report, how often the trial was started (above 1 when a worker was lost).
        stopped_after: in a report, the number of folds after which a race stopped the trial, which
            then has no value; ``None`` if it did not.
        search: in a report, the number of the search; for a reproduction, of the search whose trial
            it trains again.
        retrained: in a report, for a reproduction, the number of the trial that it trains again;
            ``None`` for other stages, and if the search has no usable trial.
    """

    trial_index: int | None
    state: State
    value: float | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    number: int = 0
    trial_id: int = field(default=0, compare=False)
    started: datetime | None = None
    ended: datetime | None = None
    worker: Mapping[str, Any] | None = field(default=None, compare=False)
    device: str | None = None
    gpu: str | None = None
    trained_with: str | None = None
    gpu_memory: int | None = None
    processes: int = 1
    seconds: float | None = None
    duplicate: bool = False
    stopped: bool = False
    error: str | None = None
    diverged: str | None = None
    fold_values: Sequence[float] = ()
    fold_epochs: Sequence[int] = ()
    follow_up_epochs: Sequence[int] = ()
    epochs_spent: Sequence[int] = ()
    cut_short: Sequence[Sequence[int]] = ()
    curves: Sequence[Sequence[tuple[int, float]]] = ()
    scores: Mapping[str, Mapping[str, float]] | None = None
    epochs: int | None = None
    made_of: Any = None
    superseded: bool = False
    attempts: int = 1
    stopped_after: int | None = None
    search: int = 0
    retrained: int | None = None

    @property
    def holds_its_index(self) -> bool:
        """Whether the attempt prevents others at the same trial."""
        return self.state != "failed" and not self.superseded

    @property
    def was_abandoned(self) -> bool:
        """Whether the attempt failed without a recorded reason, so that its worker was lost."""
        has_reason = self.error is not None or self.duplicate or self.stopped
        return self.state == "failed" and not has_reason

    @property
    def hours(self) -> float:
        """Hours of all its processes or GPUs, up to the last heartbeat if it has not ended."""
        return (self.seconds or 0.0) * self.processes / 3600

    @property
    def device_kind(self) -> str:
        """The kind of device, such as ``cuda`` or ``cpu``; ``unknown`` if it is not recorded."""
        return (self.device or "unknown").partition(":")[0]


def ranking_scores(trials: Sequence[TrialRecord]) -> list[float]:
    """Return the validation scores of complete trials by which they are ranked.

    A trial that a race has stopped ranks just below all that finished.
    """
    finished = (t.value for t in trials if t.value is not None and t.diverged is None)
    below = math.nextafter(min(finished, default=0.0), -math.inf)
    return [below if t.stopped_after is not None else t.value or 0.0 for t in trials]


@dataclass(frozen=True)
class Deviation:
    """One thing that differs from the named protocol or between methods.

    Attributes:
        topic: a word or two, e.g. ``"search trials"``.
        template: the text, in which ``{methods}`` is replaced by the names of the methods.
        serious: whether it makes the comparison itself unfair (unequal budgets, missing runs).
        methods: the methods that the deviation concerns.
    """

    topic: str
    template: str
    serious: bool = False
    methods: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """One sentence a reviewer understands, e.g. ``"6 trials per method; mlrc has 50."``."""
        return self.template.replace("{methods}", ", ".join(self.methods))


@dataclass(frozen=True)
class Importance:
    """How much each hyper-parameter of a search mattered.

    Attributes:
        shares: for each hyper-parameter, the fraction (0..1) of the variance of the value that it
            explains alone, largest first.
        noise: the largest share after up to 19 random shuffles of the values among the trials. By
            chance alone, a share exceeds it in one search of twenty.
        trials: number of trials that the shares were estimated from.
    """

    shares: dict[str, float]
    noise: float
    trials: int


@dataclass(frozen=True)
class Cost:
    """The hours of one stage of one method on one kind of device, including lost attempts.

    Attributes:
        method: the name of the method; ``""`` for the baselines, which belong to no method.
        stage: one of :data:`STAGES`, or ``"baselines"``.
        device: ``"cuda"``, ``"cpu"``, ..., or ``"unknown"``.
        attempts: number of trials and runs, including those that failed or lost their worker.
        hours: process hours; on GPUs, GPU hours.
    """

    method: str
    stage: str
    device: str
    attempts: int
    hours: float


@dataclass(frozen=True)
class ColumnValue:
    """A cell of a user-defined column: what its function returned for one method.

    Attributes:
        name: the name of the column in the YAML file.
        description: the title, unit and direction of the column.
        value: ``None`` for an empty cell.
        problem: why the function has no value; empty where it returned one, or ``None``.
        code: the fingerprint of the function, or the version of its package.
    """

    name: str
    description: Description
    value: float | None = None
    problem: str = ""
    code: str = ""


@dataclass(frozen=True)
class MethodResults:
    """Everything recorded about one method."""

    name: str
    loss: str
    search: tuple[TrialRecord, ...] = ()
    reproductions: tuple[TrialRecord, ...] = ()
    final: tuple[TrialRecord, ...] = ()
    #: (search, trial_index) of each trial that is retrained, once all searches are complete.
    retrained: tuple[tuple[int, int], ...] = ()
    searched: tuple[str, ...] = ()  # names of the searched hyper-parameters
    logarithmic: tuple[str, ...] = ()  # searched hyper-parameters on a logarithmic scale
    importance: Importance | None = None  # None where there are too few trials
    control_of: str | None = None  # the method that this is a second copy of
    has_own_draws: bool = False  # whether its trials share no draws with other methods
    normalize_embeddings: bool = True
    gallery: Path | None = None  # a PNG of test images and their neighbours, if requested
    origin: str = ""  # the output folder of the method, in a report of several folders
    #: Number of trainable parameters of one network; parts without a learning rate do not count.
    trained_parameters: int | None = None
    network_parameters: int | None = None  # number of all parameters of that network
    columns: tuple[ColumnValue, ...] = ()  # user-defined columns


@dataclass(frozen=True)
class MethodRecords:
    """The records of one method, from which a user-defined column of the report is computed.

    Attributes:
        method: the trials, reproductions and final trainings of the method, with their validation
            scores, parameters and seconds.
        rows: the method's lines of ``results.csv``: the test scores of its reproductions.
        costs: the hours of each of its stages, by kind of device.
        out_dir: the output folder, from which :func:`reality_check.load_network` loads networks.
    """

    method: MethodResults
    rows: tuple[ResultRow, ...]
    costs: tuple[Cost, ...]
    out_dir: Path


@dataclass(frozen=True)
class QueryScores:
    """The scores of every test query that has a reference of its class.

    Attributes:
        labels: int64 (Q,), the class of each query, 0..C-1.
        class_names: the names of the C test classes.
        load: a function of method, category and reproduction. It returns the metrics of
            :data:`reality_check.config.metrics.METRICS` for each query, as float64 (3, Q), with 0
            where the run diverged; ``None`` if they were not saved.
    """

    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    load: Callable[[str, str, int], NDArray[np.float64] | None]


@dataclass(frozen=True)
class Folder:
    """One of several output folders that a report shows together.

    Attributes:
        label: what the report calls it.
        path: the path as the user wrote it.
        experiment: the name of the experiment.
        methods: the names of the methods in this folder.
        seed: the seed of the experiment.
        finished: whether all its work is done.
    """

    label: str
    path: str
    experiment: str
    methods: tuple[str, ...]
    seed: int | None
    finished: bool


@dataclass(frozen=True)
class ExperimentResults:
    """Everything the report shows. All values are plain data.

    :func:`reality_check.run` and :func:`reality_check.load_results` return it; :meth:`records` and
    :meth:`trials` make lists of dicts of it.

    Attributes:
        name: the name of the experiment.
        protocol: name of the protocol the user chose, e.g. ``"quick"``.
        reference: name of the protocol that the deviations are counted against, e.g. ``"mlrc"``.
        finished: whether every stage of every method is complete.
        rows: the lines of ``results.csv``.
        baselines: rows of the same form for ``raw pixels``, their PCA, ``untrained trunk`` and
            ``untrained embedder`` (in the field ``method``).
        facts: further lines for the report's "how it was run" table (data set, classes, images,
            fold sizes, trunk, embedding size, batch, seeds, versions, wall time ...).
        config: the resolved experiment as plain nested data, as in ``experiment.yaml``.
        queries: the scores of every test query; ``None`` where none were kept.
        costs: what the trainings took.
        versions: of Python and of the packages that decide results, by name, when the search began.
        published: tables of papers to be compared with the results, beyond the one that the
            experiment itself repeats (``config["published_results"]``).
        folders: the output folders of a report of several, or of one group of it; empty for one.
        noun: what one of the samples is called.
        measure: the title of the metric that verdicts are about.
        tested_on: what test scores are measured on.
    """

    name: str
    protocol: str
    reference: str
    finished: bool
    methods: tuple[MethodResults, ...]
    rows: tuple[ResultRow, ...]
    baselines: tuple[ResultRow, ...] = ()
    deviations: tuple[Deviation, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    config: dict[str, Any] = field(default_factory=dict)
    queries: QueryScores | None = None
    costs: tuple[Cost, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    published: tuple[PublishedResults, ...] = ()
    folders: tuple[Folder, ...] = ()
    noun: str = "image"
    measure: str = METRICS[PRIMARY]
    tested_on: str = "test classes"

    @property
    def selected_by(self) -> Metric:
        """The validation metric that chose epochs and trials; a higher value is better."""
        return self.metric(self._protocol.get("selects_by", PRIMARY)).maximised

    @property
    def _protocol(self) -> dict[str, Any]:
        protocol = self.config.get("protocol")
        return protocol if isinstance(protocol, dict) else {}

    def metric(self, name: str) -> Metric:
        """Return a metric; a user-defined one has its recorded title, unit and direction."""
        described = self._protocol.get("described", {})
        found = metric_of(name, {key: Description(**item) for key, item in described.items()})
        return replace(found, title=self.measure) if name == PRIMARY else found

    def settings_of(self, method: str) -> dict[str, Any]:
        """Return the settings of a method in ``config``; empty if it is not there."""
        methods = self.config.get("methods") or []
        return next((settings for settings in methods if settings.get("name") == method), {})

    def records(self, baselines: bool = False) -> list[Record]:
        """Return the measured values as a list of dicts, one per line of ``results.csv``.

        ``pandas.DataFrame(results.records())`` makes a table of them.

        Args:
            baselines: whether to append the values of raw input and untrained networks, with the
                name of the baseline as ``method``.
        """
        rows = (*self.rows, *self.baselines) if baselines else self.rows
        return [row.record() for row in rows]

    def trials(self) -> list[dict[str, Any]]:
        """Return every trial, reproduction and final run as a flat dict, all with the same keys.

        The keys are ``method``, ``stage`` (``search``, ``reproductions`` or ``final``),
        ``search`` (its number), ``number``, ``state``, ``value`` (best validation score, mean over
        folds, a fraction), ``diverged`` (why), ``stopped_after`` (after how many folds a race has
        stopped it), ``seconds``, ``attempts``, and ``params.NAME`` for
        each hyper-parameter that any of them has; ``None`` where there is no such value. For
        :func:`reality_check.compare` there are also ``trial``, the number of the trial itself or of
        the retrained one, ``validation``, the score that ranks a trial of a search, and
        ``test.CATEGORY``, MAP@R on the test classes (0 for a trial that diverged).
        """
        trials = [
            (method.name, stage.value, trial, score)
            for method in self.methods
            for stage in STAGES
            for trial, score in zip(
                getattr(method, stage), ranking_scores(getattr(method, stage)), strict=True
            )
        ]
        names = dict.fromkeys(name for _, _, trial, _ in trials for name in trial.params)
        tests: dict[Any, Any] = {
            (row.method, stage_of(row.category), row.reproduction, row.category): row.value
            for row in self.rows
            if row.metric == PRIMARY
        }
        categories = dict.fromkeys(key[-1] for key in tests)
        return [
            {
                "method": method,
                "stage": stage,
                "search": trial.search,
                "number": trial.trial_index,
                "state": trial.state,
                "value": trial.value,
                "diverged": trial.diverged,
                "stopped_after": trial.stopped_after,
                "seconds": trial.seconds,
                "attempts": trial.attempts,
                "trial": trial.trial_index if stage == "search" else trial.retrained,
                "validation": score
                if stage == "search" and (trial.value, trial.stopped_after) != (None, None)
                else None,
                **{
                    f"test.{category}": tests.get(
                        (method, stage, trial.trial_index, category),
                        0.0 if stage == "search" and trial.diverged else None,
                    )
                    for category in categories
                },
                **{f"params.{name}": trial.params.get(name) for name in names},
            }
            for method, stage, trial, score in trials
        ]


@dataclass(frozen=True)
class SuiteResults:
    """The results of the same methods on several data sets.

    Attributes:
        name: the name of the suite.
        members: the results on each data set, by its name, in the order of the suite.
    """

    name: str
    members: Mapping[str, ExperimentResults]

    @property
    def finished(self) -> bool:
        """Whether every data set is finished."""
        return all(results.finished for results in self.members.values())

    @property
    def independent(self) -> bool:
        """Whether data sets share no draws, since their experiments have different seeds."""
        seeds = [
            seed
            for results in self.members.values()
            for seed in {f.seed for f in results.folders} or {results.config.get("seed")}
        ]
        return None not in seeds and len({*seeds}) == len(seeds)

    def records(self, baselines: bool = False) -> list[Record]:
        """Return the records of all data sets; their ``experiment`` is the name of the data set."""
        return [
            {**record, "experiment": name}
            for name, results in self.members.items()
            for record in results.records(baselines)
        ]
