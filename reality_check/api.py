"""Running an experiment: check everything, start workers, watch them, write the report."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from reality_check.config.metrics import Stage
from reality_check.config.published_scores import PublishedResults
from reality_check.config.schema import Experiment
from reality_check.config.source_code import sources_of
from reality_check.config.suite import Suite, check_alike
from reality_check.papers.published_comparison import comparable_tables
from reality_check.registry.joining import joined
from reality_check.registry.pack import (
    open_pack,
    pack_bytes,
    public,
    recorded_of,
    unpacked,
    without_queries,
    write_folder,
)
from reality_check.report.collect import collect
from reality_check.report.combine import (
    Source,
    combine,
    differences,
    folder_labels,
    groups,
)
from reality_check.report.leaderboard import leaderboard_html
from reality_check.report.own_columns import compute_columns
from reality_check.report.writing import (
    pack_pages,
    write_report,
    write_suite_report,
)
from reality_check.results import ExperimentResults, SuiteResults
from reality_check.studies.folder_server import SERVER
from reality_check.studies.growth import read_steps
from reality_check.studies.output_folder import (
    check_same_experiment,
    describe_differences,
    load_locked,
)
from reality_check.studies.plan import StudyKey
from reality_check.studies.recorded_experiment import (
    RecordedExperiment,
    read_experiment,
    read_recorded,
)
from reality_check.studies.suite_folder import (
    is_suite,
    lock_suite,
    member_folders,
    suite_name,
)
from reality_check.trackers.tracking import Tracking
from reality_check.utils.errors import UsageError, WorkFailed, every, labelled
from reality_check.utils.files import atomic_write
from reality_check.utils.interrupt import Stopped
from reality_check.utils.passwords import lent_password
from reality_check.utils.text import nearest

if TYPE_CHECKING:  # not importing PyTorch makes writing a report 2.5 s faster
    from reality_check.evaluation.trained_network import TrainedNetwork
    from reality_check.launch.parallelism import Parallelism


def run(
    experiment: Experiment,
    out_dir: str | Path,
    workers: int | Parallelism | None = None,
    watch: Callable[[RecordedExperiment], None] = lambda recorded: None,
    log: Callable[[str], None] = lambda text: None,
    trackers: Sequence[str] = (),
    max_seconds: float = math.inf,
) -> ExperimentResults:
    """Run an experiment to its end, or continue it, and write the report.

    >>> import reality_check as rc
    >>> experiment = rc.load_experiment("quickstart", ["protocol.search.trials=8"])
    >>> results = rc.run(experiment, "runs/quick", workers=2)  # doctest: +SKIP
    >>> results.records()[0]  # doctest: +SKIP
    {'experiment': 'quickstart', 'method': 'normalized_softmax', 'category': 'aggregate', ...}

    Called again with the same experiment and folder, it continues where it was stopped; once all
    is done, it only writes the report.

    Each worker is a process with one BLAS thread. On a CPU, one worker gives the same results
    however often it was stopped; with several workers each trial is a pure function of its
    parameters, but which parameters an adaptive sampler tries depends on their timing.

    Args:
        experiment: see :func:`reality_check.load_experiment`.
        out_dir: The output folder, created if missing.
        workers: The number of worker processes, or a :class:`Parallelism` with further options:
            devices, several processes for each worker, jobs of a cluster.
        watch: called several times a second while workers run.
        log: called with a sentence when workers are asked to stop, when jobs of a cluster are
            submitted, found or lost, and when the experiment has changed and earlier workers may
            still be running.
        trackers: names of trackers that get the finished trials, see :func:`track`.
        max_seconds: The time from this call after which each worker stops at the end of its
            current epoch, or is killed 2 minutes later. By default they work to the end.

    Returns:
        Everything that was measured, as plain data. If ``max_seconds`` were not enough,
        ``finished`` is false, and nothing has an interval or a test.

    Raises:
        UsageError: the experiment cannot run as it is given.
        WorkFailed: a training raised an exception.
    """
    folder, options = Path(out_dir), (workers, watch, log, trackers, max_seconds)
    return _run({folder: experiment}, folder, *options)[0][0]


def run_suite(
    suite: Suite,
    out_dir: str | Path,
    workers: int | Parallelism | None = None,
    watch: Callable[[RecordedExperiment], None] = lambda recorded: None,
    log: Callable[[str], None] = lambda text: None,
    trackers: Sequence[str] = (),
    max_seconds: float = math.inf,
) -> SuiteResults:
    """Run a suite to its end, or continue it, and write the report over all data sets.

    Workers go on to the next data set when nothing is free in the one before. If a training raises
    an exception, the other data sets are finished first. Called again with further data sets, it
    runs these.

    Args:
        suite: see :func:`reality_check.load_suite`.
        out_dir: The output folder, in which every data set has the output folder of an experiment.
        workers: as for :func:`run`.
        watch: called several times a second with the first experiment that is not complete.
        log: as for :func:`run`.
        trackers: as for :func:`run`.
        max_seconds: as for :func:`run`.

    Raises:
        UsageError: an experiment cannot run as it is given.
        WorkFailed: a training raised an exception; the report is written before.
    """
    folder, options = Path(out_dir), (workers, watch, log, trackers, max_seconds)
    members = {folder / name: experiment for name, experiment in suite.members.items()}
    if getattr(workers, "processes_per_network", 1) > 1:
        raise UsageError(
            "--processes-per-network is for one experiment; run the data sets of the suite one by "
            "one, then reality-check report DIR DIR ... --across --out DIR."
        )
    results, failure = _run(members, folder, *options, begin=lock_suite(suite, folder))
    over_all = SuiteResults(suite.name, dict(zip(suite.members, results, strict=True)))
    write_suite_report(over_all, folder)
    if failure is not None:
        raise failure
    return over_all


def _run(
    members: Mapping[Path, Experiment],
    out_dir: Path,
    workers: int | Parallelism | None,
    watch: Callable[[RecordedExperiment], None],
    log: Callable[[str], None],
    trackers: Sequence[str],
    max_seconds: float,
    begin: contextlib.AbstractContextManager[None] | None = None,
) -> tuple[list[ExperimentResults], Exception | None]:
    """Run the experiment, or those of a suite, of each folder; see :func:`run`.

    Returns:
        The results, whose reports are written, and why the work on a suite failed.
    """
    from reality_check.launch.check import check
    from reality_check.launch.open_folder import open_folder
    from reality_check.launch.parallelism import Parallelism
    from reality_check.launch.work import work

    parallelism = workers if isinstance(workers, Parallelism) else Parallelism(workers)
    deadline = time.monotonic() + max_seconds
    if deadline < math.inf and parallelism.launcher != "local":
        raise UsageError(
            "--for (max_seconds) is for workers of this machine, but jobs continue without this "
            "command: leave it out, or limit each job (of SLURM with slurm.hours)."
        )
    tracking: dict[Path, Tracking] = {}
    with contextlib.ExitStack() as stack:
        checks = []
        for folder, experiment in members.items():
            parallelism.check(experiment)
            tracking[folder] = Tracking(experiment.name, folder, trackers)
            stack.enter_context(lent_password(experiment.storage))
            on_device = parallelism.on_device(experiment)
            is_trained_here = parallelism.launcher == "local"
            one = partial(check, on_device, is_trained_here, read_steps(folder))
            checks.append(one if len(members) == 1 else partial(labelled, folder.name, one))
        checked = every(checks)
        if len(members) > 1:
            plain = [each.experiment.plain() | {"code": dict(each.code)} for each in checked]
            check_alike({f.name: item for f, item in zip(members, plain, strict=True)})
        if parallelism.launcher == "slurm" and checked[0].experiment.storage == SERVER:
            from reality_check.launch.server_job import server_job  # needs submitit

            stack.enter_context(server_job(checked[0].experiment, out_dir, parallelism, log))
        with begin or contextlib.nullcontext():
            opened = [
                stack.enter_context(open_folder(each, folder, log))
                for each, folder in zip(checked, members, strict=True)
            ]

        def watch_and_track(recorded: RecordedExperiment) -> None:
            watch(recorded)
            tracking[recorded.out_dir](recorded)

        failure: Exception | None = None
        try:
            with contextlib.suppress(Stopped):  # the time is over
                work(opened, out_dir, parallelism, watch_and_track, log, deadline)
        except (UsageError, WorkFailed) as error:
            if len(members) == 1:
                raise
            failure = error
        for recorded in opened:
            tracking[recorded.out_dir].finish(recorded)
            if recorded.is_complete():
                compute_columns(recorded, partial(collect, recorded, importance=False), log)
        return [_write(recorded) for recorded in opened], failure


def track(out_dir: str | Path, trackers: Sequence[str]) -> Tracking:
    """Send trackers the finished trials of an output folder that they have not received yet.

    Args:
        out_dir: The experiment's output folder.
        trackers: ``mlflow``, ``tensorboard``, ``wandb``, or names that other packages add
            (:mod:`reality_check.trackers.tracking`).

    Returns:
        A :class:`Tracking`: ``sent`` counts the trials sent to each tracker, and ``problems`` says
        why a tracker failed.

    Raises:
        UsageError: this is not an output folder of reality-check, its records are not there, there
            is no tracker of a name, or its package is missing.
    """
    recorded = read_recorded(Path(out_dir))
    tracking = Tracking(recorded.experiment.name, recorded.out_dir, trackers)
    tracking.finish(recorded)
    return tracking


def report_across(folders: Sequence[str | Path], out_dir: str | Path) -> SuiteResults:
    """Write one report over several data sets, from finished runs of the same methods.

    Args:
        folders: At least two output folders or packs, of a data set each, which are only read.
        out_dir: The folder for the report, which must not be the output folder of a run.

    Raises:
        UsageError: a run cannot be read, two have the same data set, or they differ in what must be
            the same for one verdict; or ``out_dir`` is an output folder.
    """
    target = _report_folder(Path(out_dir))
    members = {source.label: source.results for source in _sources(folders)}
    results = SuiteResults(" + ".join(members), members)
    write_suite_report(results, target)
    return results


def report(
    out_dir: str | Path, compare_published: bool = False
) -> ExperimentResults | SuiteResults:
    """Write the report of an output folder again, from its records.

    Args:
        out_dir: The output folder of an experiment, or of a suite, with those of its data sets.
        compare_published: whether published tables of the same data set are compared with the
            results (:mod:`reality_check.papers.published_comparison`).

    Raises:
        UsageError: this is not an output folder of reality-check, its records are not there, or
            there is nothing to compare it with.
    """
    folder = Path(out_dir)
    if is_suite(folder) and not compare_published:
        results = _suite_results(folder, lambda member: _write(read_recorded(member)))
        write_suite_report(results, folder)
        return results
    tables = comparable_tables(load_locked(folder)) if compare_published else ()
    return _write(read_recorded(folder), tables)


def _suite_results(folder: Path, read: Callable[[Path], ExperimentResults]) -> SuiteResults:
    """Return the results of a suite's output folder, those of each data set by ``read``."""
    members = {member.name: read(member) for member in member_folders(folder)}
    return SuiteResults(suite_name(folder), members)


