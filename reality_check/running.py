"""Running an experiment: check everything, start workers, watch them, write the report."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from reality_check.campaign import (
    Campaign,
    check_studies,
    pick_device,
    remove_checkpoints,
    storage_url,
)
from reality_check.checking import (
    check_data,
    check_loss,
    check_model,
    fingerprints,
    uses_class,
)
from reality_check.collecting import collect
from reality_check.combining import (
    Source,
    combine,
    describe,
    differences,
    folder_labels,
    groups,
)
from reality_check.comparable import comparable_tables
from reality_check.config.published import PublishedResults
from reality_check.config.schema import Experiment
from reality_check.data import ImageSet, load_dataset
from reality_check.devices import parse_devices, share_out
from reality_check.errors import UsageError
from reality_check.launch.local import LocalWorkers
from reality_check.launch.queue import require_slurm
from reality_check.launch.slurm import SlurmWorkers
from reality_check.output import (
    changed_code,
    check_same_experiment,
    exclusive,
    load_locked,
    lock_experiment,
)
from reality_check.passwords import lent_password, without_password
from reality_check.processes import shares_process_ids
from reality_check.report import write_grouped_report, write_report
from reality_check.results import ExperimentResults
from reality_check.search import state_name
from reality_check.storage import HEARTBEAT_GRACE, check_workers, open_storage, sole_worker

#: Seconds between two looks whether workers still run.
_LOOK_SECONDS = 1.0
#: Who starts the workers.
Launcher = Literal["local", "slurm"]


def prepare(
    experiment: Experiment, out_dir: Path, trained_here: bool = True
) -> tuple[Experiment, ImageSet]:
    """Check all that can be checked before training, and open the output folder.

    Where others train (``trained_here=False``), their device need not be here.

    Returns:
        The experiment with its fingerprints, as written to ``experiment.yaml``, and its images.

    Raises:
        UsageError: something cannot work; nothing is written then.
    """
    with _prepared(experiment, out_dir, trained_here) as found:
        return found


@contextlib.contextmanager
def _prepared(
    experiment: Experiment,
    out_dir: Path,
    trained_here: bool,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[tuple[Experiment, ImageSet]]:
    """What :func:`prepare` does, and hold the output folder: no other run changes it meanwhile."""
    dataset = _check_inputs(experiment, trained_here)
    code = fingerprints(experiment, dataset)
    locked, anew = _as_locked(experiment, code, out_dir)
    _check_storage(locked, out_dir)
    with contextlib.ExitStack() as stack:
        try:
            out_dir.mkdir(parents=True, exist_ok=True)
            stack.enter_context(exclusive(out_dir))
            if anew:
                _check_nobody_works(_begun(locked, out_dir), tell)
            # Once more, since others may have written until now.
            locked, anew = _as_locked(experiment, code, out_dir)
            for name in anew:
                remove_checkpoints(out_dir / name)
            lock_experiment(locked, out_dir)
        except OSError as error:
            raise UsageError(f"the output folder {out_dir} cannot be written: {error}.") from None
        yield locked, dataset


def _check_inputs(experiment: Experiment, trained_here: bool) -> ImageSet:
    """Check all that the output folder has no part in; return the images."""
    if trained_here:
        pick_device(experiment.device)
    dataset = load_dataset(experiment.dataset, verify=True)
    check_data(experiment, dataset)
    check_model(experiment, dataset)
    for method in experiment.methods:
        found = check_loss(experiment, method)
        if found.problem is not None:
            raise UsageError(f"method {method.name!r} ({method.loss}): {found.problem}.")
    return dataset


def _as_locked(
    experiment: Experiment, code: dict[str, str], out_dir: Path
) -> tuple[Experiment, list[str]]:
    """The experiment as the output folder is to hold it, and the methods that begin anew there.

    Raises:
        UsageError: the folder holds something else.
    """
    changes = {"code": code, "studies": _studies(experiment, out_dir)}
    locked = experiment.model_copy(update=changes)
    changed = changed_code(locked, out_dir)
    anew = _methods_to_begin_anew(locked, out_dir, changed)
    check_same_experiment(locked, out_dir, changed if anew else ())
    return locked, anew


def _check_storage(experiment: Experiment, out_dir: Path) -> None:
    if experiment.storage is None:
        return
    storage = open_storage(experiment.storage)
    begun = (out_dir / "experiment.yaml").exists()
    if begun and load_locked(out_dir).storage != without_password(experiment.storage):
        check_studies(experiment, storage)


def _studies(experiment: Experiment, out_dir: Path) -> str | None:
    """What sets the studies of this output folder apart from others in the same storage."""
    if (out_dir / "experiment.yaml").exists():
        return load_locked(out_dir).studies
    return None if experiment.storage is None else f"{experiment.name}-{secrets.token_hex(4)}"


def _methods_to_begin_anew(
    experiment: Experiment, out_dir: Path, changed: Sequence[str]
) -> list[str]:
    """The methods that use changed code, if none of them has a complete trial; else none.

    A loss that failed in its first training can so be mended and the same command goes on, and
    results of different code still never mix.
    """
    users = [m for m in experiment.methods if any(uses_class(m, name) for name in changed)]
    trunks = {experiment.model_of(method).trunk for method in experiment.methods}
    if not users or trunks & {*changed}:
        return []
    campaign = _begun(experiment, out_dir)
    if any(campaign.has_complete_trials(method.name) for method in users):
        return []
    return [method.name for method in users]


def _begun(experiment: Experiment, out_dir: Path) -> Campaign:
    """What the output folder holds already, in the storage as it is reached from here."""
    there = load_locked(out_dir).model_copy(update={"storage": experiment.storage})
    return Campaign(there, out_dir)


def _check_nobody_works(campaign: Campaign, tell: Callable[[str], None]) -> None:
    """Make sure that no worker is left that has loaded the code as it was.

    A worker that cannot be seen from here is gone when it shows no sign of life for some minutes;
    so long it is looked at.

    Raises:
        UsageError: there is one.
    """
    with sole_worker(storage_url(campaign.experiment, campaign.out_dir)) as alone:
        if alone:
            campaign.release_all()
    first = running = _running(campaign)
    while running:
        for trial, notes in running.items():
            worker = notes.get("worker")
            if notes != first.get(trial) or (worker and shares_process_ids(worker)):
                raise UsageError(_still_works(worker))
        if running is first:
            tell(
                "The code has changed; looking for up to "
                f"{HEARTBEAT_GRACE // 60} minutes whether workers still run with the earlier one"
            )
        time.sleep(_LOOK_SECONDS)
        running = _running(campaign)


def _running(campaign: Campaign) -> dict[tuple[str, int], dict[str, Any]]:
    """What each running trial notes, after those of lost workers are ended."""
    return {
        (unit.study.name, trial.number): dict(trial.user_attrs)
        for unit in campaign.units()
        for trial in unit.study.release_lost()
        if state_name(trial) == "running"
    }


def _still_works(worker: Mapping[str, Any] | None) -> str:
    host = "" if worker is None else worker["host"].partition("/")[0]
    who = "a worker" if worker is None else f"process {worker['pid']} of the machine {host}"
    return (
        f"{who} still trains with the code as it was, so nothing can begin anew with the changed "
        "code: its checkpoints would be deleted; end it first (Ctrl-C, or scancel for jobs), or "
        "name a new folder with --out."
    )


def run(
    experiment: Experiment,
    out_dir: str | Path,
    workers: int | None = None,
    folds_at_once: int = 1,
    together: int = 1,
    watch: Callable[[Campaign], None] = lambda campaign: None,
    launcher: Launcher = "local",
    tell: Callable[[str], None] = lambda text: None,
    devices: Sequence[str | int] = (),
) -> ExperimentResults:
    """Run an experiment to its end, or continue it, and write the report.

    >>> import reality_check as rc
    >>> experiment = rc.load_experiment("quickstart", ["protocol.search.trials=4"])
    >>> results = rc.run(experiment, "runs/quick", workers=2)  # doctest: +SKIP
    >>> results.records()[0]  # doctest: +SKIP
    {'experiment': 'quickstart', 'method': 'normalized_softmax', 'category': 'aggregate', ...}

    Called again with the same experiment and folder, it continues where it was stopped; once all
    is done, it only writes the report.

    The work is done by ``workers`` processes, each with one BLAS thread. On a CPU, one worker gives
    the same results however often it was stopped; with several workers each trial is a pure
    function of its parameters, but which parameters the search tries depends on their timing.

    Args:
        experiment: see :func:`reality_check.load_experiment`.
        out_dir: its output folder; made if it is not there.
        workers: how many processes ask for trials at a time; by default one, or one for each of
            ``devices``.
        folds_at_once: how many folds of a trial each worker trains at a time, in processes of
            their own. The results are the same.
        together: how many processes (on GPUs: one each) train each network together, every one on
            its part of the batch (DistributedDataParallel). Not with ``folds_at_once``.
        watch: called several times a second while workers run.
        launcher: ``local`` (processes of this machine) or ``slurm`` (jobs of a cluster, see the
            experiment's block ``slurm``; they go on when this process ends).
        tell: called with a sentence when jobs of a cluster are submitted, found or lost, and when
            workers with earlier code are looked for.
        devices: what the workers of this machine train on, in turn, instead of the experiment's
            ``device``: numbers of GPUs (``0`` or ``"cuda:0"``), or ``"cpu"``.

    Returns:
        Everything that was measured, as plain data.

    Raises:
        UsageError: the experiment cannot run as it is given.
        WorkFailed: a training raised an exception.
    """
    if workers is not None and workers < 1:
        raise UsageError(f"workers must be at least 1, got {workers}.")
    _check_processes(experiment, folds_at_once, together)
    if launcher == "slurm":
        _check_slurm(together, devices)
    named = parse_devices(devices)
    shared = share_out(named, workers, together)
    if named:
        experiment = experiment.model_copy(update={"device": named[0].partition(":")[0]})
    folder = Path(out_dir)
    check_workers(experiment.storage, len(shared))
    processes = (shared, folds_at_once, together)
    with (
        lent_password(experiment.storage),
        _prepared(experiment, folder, launcher == "local", tell) as (locked, dataset),
    ):
        return _work(locked, dataset, folder, processes, watch, launcher, tell)


def _work(
    locked: Experiment,
    dataset: ImageSet,
    folder: Path,
    processes: tuple[Sequence[Sequence[str]], int, int],
    watch: Callable[[Campaign], None],
    launcher: Launcher,
    tell: Callable[[str], None],
) -> ExperimentResults:
    campaign = Campaign(locked, folder)
    campaign.record_data(dataset, _device_of_jobs(locked) if launcher == "slurm" else None)
    for unit in campaign.units():
        unit.study.start_afresh()
    if not campaign.is_complete():
        workers: LocalWorkers | SlurmWorkers
        if launcher == "slurm":
            workers = SlurmWorkers(campaign, len(processes[0]), processes[1], tell=tell)
        else:
            workers = LocalWorkers(folder, *processes)
        try:
            workers.wait(lambda: watch(campaign))
        except KeyboardInterrupt:
            workers.stop()
            if launcher == "local":
                _give_back(campaign)
            raise
        finally:
            workers.stop()
    return _write(campaign)


def _give_back(campaign: Campaign) -> None:
    """Free what the stopped workers had: another machine, which cannot see them, goes on at once.

    So it also draws the same trials as this machine would.
    """
    for unit in campaign.units():
        unit.study.release_lost()


def _device_of_jobs(experiment: Experiment) -> str:
    if experiment.device != "auto":
        return experiment.device
    return "cpu" if experiment.slurm.gpus == 0 else "cuda"


def _check_slurm(together: int, devices: Sequence[str | int]) -> None:
    if devices:
        raise UsageError(
            "devices are for the local launcher; SLURM itself gives each job its GPUs, see "
            "slurm.gpus."
        )
    if together > 1:
        raise UsageError(
            f"together={together} works with the local launcher only; write folds_at_once instead, "
            "or call run without --launcher slurm inside a job of your own."
        )
    require_slurm()


def _check_processes(experiment: Experiment, folds_at_once: int, together: int) -> None:
    if min(folds_at_once, together) < 1 or (folds_at_once > 1 and together > 1):
        raise UsageError(
            f"folds_at_once={folds_at_once} and together={together}, but both must be at least 1 "
            "and only one of them more: either folds side by side, or one network together."
        )
    for method in experiment.methods:
        batch = experiment.training_of(method).batch_size
        if batch % together:
            raise UsageError(
                f"batch_size={batch} cannot be divided among {together} processes; write a "
                f"multiple of {together}."
            )


def report(out_dir: str | Path, compare_published: bool = False) -> ExperimentResults:
    """Write the report of an output folder anew from its records.

    Args:
        out_dir: of the experiment.
        compare_published: whether published tables of the same data set stand beside the results
            (:mod:`reality_check.comparable`).

    Raises:
        UsageError: the folder is none of ours, or there is nothing to compare it with.
    """
    folder = Path(out_dir)
    experiment = load_locked(folder)
    tables = comparable_tables(experiment) if compare_published else ()
    return _write(Campaign(experiment, folder), tables)


def report_folders(folders: Sequence[str | Path], out_dir: str | Path) -> list[ExperimentResults]:
    """Write one report of several output folders.

    Where data set, split, network and protocol are the same, all methods stand in one table. Else
    each group that shares them has its own, and the report says what differs.

    Args:
        folders: at least two; none is written to.
        out_dir: for the report; no output folder of an experiment.

    Returns:
        The results of each group, in the order of the folders.

    Raises:
        UsageError: a folder is none of ours or named twice, or ``out_dir`` is an output folder.
    """
    target, paths = Path(out_dir), [Path(folder) for folder in folders]
    if (target / "experiment.yaml").exists():
        raise UsageError(
            f"--out {target} is the output folder of an experiment, whose own report would be "
            "overwritten; name another folder for the report of several."
        )
    labels = folder_labels(paths)
    sources = [
        Source(label, path, load_results(path)) for label, path in zip(labels, paths, strict=True)
    ]
    found = groups(sources)
    results = [combine(group) for group in found]
    if len(found) == 1:
        write_report(results[0], target)
        return results
    keys = {
        key for one, other in itertools.combinations(results, 2) for key in differences(one, other)
    }
    described = [tuple(map(describe, group)) for group in found]
    write_grouped_report(list(zip(results, described, strict=True)), sorted(keys), target)
    return results


def load_results(out_dir: str | Path) -> ExperimentResults:
    """Read the results of an output folder, finished or not. Nothing is trained or written.

    >>> import reality_check as rc
    >>> results = rc.load_results("runs/quickstart")  # doctest: +SKIP
    >>> results.finished  # doctest: +SKIP
    True
    >>> table = pandas.DataFrame(results.records())  # doctest: +SKIP

    Args:
        out_dir: what ``--out`` named, with ``experiment.yaml`` and the records of the trainings in
            it (or in the storage that the experiment names).

    Returns:
        The same plain data as :func:`run` returns.

    Raises:
        UsageError: the folder is none of ours, or its records are not there.
    """
    folder = Path(out_dir)
    experiment = load_locked(folder)
    if experiment.storage is None and not (folder / "studies.db").exists():
        raise UsageError(
            f"{folder} has no studies.db, the record of all trainings, so there are no results to "
            "load; name the folder that the run wrote."
        )
    return collect(Campaign(experiment, folder))


def _write(campaign: Campaign, published: tuple[PublishedResults, ...] = ()) -> ExperimentResults:
    results = dataclasses.replace(collect(campaign), published=published)
    write_report(results, campaign.out_dir)
    return results
