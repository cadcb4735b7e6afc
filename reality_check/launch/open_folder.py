"""Opens the output folder of an experiment: new, unchanged, grown, or with changed code."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reality_check.config.classes import find_class, own_module
from reality_check.config.datasets import Dataset, FunctionData, TorchDatasetData
from reality_check.config.described import description_of
from reality_check.config.schema import Experiment
from reality_check.config.source_code import copy_sources
from reality_check.launch.check import Checked, all_classes, classes_of, metrics_of_user
from reality_check.registry.pack import restore
from reality_check.results import TrialRecord
from reality_check.studies.growth import DRAWING, describe_changes, record_step
from reality_check.studies.output_folder import (
    changed_code,
    check_same_experiment,
    exclusive,
    growth,
    load_locked,
    lock_experiment,
    remove_checkpoints,
)
from reality_check.studies.recorded_experiment import (
    RecordedExperiment,
    check_studies,
    check_version,
    storage_url,
)
from reality_check.studies.storage import HEARTBEAT_GRACE, absolute_url, open_storage
from reality_check.training.prepared_experiment import PreparedExperiment
from reality_check.utils.errors import UsageError
from reality_check.utils.passwords import without_password
from reality_check.utils.processes import shares_process_ids

#: SQLite allows paths of 511 bytes, and the records of fold runs are some folders deeper.
_MAX_PATH_BYTES = 350
#: Seconds between two checks of whether workers still run.
_POLL_SECONDS = 1.0


@contextlib.contextmanager
def open_folder(
    checked: Checked, out_dir: Path, log: Callable[[str], None] = lambda text: None
) -> Iterator[RecordedExperiment]:
    """Lock an output folder, and bring its files up to date with an experiment.

    The lock is released when the context exits.

    Args:
        checked: the experiment.
        out_dir: its output folder.
        log: called with messages about the experiment.

    Yields:
        The experiment with its fingerprints, as in ``experiment.yaml``, and its storage.

    Raises:
        UsageError: the folder belongs to another experiment, or cannot be written.
    """
    experiment, code = checked.experiment, checked.code
    changed_names = [
        name for name, known in experiment.code.items() if code.get(name, known) != known
    ]
    if changed_names:  # only an experiment that a run has written has fingerprints of its own
        log(f"Different from the run that wrote this experiment.yaml: {', '.join(changed_names)}.")
    locked, restarted = _resolve_for_folder(experiment, code, out_dir)
    _check_storage(locked, out_dir)
    with contextlib.ExitStack() as stack:
        try:
            out_dir.mkdir(parents=True, exist_ok=True)
            stack.enter_context(exclusive(out_dir))
            if restarted or growth(locked, out_dir):
                _check_nobody_works(_existing(locked, out_dir), log)
            # Repeated under the lock, since others may have written in the meantime.
            locked, restarted = _resolve_for_folder(experiment, code, out_dir)
            for name in restarted:
                remove_checkpoints(out_dir / name)
            _record_growth(locked, out_dir, log)
            copy_sources(_own_modules(experiment), out_dir)
            lock_experiment(locked, out_dir)
            recorded = RecordedExperiment(locked, out_dir)
            for pack in checked.packs:
                restore(pack, out_dir, locked, recorded.storage)
        except OSError as error:
            raise UsageError(f"the output folder {out_dir} cannot be written: {error}.") from None
        _record_facts(recorded, checked)
        yield recorded


def _record_facts(recorded: RecordedExperiment, checked: Checked) -> None:
    """Store what a report needs to know and cannot read without the data set."""
    prepared = PreparedExperiment(recorded.experiment, checked.dataset)
    device = None if checked.trained_here else recorded.experiment.device  # None: this machine's
    if device == "auto":  # cluster jobs
        device = "cpu" if recorded.experiment.slurm.gpus == 0 else "cuda"
    recorded.set_attribute("data", prepared.describe_data(device))
    recorded.set_attribute("parameters", prepared.parameters())
    recorded.set_attribute("inputs", prepared.describe_inputs())


def _record_growth(experiment: Experiment, out_dir: Path, log: Callable[[str], None]) -> None:
    """Record how the experiment has grown beyond that of the folder, if it has."""
    changes = growth(experiment, out_dir)
    if changes:
        log(f"The experiment is extended: {describe_changes(changes)}. Existing results are kept.")
        recorded = _existing(experiment, out_dir)
        complete_counts: dict[str, dict[str, int]] = {}
        for study in recorded.states().ready():
            if changes.keys() & DRAWING:  # further draws need the same Optuna
                check_version(study)
            counts = complete_counts.setdefault(study.method, {})
            counts[study.stage] = counts.get(study.stage, 0) + len(study.complete)
        complete_counts.pop("", None)  # the baselines, which belong to no method
        record_step(recorded.experiment, changes, complete_counts, out_dir)


def _resolve_for_folder(
    experiment: Experiment, code: Mapping[str, str], out_dir: Path
) -> tuple[Experiment, list[str]]:
    """Return the experiment as the folder will store it, and the methods that start over."""
    metric_descriptions = {
        name: description_of(find_class(name, "metric"))
        for name in metrics_of_user(experiment.protocol)
    }
    changes = {
        "protocol": experiment.protocol.model_copy(update={"described": metric_descriptions}),
        "code": dict(code),
        "studies": _studies_prefix(experiment, out_dir),
        "dataset": _with_absolute_paths(experiment.dataset),
        "storage": experiment.storage and absolute_url(experiment.storage),
    }
    locked = experiment.model_copy(update=changes)
    changed = changed_code(locked, out_dir)
    restarted = _methods_to_restart(locked, out_dir, changed)
    # The code of these classes may differ from that in the folder.
    check_same_experiment(
        locked, out_dir, changed if restarted else _not_yet_measured(locked, out_dir, changed)
    )
    return locked, restarted


def _with_absolute_paths(dataset: Dataset) -> Dataset:
    """Return the data set with absolute paths, since workers may run in other folders."""
    if hasattr(dataset, "path"):
        return dataset.model_copy(update={"path": _absolute_path(dataset.path)})
    if isinstance(dataset, FunctionData | TorchDatasetData):
        paths = {key: _absolute_path(dataset.arguments.get(key)) for key in ("path", "root")}
        resolved = {key: path for key, path in paths.items() if path is not None}
        return dataset.model_copy(update={"arguments": {**dataset.arguments, **resolved}})
    return dataset


def _absolute_path(path: Any) -> Any:
    """Return the absolute path of an existing file or folder; any other value unchanged."""
    return str(Path.cwd() / path) if isinstance(path, str) and Path(path).exists() else path


def _check_storage(experiment: Experiment, out_dir: Path) -> None:
    """Make sure that the storage can be opened and, in a later run, has the studies."""
    if len(os.fsencode(out_dir.resolve())) > _MAX_PATH_BYTES:
        raise UsageError(
            f"the path of the output folder has more than {_MAX_PATH_BYTES} bytes, and SQLite "
            "opens no files whose paths are much longer; name another folder with --out."
        )
    if experiment.storage is None:
        return
    storage = open_storage(storage_url(experiment, out_dir))
    begun = (out_dir / "experiment.yaml").exists()
    if begun and load_locked(out_dir).storage != without_password(experiment.storage):
        check_studies(experiment, storage)


def _studies_prefix(experiment: Experiment, out_dir: Path) -> str | None:
    """Return the prefix of the names of this output folder's studies; ``None`` without a prefix.

    A storage that other experiments use too needs one.
    """
    if (out_dir / "experiment.yaml").exists():
        return load_locked(out_dir).studies
    return None if experiment.storage is None else f"{experiment.name}-{secrets.token_hex(4)}"


def _methods_to_restart(experiment: Experiment, out_dir: Path, changed: Sequence[str]) -> list[str]:
    """Return the methods that use changed code, or none if any of them has a complete trial.

    So a loss that failed in its first training can be fixed and the same command continues, but
    results of different code are never mixed. If the code of a trunk has changed, no method starts
    over.
    """
    names = [method.name for method in experiment.methods if {*changed} & classes_of(method).keys()]
    trunks = {experiment.model_of(method).trunk for method in experiment.methods}
    if not names or trunks & {*changed}:
        return []
    first_stage = experiment.protocol.stages[0]
    studies = _existing(experiment, out_dir).states().ready()
    if any(s.complete for s in studies if s.method in names and s.stage is first_stage):
        return []
    return names


def _not_yet_measured(experiment: Experiment, out_dir: Path, changed: Sequence[str]) -> list[str]:
    """Return the user's metrics whose code has changed, but of which no value is recorded.

    So a metric that failed when the first network was scored can be fixed without new trainings.
    """
    changed = [name for name in changed if name in experiment.protocol.final_metrics]
    if not changed:
        return []
    measured = {experiment.protocol.selects_by}
    for study in _existing(experiment, out_dir).states().ready():
        for trial in study.complete.values():
            measured.update(*(trial.scores or {}).values())  # the metrics of every category
    return [name for name in changed if name not in measured]


def _existing(experiment: Experiment, out_dir: Path) -> RecordedExperiment:
    """Return the experiment recorded in the folder, with the storage's URL in ``experiment``."""
    existing = load_locked(out_dir).model_copy(update={"storage": experiment.storage})
    return RecordedExperiment(existing, out_dir, only_reads=True)