def report_folders(folders: Sequence[str | Path], out_dir: str | Path) -> ExperimentResults:
    """Write one report of several output folders, with all their methods in its tables.

    Args:
        folders: Output folders or packs with the same data set, split, network and protocol, which
            are only read.
        out_dir: The folder for the report, which must not be the output folder of an experiment.

    Raises:
        UsageError: a folder was not written by reality-check or is named twice, their numbers are
            not comparable, or ``out_dir`` is an output folder.
    """
    target, sources = _report_folder(Path(out_dir)), _sources(folders)
    for source in sources[1:]:
        first = sources[0]
        if keys := differences(first.results, source.results):
            both = describe_differences(
                keys, first.results.config, source.results.config, (first.label, source.label)
            )
            raise UsageError(
                f"{first.path} and {source.path} are not comparable: {both}. A method with a "
                "higher number in another data set, split, network or protocol is not better: "
                "write a report of each; with --across, the same methods on different data sets "
                "get one verdict."
            )
    results = combine(sources)
    write_report(results, target)
    return results


def _report_folder(path: Path) -> Path:
    """Return a folder for a report of several runs, unless it is the output folder of one."""
    if (path / "experiment.yaml").exists() or is_suite(path):
        raise UsageError(
            f"--out {path} is the output folder of a run, whose own report would be "
            "overwritten; name another folder for the report of several."
        )
    return path


