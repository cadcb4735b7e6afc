"""Running an experiment: check everything, start workers, watch them, write the report."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from reality_check.config.published import PublishedResults
from reality_check.config.schema import Experiment
from reality_check.data import ImageSet
from reality_check.launch.devices import parse_devices, share_out
from reality_check.launch.local import LocalWorkers
from reality_check.launch.prepare import (
    _check_processes,
    _check_slurm,
    _prepared,
)
from reality_check.launch.slurm import SlurmWorkers
from reality_check.papers.published_tables import comparable_tables
from reality_check.report import write_grouped_report, write_report
from reality_check.report.collect import collect
from reality_check.report.combine import (
    Source,
    combine,
    describe,
    differences,
    folder_labels,
    groups,
)
from reality_check.results import ExperimentResults
from reality_check.studies.campaign import (
    Campaign,
)
from reality_check.studies.output_folder import (
    load_locked,
)
from reality_check.studies.storage import check_workers
from reality_check.utils.errors import UsageError
from reality_check.utils.passwords import lent_password

#: Who starts the workers.
Launcher = Literal["local", "slurm"]


def run(
    experiment: Experiment,
    out_dir: str | Path,
    workers: int | None = None,
    folds_at_once: int = 1,
    processes_per_network: int = 1,
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
        processes_per_network: how many processes (on GPUs: one each) train each network together,
            every one on its part of the batch (DistributedDataParallel). Not with
            ``folds_at_once``.
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
    _check_processes(experiment, folds_at_once, processes_per_network)
    if launcher == "slurm":
        _check_slurm(processes_per_network, devices)
    named = parse_devices(devices)
    shared = share_out(named, workers, processes_per_network)
    if named:
        experiment = experiment.model_copy(update={"device": named[0].partition(":")[0]})
    folder = Path(out_dir)
    check_workers(experiment.storage, len(shared))
    processes = (shared, folds_at_once, processes_per_network)
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
        unit.study.clear_failures()
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


def report(out_dir: str | Path, compare_published: bool = False) -> ExperimentResults:
    """Write the report of an output folder anew from its records.

    Args:
        out_dir: of the experiment.
        compare_published: whether published tables of the same data set stand beside the results
            (:mod:`reality_check.papers.published_tables`).

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
