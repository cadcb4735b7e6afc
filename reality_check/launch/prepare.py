"""Checks everything that can be checked before training, and opens the output folder."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from reality_check.config.classes import find_class, named_classes, own_module, source_fingerprint
from reality_check.config.datasets import Dataset, FunctionData, TorchDatasetData
from reality_check.config.described import description_of
from reality_check.config.method import Method
from reality_check.config.metrics import own_metrics
from reality_check.config.model import Model
from reality_check.config.plugins import find_plugin
from reality_check.config.protocol import Protocol
from reality_check.config.schema import Experiment
from reality_check.config.source_code import copy_sources
from reality_check.data import SampleSet, load_dataset, split_dataset
from reality_check.models import weights_fingerprint
from reality_check.registry.pack import restore
from reality_check.registry.packed_methods import check_packed, packs_of
from reality_check.studies.growth import DRAWING, describe_changes, read_steps, record_step
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
from reality_check.studies.sampler import check_sampler
from reality_check.studies.storage import HEARTBEAT_GRACE, open_storage, sole_worker, whole_url
from reality_check.studies.stored_trial import StoredTrial
from reality_check.training.preflight import (
    LossCheck,
    check_column,
    check_data,
    check_loss,
    check_metrics,
    check_model,
    check_starts,
    with_trials,
)
from reality_check.training.prepared_experiment import PreparedExperiment, pick_device
from reality_check.utils.errors import UsageError, every
from reality_check.utils.passwords import without_password
from reality_check.utils.processes import shares_process_ids

#: SQLite allows paths of 511 bytes, and the records of fold runs are some folders deeper.
_MAX_PATH_BYTES = 350
#: Seconds between two checks of whether workers still run.
_POLL_SECONDS = 1.0


def prepare(experiment: Experiment, out_dir: Path) -> PreparedExperiment:
    """Return the experiment of :func:`prepared`, after releasing the lock of the output folder."""
    with prepared(experiment, out_dir, trained_here=True) as ready:
        return ready


@contextlib.contextmanager
def prepared(
    experiment: Experiment,
    out_dir: Path,
    trained_here: bool,
    log: Callable[[str], None] = lambda text: None,
) -> Iterator[PreparedExperiment]:
    """Check everything that can be checked before training, and lock the output folder.

    The lock is released when the context exits.

    Args:
        experiment: the experiment.
        out_dir: its output folder.
        trained_here: whether this machine trains; otherwise it need not have the device.
        log: called with messages about the experiment.

    Yields:
        The experiment with its fingerprints, as in ``experiment.yaml``, and its images.

    Raises:
        UsageError: a check failed; in this case nothing is written.
    """
    packs = packs_of(experiment)
    if trained_here:
        pick_device(experiment.device)
    dataset = load_dataset(experiment.dataset, verify=True)
    check_experiment(experiment, dataset)
    experiment = with_trials(experiment)
    code = fingerprints(experiment.trained(), dataset)
    code = check_packed(experiment, code, read_steps(out_dir), packs)
    changed_names = [
        name for name, known in experiment.code.items() if code.get(name, known) != known
    ]
    if changed_names:  # the experiment is that of an earlier run
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
            for pack in packs:
                restore(pack, out_dir, locked, RecordedExperiment(locked, out_dir).storage)
        except OSError as error:
            raise UsageError(f"the output folder {out_dir} cannot be written: {error}.") from None
        yield PreparedExperiment(locked, dataset)


def _record_growth(experiment: Experiment, out_dir: Path, log: Callable[[str], None]) -> None:
    """Record how the experiment has grown beyond that of the folder, if it has."""
    changes = growth(experiment, out_dir)
    if changes:
        log(f"The experiment is extended: {describe_changes(changes)}. Existing results are kept.")
        recorded = _existing(experiment, out_dir)
        complete_counts: dict[str, dict[str, int]] = {}
        for study in recorded.states().ready():
            if changes.keys() & DRAWING:
                check_version(study)
            counts = complete_counts.setdefault(study.method, {})
            counts[study.stage] = counts.get(study.stage, 0) + len(study.complete)
        complete_counts.pop("", None)
        record_step(recorded.experiment, changes, complete_counts, out_dir)


def check_experiment(experiment: Experiment, dataset: SampleSet) -> list[LossCheck]:
    """Check data, networks, losses and searches, and return the checks of the losses.

    Raises:
        UsageError: at least one check failed. The message has a line for each of them.
    """
    experiment = experiment.trained()
    checks: list[Callable[[], LossCheck | None]] = [
        partial(check_data, experiment, dataset),
        partial(check_model, experiment, dataset),
        partial(check_starts, experiment),
        partial(check_metrics, experiment.protocol),
        partial(check_sampler, experiment.protocol.search),
        *(partial(check_column, name) for name in experiment.report.columns),
        *(
            partial(_check_method_loss, experiment, method, dataset)
            for method in experiment.methods
        ),
    ]
    return [checked for checked in every(checks) if checked is not None]


def _check_method_loss(experiment: Experiment, method: Method, dataset: SampleSet) -> LossCheck:
    classes = len(split_dataset(dataset, experiment.protocol.split).trainval)
    checked = check_loss(experiment, method, classes)
    if checked.problem is not None:
        raise UsageError(f"method {method.name!r} ({method.loss}): {checked.problem}.")
    return checked


def _resolve_for_folder(
    experiment: Experiment, code: dict[str, str], out_dir: Path
) -> tuple[Experiment, list[str]]:
    """Return the experiment as the folder will store it, and the methods that start over."""
    described = {
        name: description_of(find_class(name, "metric"))
        for name in _own_metrics(experiment.protocol)
    }
    changes = {
        "protocol": experiment.protocol.model_copy(update={"described": described}),
        "code": code,
        "studies": _studies_prefix(experiment, out_dir),
        "dataset": _with_absolute_paths(experiment.dataset),
        "storage": experiment.storage and whole_url(experiment.storage),
    }
    locked = experiment.model_copy(update=changes)
    changed = changed_code(locked, out_dir)
    restarted = _methods_to_restart(locked, out_dir, changed)
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
    if len(os.fsencode(out_dir.resolve())) > _MAX_PATH_BYTES:
        raise UsageError(
            f"the path of the output folder has more than {_MAX_PATH_BYTES} bytes, and SQLite "
            "opens no files whose paths are much longer; name another folder with --out."
        )
    if experiment.storage is None:
        return
    storage = open_storage(experiment.storage)
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
    results of different code are never mixed.
    """
    users = [method for method in experiment.methods if {*changed} & classes_of(method).keys()]
    trunks = {experiment.model_of(method).trunk for method in experiment.methods}
    if not users or trunks & {*changed}:
        return []
    names, first = [method.name for method in users], experiment.protocol.stages[0]
    studies = _existing(experiment, out_dir).states().ready()
    if any(s.complete for s in studies if s.method in names and s.stage is first):
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
            measured.update(*(trial.scores or {}).values())
    return [name for name in changed if name not in measured]