def pack(out_dir: str | Path, file: str | Path | None = None, queries: bool = True) -> Path:
    """Write a finished output folder as one file that others can compare with.

    Args:
        out_dir: The experiment's output folder.
        file: The file to write; by default ``NAME.pack`` beside the folder.
        queries: Whether to include the scores of every query, which make up most of a pack.

    Returns:
        The path of the pack.

    Raises:
        UsageError: this is not an output folder of reality-check, its run is not finished, or its
            records are not there.
    """
    folder = Path(out_dir)
    target = folder.resolve().with_name(f"{folder.resolve().name}.pack")
    target = _checked_file(target if file is None else Path(file))
    content = public(open_pack(folder))
    if not queries:
        content = without_queries(content)
    atomic_write(target, pack_bytes(content, pack_pages(collect(unpacked(content)))))
    return target


def _checked_file(path: Path) -> Path:
    """Return the path of a file to write, unless it is a folder."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name the file to write with --out.")
    return path


def merge(sources: Sequence[str | Path], out_dir: str | Path) -> ExperimentResults:
    """Join finished runs of different methods into one output folder, and write its report.

    Args:
        sources: output folders or packs with the same data set, split, network, protocol and seed.
            One pack alone becomes an output folder again, without networks.
        out_dir: A new or empty folder for the joint run.

    Raises:
        UsageError: the runs differ in settings, or two have a method of the same name.
    """
    folder_labels([Path(source) for source in sources])  # raises if one is named twice
    folder = Path(out_dir)
    joint_run = joined([open_pack(Path(source)) for source in sources])
    if check_same_experiment(joint_run.experiment, folder):
        raise UsageError(f"{folder} holds this joint run already; name a new folder with --out.")
    write_folder(joint_run, folder)
    return _write(read_recorded(folder))


def leaderboard(runs: Sequence[str | Path], file: str | Path) -> int:
    """Write a page that compares finished runs, with one table per data set and protocol.

    Args:
        runs: Output folders and packs.
        file: The HTML file to write.

    Returns:
        The number of tables. Runs in different tables are not comparable.

    Raises:
        UsageError: a run cannot be read, is not finished, or is the same as another one.
    """
    target = _checked_file(Path(file))
    grouped = groups(_sources(runs, importance=False))
    atomic_write(target, leaderboard_html(grouped))
    return len(grouped)


def _sources(folders: Sequence[str | Path], importance: bool = True) -> list[Source]:
    """Return the results in folders or packs, each with its path and a label that names it."""
    paths = [member for folder in folders for member in member_folders(Path(folder))]
    return [
        Source(label, path, collect(recorded_of(path), importance=importance))
        for label, path in zip(folder_labels(paths), paths, strict=True)
    ]


def load_results(out_dir: str | Path) -> ExperimentResults | SuiteResults:
    """Read the results of an output folder, finished or not. Nothing is trained or written.

    >>> import reality_check as rc
    >>> results = rc.load_results("runs/quickstart")  # doctest: +SKIP
    >>> results.finished  # doctest: +SKIP
    True
    >>> table = pandas.DataFrame(results.records())  # doctest: +SKIP

    Args:
        out_dir: The output folder, with ``experiment.yaml`` and the records of the trainings (or
            with these in the storage that the experiment names); or a pack, see :func:`pack`; or
            the output folder of a suite.

    Returns:
        The same plain data as :func:`run` returns, or :func:`run_suite` for a suite.

    Raises:
        UsageError: this is not an output folder of reality-check, or its records are not there.
    """
    folder = Path(out_dir)
    if not is_suite(folder):
        return collect(recorded_of(folder))
    return _suite_results(folder, lambda member: collect(recorded_of(member)))


def load_network(
    out_dir: str | Path, method: str, reproduction: int = 0, fold: int | None = 0
) -> TrainedNetwork:
    """Load the network that a reproduction saved, onto the CPU.

    >>> import reality_check as rc
    >>> trained = rc.load_network("runs/quickstart", "contrastive")  # doctest: +SKIP
    >>> trained.embed(images).shape  # doctest: +SKIP
    torch.Size([5760, 32])

    Args:
        out_dir: The experiment's output folder. The images are not needed.
        method: The name of the method.
        reproduction: The number of the reproduction, counted from 0.
        fold: The fold whose network is loaded, counted from 0; ``None`` for the network trained on
            all classes (category "complete").

    Raises:
        UsageError: this is not an output folder of reality-check, or it has no such network.
    """
    with sources_of(Path(out_dir)):
        return _load_network(Path(out_dir), method, reproduction, fold)


def _load_network(folder: Path, method: str, reproduction: int, fold: int | None) -> TrainedNetwork:
    """Load a network for :func:`load_network`, which makes the folder's own sources importable."""
    from reality_check.evaluation.trained_network import TrainedNetwork
    from reality_check.launch.scorer import load_kept
    from reality_check.training.prepared_experiment import PreparedExperiment, described_input

    recorded = read_experiment(folder)
    names = [item.name for item in recorded.experiment.methods]
    if method not in names:
        raise UsageError(
            f"{folder} has no method {method!r}; write one of {', '.join(names)}."
            f"{nearest(method, names)}"
        )
    prepared = PreparedExperiment(recorded.experiment)
    settings = prepared.method(method)
    stage, number = Stage.FINAL if fold is None else Stage.REPRODUCTIONS, reproduction
    if recorded.experiment.protocol.search.retrain == "none":
        state = recorded.states().begun().get(StudyKey(method, stage))
        if state is not None and 0 <= reproduction < state.num_trials:
            own = state.own_trial(reproduction)
            stage, number = (stage, number) if own is None else (Stage.SEARCH, own.trial_index or 0)
    inputs = recorded.attribute("inputs")  # if none are recorded, the data set is read
    shape = prepared.input_shape(method) if inputs is None else described_input(inputs[method])
    try:
        # The only network of a final run counts as that of fold 0.
        network = load_kept(folder, settings, (stage, number, fold or 0), shape)
    except FileNotFoundError as error:
        raise UsageError(
            f"there is no {error}; write the numbers, from 0 on, of a reproduction and a fold that "
            "were trained."
        ) from None
    return TrainedNetwork(network.eval(), settings.model, settings.training)


def _write(
    recorded: RecordedExperiment, published: tuple[PublishedResults, ...] = ()
) -> ExperimentResults:
    """Write the report of an experiment with ``published`` tables, and return its results."""
    results = dataclasses.replace(collect(recorded), published=published)
    write_report(results, recorded.out_dir)
    return results
