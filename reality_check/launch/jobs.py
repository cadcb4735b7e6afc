"""Workers as jobs of a scheduler, and the process that supervises them.

The jobs run without a supervisor: they take work from the storage until none is left. The
supervisor can end at any time; the next one finds the jobs by their ids, in a file of the output
folder.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from reality_check.launch.local import forget_failure, has_stopped, log_path, raise_failure
from reality_check.launch.slurm_queue import ENDING, OVER, recorded_jobs
from reality_check.studies.recorded_experiment import RecordedExperiment
from reality_check.studies.study import WorkFailed
from reality_check.utils.errors import UsageError
from reality_check.utils.files import atomic_write
from reality_check.utils.interrupt import uninterrupted
from reality_check.utils.own_names import own_path

#: Seconds between two polls of the queue.
POLL_SECONDS = 10.0
#: A call of the command gives up after this many lost jobs per worker, counted over all workers.
MAX_LOST_JOBS = 5


class Scheduler(Protocol):
    """What the supervisor needs of a scheduler.

    Attributes:
        job: what messages call a job.
        folder: the folder in ``logs`` for the jobs' own output; with ``.json``, the file of ids.
        refusal: what it said in place of an answer, if anything.
    """

    job: str
    folder: str
    refusal: str

    def submit(self, numbers: Sequence[int]) -> Iterator[str]:
        """Submit a job for each worker, and yield the jobs' ids in this order.

        Raises:
            UsageError: the scheduler refuses the job.
        """

    def states(self, jobs: Sequence[str]) -> dict[str, str] | None:
        """Return SLURM's word for the state of each job; ``None`` if there is no answer."""

    def end(self, jobs: Iterable[str], only_waiting: bool = False) -> None:
        """End jobs, or those of them that do not run yet."""


class JobWorkers:
    """Submits jobs, or takes over those that still run, and supervises them.

    Args:
        members: the experiments that the workers work on.
        out_dir: the output folder of the experiment or of the suite.
        workers: the number of workers.
        scheduler: where the jobs run.
        log: called with a sentence when jobs are submitted, found or lost.

    Raises:
        UsageError: the scheduler does not answer, or it refuses the job.
    """

    def __init__(
        self,
        members: Sequence[RecordedExperiment],
        out_dir: Path,
        workers: int,
        scheduler: Scheduler,
        log: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._members = members
        self._out_dir = out_dir
        self._scheduler = scheduler
        self._log = log
        self._lost, self._answers = 0, True
        self._file = own_path(out_dir, f"{scheduler.folder}.json")
        self.jobs = self._take_over()  # from the number of a worker to the id of its job
        if self.jobs:
            log(f"{scheduler.job}s that keep running: {', '.join(self.jobs.values())}")
        self._submit([number for number in range(workers) if number not in self.jobs])
        self._most_lost = MAX_LOST_JOBS * len(self.jobs)

    def wait(self, on_tick: Callable[[], None]) -> None:
        """Return when all work is done; ``on_tick`` is called several times a second.

        An interruption (Ctrl-C, a closed terminal) does not end the jobs.

        Raises:
            UsageError: a worker found that the user's input cannot be used.
            WorkFailed: a worker failed, too many jobs were lost, or all were cancelled.
        """
        polled = time.monotonic()
        while True:
            on_tick()
            time.sleep(0.2)
            if time.monotonic() - polled < POLL_SECONDS:
                continue
            try:
                if self._poll():
                    return
            except (UsageError, WorkFailed):
                self._scheduler.end(self.jobs.values())
                raise
            polled = time.monotonic()

    def stop(self) -> None:
        """Do nothing, since jobs keep running without a supervisor."""

    def _is_complete(self) -> bool:
        return all(member.is_complete() for member in self._members)

    def _poll(self) -> bool:
        """Replace lost workers; return whether all work is done."""
        for number in self.jobs:
            raise_failure(self._out_dir, number)
        if self._is_complete():
            # Running jobs end by themselves.
            self._scheduler.end(self.jobs.values(), only_waiting=True)
            return True
        states = self._scheduler.states(list(self.jobs.values()))
        if states is None:
            if self._answers:
                self._log(f"{self._silence()}; the jobs run without it")
            self._answers = False
            return False
        self._answers = True
        ended = {n: states[job] for n, job in self.jobs.items() if states[job] in OVER}
        for number in ended:
            # The failure may have been written since the first check.
            raise_failure(self._out_dir, number)
        # Cancelled jobs are not replaced; after COMPLETED, the others end soon too.
        for number in [n for n, state in ended.items() if state in ("CANCELLED", "COMPLETED")]:
            self._log(f"{self._scheduler.job} {self.jobs.pop(number)}: {ended.pop(number).lower()}")
        if not (ended and self._is_complete()):  # not every scheduler says COMPLETED
            self._replace(ended)
        if not self.jobs and not self._is_complete():
            raise WorkFailed(
                "all jobs have ended (cancelled, or asked to stop) before the work was done; the "
                "same command submits new ones"
            )
        return False

    def _take_over(self) -> dict[int, str]:
        """Return the jobs of an earlier call that still run; delete their recorded failures."""
        known = recorded_jobs(self._file)
        if not known:
            return {}
        states = self._scheduler.states(list(known.values()))
        if states is None:  # without the states, jobs could be submitted twice
            raise UsageError(
                f"{self._silence()}, so it is not known whether the jobs of this folder "
                f"({', '.join(known.values())}) still run; try again later."
            )
        # Jobs that are ending are replaced, so one that asked to be queued again must not return.
        self._scheduler.end(job for job in known.values() if states[job] == ENDING)
        jobs = {n: job for n, job in known.items() if states[job] not in (*OVER, ENDING)}
        for number in jobs:
            forget_failure(self._out_dir, number)
        return jobs

    def _silence(self) -> str:
        said = self._scheduler.refusal
        return f"the scheduler does not answer{f' ({said})' if said else ''}"

    def _replace(self, ended: Mapping[int, str]) -> None:
        """Submit jobs again; ``ended`` has the states of jobs by the numbers of workers."""
        for number, state in ended.items():
            job = f"{self._scheduler.job} {self.jobs[number]}"
            if has_stopped(self._out_dir, number):
                self._log(f"{job} was asked to stop")
                continue
            self._lost += 1
            self._log(f"{job} was lost ({state.lower()})")
            if self._lost > self._most_lost:
                log = log_path(self._out_dir, number)
                raise WorkFailed(
                    f"{self._lost} {self._scheduler.job}s were lost, the last one as {state}; see "
                    f"{log} and {log.parent / self._scheduler.folder}"
                )
        self._submit(list(ended))

    def _submit(self, numbers: Sequence[int]) -> None:
        """Submit jobs for the workers with these numbers, and record the ids of the jobs."""
        if not numbers:
            return
        for number in numbers:
            forget_failure(self._out_dir, number)
        with uninterrupted():  # between a submission and its record
            for number, job in zip(numbers, self._scheduler.submit(numbers), strict=True):
                self.jobs[number] = job
                atomic_write(self._file, json.dumps(dict(sorted(self.jobs.items())), indent=1))
        jobs = ", ".join(self.jobs[number] for number in numbers)
        self._log(f"{self._scheduler.job}s submitted: {jobs}")