def _check_nobody_works(recorded: RecordedExperiment, log: Callable[[str], None]) -> None:
    """Make sure that no worker is running that has loaded the earlier code.

    A worker on another machine counts as gone if its trial does not change for some minutes, for
    which this function waits.

    Raises:
        UsageError: a worker is still running.
    """
    first = running = _running_trials(recorded)
    while running:
        for key, trial in running.items():
            # A worker is running if its trial has changed, or if this machine sees its process.
            if trial != first.get(key) or (trial.worker and shares_process_ids(trial.worker)):
                raise UsageError(_worker_message(trial.worker))
        if running is first:
            log(
                "The experiment changes; checking for up to "
                f"{HEARTBEAT_GRACE // 60} minutes whether workers still run with it as it was"
            )
        time.sleep(_POLL_SECONDS)
        running = _running_trials(recorded)


def _running_trials(recorded: RecordedExperiment) -> dict[tuple[str, int], TrialRecord]:
    """Return the running trials, after releasing those of lost workers."""
    return {
        (study.name, trial.number): trial
        for study in recorded.begun_studies()
        for trial in study.release_lost()
        if trial.state == "running"
    }


def _worker_message(worker: Mapping[str, Any] | None) -> str:
    """Return the message that a worker is still running."""
    host = "" if worker is None else worker["host"].partition("/")[0]
    who = "a worker" if worker is None else f"process {worker['pid']} of the machine {host}"
    return (
        f"{who} still trains for the experiment as it was, and would mix its results with those of "
        "changed code or of a larger plan; end it first (Ctrl-C, or scancel for jobs), or name a "
        "new folder with --out."
    )


def _own_modules(experiment: Experiment) -> set[str]:
    """Return the user's modules that the experiment uses."""
    names, dataset = [*all_classes(experiment), *experiment.report.columns], experiment.dataset
    if isinstance(dataset, FunctionData):
        names.append(dataset.function)
    if isinstance(dataset, TorchDatasetData):
        names.append(dataset.dataset)
    return {module for module in map(own_module, names) if module is not None}
