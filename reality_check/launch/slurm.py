"""Workers as jobs of a SLURM cluster, and the process that supervises them.

The jobs run without a supervisor: they take work from the storage until none is left, and are
queued again when their time is over. The supervisor can end at any time; the next one finds the
jobs by their ids in ``slurm.json`` of the output folder.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import submitit
from submitit.helpers import Checkpointable

from reality_check.config.schema import Experiment
from reality_check.config.slurm import Slurm
from reality_check.launch.local import ENVIRONMENT, forget_failure, log_path, raise_failure
from reality_check.launch.parallelism import Parallelism
from reality_check.launch.slurm_queue import (
    ENDING,
    OVER,
    cancel,
    current_job,
    job_states,
    states_or_complain,
)
from reality_check.studies.recorded_experiment import RecordedExperiment
from reality_check.studies.study import WorkFailed
from reality_check.utils import interrupt as stopping
from reality_check.utils.errors import UsageError
from reality_check.utils.exit_status import STOPPED
from reality_check.utils.files import atomic_write
from reality_check.utils.own_names import own_path

#: Seconds between two polls of the queue.
POLL_SECONDS = 10.0
#: A call of the command gives up after this many lost jobs per worker, counted over all workers.
MAX_LOST_JOBS = 5
#: How often submitit may queue a job again, in effect without a limit.
_UNLIMITED = 10**6


class SlurmWorkers:
    """Submits an array of workers, or takes over those that still run, and supervises them.

    Args:
        members: the experiments that the workers work on, of which the first has what jobs request.
        out_dir: the output folder of the experiment or of the suite.
        parallelism: the number of workers, and how each of them trains.
        log: called with a sentence when jobs are submitted, found or lost.

    Raises:
        UsageError: SLURM does not answer, or it refuses the job.
    """

    def __init__(
        self,
        members: Sequence[RecordedExperiment],
        out_dir: Path,
        parallelism: Parallelism,
        log: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._members = members
        self._out_dir = out_dir
        self._folds_at_once = parallelism.folds_at_once
        self._log = log
        self._lost = 0
        self._file = own_path(out_dir, "slurm.json")
        self.jobs = self._take_over()  # from the number of a worker to the id of its job
        if self.jobs:
            log(f"SLURM jobs that keep running: {', '.join(self.jobs.values())}")
        self._submit(
            [number for number in range(parallelism.workers or 1) if number not in self.jobs]
        )
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
                cancel(self.jobs.values())
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
            cancel(self.jobs.values(), "--state=PENDING")  # running jobs end by themselves
            return True
        states = job_states(list(self.jobs.values()))
        if states is None:
            return False  # the controller does not answer, but the jobs run without it
        ended = {n: states[job] for n, job in self.jobs.items() if states[job] in OVER}
        for number in ended:
            # The failure may have been written since the first check.
            raise_failure(self._out_dir, number)
        # Cancelled jobs are not replaced; after COMPLETED, the others end soon too.
        for number in [n for n, state in ended.items() if state in ("CANCELLED", "COMPLETED")]:
            self._log(f"SLURM job {self.jobs.pop(number)}: {ended.pop(number).lower()}")
        self._replace(ended)
        if not self.jobs and not self._is_complete():
            raise WorkFailed(
                "all jobs have ended (cancelled, or asked to stop) before the work was done; the "
                "same command submits new ones"
            )
        return False

    def _take_over(self) -> dict[int, str]:
        """Return the jobs of an earlier call that still run; delete their recorded failures."""
        try:
            known = {int(n): str(job) for n, job in json.loads(self._file.read_text()).items()}
        except (OSError, ValueError):
            return {}
        states = states_or_complain(list(known.values()))
        # Jobs that are ending are replaced, so one that asked to be queued again must not return.
        cancel(job for job in known.values() if states[job] == ENDING)
        jobs = {n: job for n, job in known.items() if states[job] not in (*OVER, ENDING)}
        for number in jobs:
            forget_failure(self._out_dir, number)
        return jobs

    def _replace(self, ended: Mapping[int, str]) -> None:
        """Submit lost jobs again; ``ended`` has the states of jobs by the numbers of workers."""
        for number, state in ended.items():
            self._lost += 1
            self._log(f"SLURM job {self.jobs[number]} was lost ({state.lower()})")
            if self._lost > self._most_lost:
                log = log_path(self._out_dir, number)
                raise WorkFailed(
                    f"{self._lost} SLURM jobs were lost, the last one as {state}; see "
                    f"{log} and {log.parent / 'slurm'}"
                )
        self._submit(list(ended))

    def _submit(self, numbers: Sequence[int]) -> None:
        """Submit jobs for the workers with these numbers, and record the ids of the jobs."""
        if not numbers:
            return
        for number in numbers:
            forget_failure(self._out_dir, number)
        ids = submit(self._members[0].experiment, self._out_dir, numbers, self._folds_at_once)
        self.jobs.update(zip(numbers, ids, strict=True))
        atomic_write(self._file, json.dumps(dict(sorted(self.jobs.items())), indent=1))
        self._log(f"SLURM jobs submitted: {', '.join(ids)}")


def submit(
    experiment: Experiment, out_dir: Path, numbers: Sequence[int], folds_at_once: int
) -> list[str]:
    """Submit an array of workers, and return the ids of their jobs."""
    folder, count = out_dir.resolve(), len(numbers)
    arguments = [str(folder)] * count, list(numbers), [folds_at_once] * count
    parameters = job_parameters(experiment.slurm, experiment.name, experiment.device)
    return submit_jobs(parameters, folder / "logs" / "slurm", WorkerJob(), arguments)


def submit_jobs(
    parameters: Mapping[str, Any],
    logs: Path,
    call: Callable[..., Any],
    arguments: Sequence[Sequence[Any]],
) -> list[str]:
    """Submit an array of jobs and return their ids.

    Args:
        parameters: what each job requests, from :func:`job_parameters`.
        logs: the folder for their output.
        call: what they call.
        arguments: a list for each argument of ``call``, of its values in the jobs.
    """
    if "%" in str(logs):
        raise UsageError(
            f"{logs} has a % in its path, which SLURM replaces in the names of its logs; name "
            "another folder with --out."
        )
    executor = submitit.SlurmExecutor(logs / "%j", max_num_timeout=_UNLIMITED)
    executor.update_parameters(**parameters)
    try:
        jobs = executor.map_array(call, *arguments)
    except submitit.core.utils.FailedJobError as error:
        reason = str(error).strip().splitlines()[-1]
        raise UsageError(
            f"SLURM refuses the job: {reason}. Change slurm: in the experiment, or write --slurm "
            "KEY=VALUE."
        ) from None
    return [job.job_id for job in jobs]


class WorkerJob(Checkpointable):
    """The job that submitit pickles; it is queued again if a signal arrives before our handlers."""

    def __call__(self, out_dir: str, number: int, folds_at_once: int) -> int:
        return start_worker(out_dir, number, folds_at_once)


def start_worker(out_dir: str, number: int, folds_at_once: int) -> int:
    """Run a worker in this job, with its output in the worker's log; return an exit status.

    SIGUSR2 (the time limit is near) and SIGTERM (pre-emption) stop the worker at a point from which
    it can resume. It then asks to be requeued, unless somebody cancelled the job, which sends
    SIGTERM too. SLURM itself requeues only jobs that run until they are killed.
    """
    from reality_check.launch.worker import work

    _redirect_output_to(log_path(Path(out_dir), number))
    job = current_job() or ""
    print(f"SLURM job {job} on {os.uname().nodename}, {time.ctime()}", flush=True)
    notices: list[int] = []

    def on_notice(signal_number: int, frame: object) -> None:
        notices.append(signal_number)
        stopping.request()

    stopping.listen(signal.SIGTERM, signal.SIGUSR2)
    signal.signal(signal.SIGUSR2, on_notice)
    status = work(Path(out_dir), number, folds_at_once)
    # Somebody may have cancelled the job, which is then no longer in the state RUNNING.
    if status == STOPPED and (notices or (job_states([job]) or {}).get(job) == "RUNNING"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # SLURM sends it to jobs that it requeues
        print(f"job {job} asks to be requeued", flush=True)
        subprocess.run(["scontrol", "requeue", job], check=True, timeout=120)
    if status != 0:
        sys.exit(status)
    return status


def job_parameters(slurm: Slurm, name: str, device: str) -> dict[str, Any]:
    """Return the parameters of jobs, as submitit takes them."""
    gpus = slurm.gpus if slurm.gpus is not None else int(device != "cpu")
    options = {
        "partition": slurm.partition,
        "account": slurm.account,
        "qos": slurm.qos,
        "mem": slurm.memory,
        "gres": f"gpu:{gpus}" if gpus else None,
        "requeue": True,
        **slurm.extra,
    }
    return {
        "job_name": f"reality-check-{name}",
        "time": slurm.minutes,
        "cpus_per_task": slurm.cpus,
        # Since SLURM 22.05, steps do not inherit it, and a job's processes would share one CPU.
        "srun_args": [f"--cpus-per-task={slurm.cpus}"],
        "ntasks_per_node": 1,
        "signal_delay_s": slurm.notice_seconds,
        "stderr_to_stdout": True,
        "setup": [*(f"export {variable}=1" for variable in ENVIRONMENT), *slurm.setup],
        "additional_parameters": {key: v for key, v in options.items() if v is not None},
    }


def _redirect_output_to(log: Path) -> None:
    """Append all output of this process, and of processes that it starts, to a file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(output.fileno(), stream.fileno())
