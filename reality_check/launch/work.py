"""Starts the workers of a run, and watches them until nothing is left to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from reality_check.launch.local import LocalWorkers
from reality_check.launch.parallelism import Parallelism
from reality_check.studies.recorded_experiment import RecordedExperiment
from reality_check.utils.interrupt import Stopped

if TYPE_CHECKING:
    from reality_check.launch.slurm import SlurmWorkers


def work(
    recorded: RecordedExperiment,
    parallelism: Parallelism,
    watch: Callable[[RecordedExperiment], None],
    log: Callable[[str], None],
    deadline: float,
) -> None:
    """Work on an experiment until nothing is left, with workers that this process starts.

    Args:
        recorded: the experiment, whose output folder this process has locked.
        parallelism: how many workers there are, and where they run.
        watch: called several times a second while workers run.
        log: called with a sentence when workers are asked to stop, and when jobs of a cluster are
            submitted, found or lost.
        deadline: when workers of this machine are asked to stop, by ``time.monotonic``.

    Raises:
        WorkFailed: a training raised an exception.
        Stopped: the deadline has passed; another call continues.
    """
    if recorded.experiment.storage is None:
        # Only this run uses the folder. In a restarted container it would take minutes to notice
        # that the workers of the previous container have ended.
        recorded.release_all(only_started_by_run=True)
    recorded.clear_failures()
    if recorded.is_complete():
        return
    workers: LocalWorkers | SlurmWorkers
    if parallelism.launcher == "slurm":
        from reality_check.launch.slurm import SlurmWorkers  # needs submitit

        workers = SlurmWorkers(recorded, parallelism, log)
    else:
        workers = LocalWorkers(recorded.out_dir, parallelism, log, deadline)
    try:
        # The workers have begun: a server that is restarted now is waited for, as they do.
        read_only = RecordedExperiment(
            recorded.experiment, recorded.out_dir, wait_for_storage=True, only_reads=True
        )
        workers.wait(lambda: watch(read_only))
    except (KeyboardInterrupt, Stopped):
        workers.stop()
        if parallelism.launcher == "local":
            # Another machine cannot see that the workers have stopped. Now it can continue at
            # once, with the same trials as this machine.
            recorded.release_lost()
        raise
    finally:
        workers.stop()