def _existing(experiment: Experiment, out_dir: Path) -> RecordedExperiment:
    """Return the experiment of the output folder, with the storage's URL of ``experiment``."""
    existing = load_locked(out_dir).model_copy(update={"storage": experiment.storage})
    return RecordedExperiment(existing, out_dir, only_reads=True)


def _check_nobody_works(recorded: RecordedExperiment, log: Callable[[str], None]) -> None:
    """Make sure that no worker is running that has loaded the earlier code.

    A worker on another machine counts as gone if its trial does not change for some minutes, for
    which this function waits.

    Raises:
        UsageError: a worker is still running.
    """
    with sole_worker(storage_url(recorded.experiment, recorded.out_dir)) as alone:
        if alone:
            recorded.release_all()
    first = running = _running_trials(recorded)
    while running:
        for key, trial in running.items():
            if trial != first.get(key) or (trial.worker and shares_process_ids(trial.worker)):
                raise UsageError(_worker_message(trial.worker))
        if running is first:
            log(
                "The experiment changes; checking for up to "
                f"{HEARTBEAT_GRACE // 60} minutes whether workers still run with it as it was"
            )
        time.sleep(_POLL_SECONDS)
        running = _running_trials(recorded)


def _running_trials(recorded: RecordedExperiment) -> dict[tuple[str, int], StoredTrial]:
    """Return the running trials, after releasing those of lost workers."""
    return {
        (study.name, trial.number): trial
        for study in recorded.begun_studies()
        for trial in study.release_lost()
        if trial.state == "running"
    }


def _worker_message(worker: Mapping[str, Any] | None) -> str:
    host = "" if worker is None else worker["host"].partition("/")[0]
    who = "a worker" if worker is None else f"process {worker['pid']} of the machine {host}"
    return (
        f"{who} still trains for the experiment as it was, and would mix its results with those of "
        "changed code or of a larger plan; end it first (Ctrl-C, or scancel for jobs), or name a "
        "new folder with --out."
    )


def classes_of(method: Method) -> dict[str, str]:
    """Return the kinds of all classes that a method names (loss, miner, arguments), by name."""
    arguments = {**method.arguments, "miner": method.miner or {}}
    return {method.loss: "loss", **dict(named_classes(arguments))}


def fingerprints(experiment: Experiment, dataset: SampleSet) -> dict[str, str]:
    """Return the fingerprints of the images, the pretrained weights, and the user's classes."""
    prints, reader = {"dataset": dataset.fingerprint()}, experiment.dataset
    if isinstance(reader, FunctionData) and "." not in reader.function:
        plugin = find_plugin("dataset", reader.function)
        if plugin is not None:
            prints["data set from"] = plugin.title
    weights = dict.fromkeys(map(weights_fingerprint, _models(experiment)))
    if any(weights):
        prints["pretrained weights"] = ", ".join(known or "none" for known in weights)
    for name, kind in _named_classes(experiment).items():
        # A trunk such as timm:resnet50.a1_in1k is not an import path.
        source = None if ":" in name else source_fingerprint(name, kind)
        if source is not None:
            prints[name] = source
    return prints


def _models(experiment: Experiment) -> list[Model]:
    return [experiment.model, *map(experiment.model_of, experiment.methods)]


def _named_classes(experiment: Experiment) -> dict[str, str]:
    """Return the kinds of all classes that the experiment names, by name."""
    named = {model.trunk: "trunk" for model in _models(experiment)}
    for method in experiment.methods:
        named.update(classes_of(method))
    for training in (experiment.protocol.training, *(m.training for m in experiment.methods)):
        if training is not None:
            named.update({part.name: "optimizer" for _, part in training.optimizers})
    protocol = experiment.protocol
    named.update(dict.fromkeys(_own_metrics(protocol), "metric"))
    sampler = protocol.search.sampler
    return named | ({sampler: "sampler"} if "." in sampler else {})


def _own_metrics(protocol: Protocol) -> list[str]:
    return own_metrics([*protocol.final_metrics, protocol.selects_by])


def _own_modules(experiment: Experiment) -> set[str]:
    """Return the user's modules that the experiment uses."""
    names, dataset = [*_named_classes(experiment), *experiment.report.columns], experiment.dataset
    if isinstance(dataset, FunctionData):
        names.append(dataset.function)
    if isinstance(dataset, TorchDatasetData):
        names.append(dataset.dataset)
    return {module for module in map(own_module, names) if module is not None}
