"""A finished trial with its curves, as trackers receive it."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reality_check.config.described import Description
from reality_check.config.metrics import metric_of
from reality_check.results import TrialRecord
from reality_check.studies.output_folder import fold_folder
from reality_check.studies.plan import StudyState
from reality_check.studies.progress import trial_name
from reality_check.studies.recorded_experiment import RecordedExperiment

#: A row of a curve: ``epoch``, ``loss`` and the metrics of the validation classes, by their titles.
Row = Mapping[str, float]
#: Suffixes of metrics that are not measured in the method's own geometry.
_OTHER_GEOMETRIES = ("_raw", "_normalized")


@dataclass(frozen=True)
class TrackedTrial:
    """A complete trial of a search, a complete reproduction or a complete final run.

    Attributes:
        method: the name of the method in the experiment; ``without training`` for baselines.
        stage: ``search``, ``reproductions``, ``final`` or ``baselines``.
        name: ``trial 3``, ``search 2, trial 3``, ``reproduction 1``, counted from 1.
        params: values of the hyper-parameters.
        values: the results by name: ``validation MAP@R``, ``test MAP@R (aggregate)``, ...; all
            are fractions. Empty if the training diverged.
        diverged: why the training diverged, or ``None``.
        curves: for each fold, one row per evaluation, in the order of epochs.
        seconds: duration of the trial; 0 if unknown.
    """

    method: str
    stage: str
    name: str
    params: Mapping[str, Any]
    values: Mapping[str, float]
    diverged: str | None
    curves: tuple[tuple[Row, ...], ...]
    seconds: float


def tracked(recorded: RecordedExperiment, study: StudyState, index: int) -> TrackedTrial:
    """Return a complete trial of a stage, with the curves of its folder."""
    trial = study.complete[index]
    return TrackedTrial(
        method=study.method or "without training",
        stage=study.stage.value,
        name=trial_name(study.stage, {"trial_index": index, "search": study.search}),
        params=trial.params,
        values=dict(_values(recorded, study, trial)),
        diverged=trial.diverged,
        curves=tuple(
            tuple(_curve(folder / "records", recorded.experiment.protocol.described))
            for folder in _fold_folders(recorded.out_dir, study, index)
        ),
        seconds=trial.seconds or 0.0,
    )


def _values(
    recorded: RecordedExperiment, study: StudyState, trial: TrialRecord
) -> Iterator[tuple[str, float]]:
    """Yield the name and value of each result of a trial."""
    if trial.diverged is not None:
        return
    if trial.value is not None:
        yield recorded.experiment.protocol.objective(study.stage), trial.value
    for category, metrics in (trial.scores or {}).items():
        for metric, value in metrics.items():
            if not metric.endswith(_OTHER_GEOMETRIES):
                title = metric_of(metric, recorded.experiment.protocol.described).title
                yield f"test {title} ({category})", value


def _fold_folders(out_dir: Path, study: StudyState, index: int) -> Iterator[Path]:
    """Yield the folders of a trial's folds; baselines have none."""
    if not study.method:
        return
    for fold in itertools.count():
        folder = fold_folder(out_dir, study.method, study.stage, index, fold, study.search)
        if not folder.is_dir():
            return
        yield folder


def _curve(records: Path, described: Mapping[str, Description]) -> Iterator[Row]:
    """Yield the evaluations of a training, from the untrained network (epoch 0) on.

    ``described`` has descriptions of the user's metrics by name.
    """
    # "~iteration~" is the record keeper's name of the column of steps.
    losses = {row["~iteration~"]: row["total_loss"] for row in _rows(records, "loss_histories")}
    for row in _rows(records, "accuracies*"):
        if int(row["epoch"]) < 0:
            continue  # an evaluation of the trunk without the embedder
        point = {"epoch": float(row["epoch"])}
        if row["~iteration~"] in losses:
            point["loss"] = float(losses[row["~iteration~"]])
        metrics = {name.removesuffix("_level0"): name for name in row if name.endswith("_level0")}
        yield point | {
            metric_of(metric, described).title: float(row[name]) for metric, name in metrics.items()
        }


def _rows(records: Path, group: str) -> Iterator[dict[str, str]]:
    """Yield the rows of the CSV files of a group, a name or a pattern."""
    for file in records.glob(f"{group}.csv"):
        with file.open(newline="") as opened:
            yield from csv.DictReader(opened)
