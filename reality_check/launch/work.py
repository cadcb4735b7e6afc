"""Starts the workers of a run, and watches them until nothing is left to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from reality_check.config.schema import Experiment
from reality_check.launch.command import CommandScheduler
from reality_check.launch.jobs import JobWorkers, Scheduler
from reality_check.launch.local import LocalWorkers
from reality_check.launch.parallelism import Parallelism
from reality_check.studies.recorded_experiment import RecordedExperiment
from reality_check.utils.interrupt import Stopped

#: Seconds between two polls of whether the watched experiment of a suite has ended.
_POLL_SECONDS = 5.0


def work(
    members: Sequence[RecordedExperiment],
    out_dir: Path,
    parallelism: Parallelism,
    watch: Callable[[RecordedExperiment], None],
    log: Callable[[str], None],
    deadline: float,
) -> None:
    """Work on experiments until nothing is left, with workers that this process starts.

    Args:
        members: the experiment or, of a suite, those on all data sets, whose output folders this
            process has locked.
        out_dir: the output folder of the experiment or of the suite.
        parallelism: how many workers there are, and where they run.
        watch: called several times a second while workers run, with an experiment that is not
            complete.
        log: called with a sentence when workers are asked to stop, and when jobs of a cluster are
            submitted, found or lost.
        deadline: when workers of this machine are asked to stop, by ``time.monotonic``.

    Raises:
        WorkFailed: a training raised an exception.
        Stopped: the deadline has passed; another call continues.
    """
    for recorded in members:
        if recorded.experiment.storage is None:
            # Only this run uses the folder. In a restarted container it would take minutes to
            # notice that the workers of the previous container have ended.
            recorded.release_all()
        recorded.clear_failures()
    if all(recorded.is_complete() for recorded in members):
        return
    workers: LocalWorkers | JobWorkers
    if parallelism.launcher == "local":
        workers = LocalWorkers(out_dir, parallelism, log, deadline)
    else:
        scheduler = _scheduler(members[0].experiment, out_dir, parallelism)
        workers = JobWorkers(members, out_dir, parallelism.workers or 1, scheduler, log)
    try:
        # The workers have begun: a server that is restarted now is waited for, as they do.
        watched = [
            RecordedExperiment(
                each.experiment, each.out_dir, wait_for_storage=True, only_reads=True
            )
            for each in members
        ]

        polled = time.monotonic()

        def watch_first() -> None:
            nonlocal polled
            watch(watched[0])
            # The last one stays, though it may be complete; a failed one never will be.
            if len(watched) > 1 and time.monotonic() - polled > _POLL_SECONDS:
                polled = time.monotonic()
                states = watched[0].states()
                if states.is_complete() or any(s.failure for s in states.begun().values()):
                    watched.pop(0)

        workers.wait(watch_first)
    except (KeyboardInterrupt, Stopped):
        workers.stop()
        if parallelism.launcher == "local":
            # Another machine cannot see that the workers have stopped. Now it can continue at
            # once, with the same trials as this machine.
            for recorded in members:
                recorded.release_lost()
        raise
    finally:
        workers.stop()


def _scheduler(experiment: Experiment, out_dir: Path, parallelism: Parallelism) -> Scheduler:
    folds_at_once = parallelism.folds_at_once
    if experiment.command is not None and parallelism.launcher == "command":
        return CommandScheduler(experiment.command, experiment.name, out_dir, folds_at_once)
    from reality_check.launch.slurm import SlurmScheduler  # needs submitit

    return SlurmScheduler(experiment, out_dir, folds_at_once)
