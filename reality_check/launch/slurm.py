"""Workers as jobs of a SLURM cluster, which are queued again when their time is over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import submitit
from submitit.helpers import Checkpointable

from reality_check.config.schema import Experiment
from reality_check.config.slurm import Slurm
from reality_check.launch.local import ENVIRONMENT, log_path, redirect_output_to
from reality_check.launch.slurm_queue import cancel, current_job, job_states
from reality_check.utils import interrupt as stopping
from reality_check.utils.errors import UsageError
from reality_check.utils.exit_status import STOPPED

#: How often submitit may queue a job again, in effect without a limit.
_UNLIMITED = 10**6


class SlurmScheduler:
    """SLURM as a :class:`~reality_check.launch.jobs.Scheduler`, by submitit.

    Args:
        experiment: the experiment, with what its jobs request.
        out_dir: the output folder.
        folds_at_once: the number of folds of a trial that each worker trains at a time.
    """

    job, folder, refusal = "SLURM job", "slurm", ""

    def __init__(self, experiment: Experiment, out_dir: Path, folds_at_once: int) -> None:
        self._arguments = experiment, out_dir.resolve(), folds_at_once

    def submit(self, numbers: Sequence[int]) -> Iterator[str]:
        """See :class:`~reality_check.launch.jobs.Scheduler`."""
        experiment, folder, folds_at_once = self._arguments
        count = len(numbers)
        arguments = [str(folder)] * count, list(numbers), [folds_at_once] * count
        parameters = job_parameters(experiment.slurm, experiment.name, experiment.device)
        yield from submit_jobs(parameters, folder / "logs" / self.folder, WorkerJob(), arguments)

    def states(self, jobs: Sequence[str]) -> dict[str, str] | None:
        """See :class:`~reality_check.launch.jobs.Scheduler`."""
        return job_states(jobs)

    def end(self, jobs: Iterable[str], only_waiting: bool = False) -> None:
        """See :class:`~reality_check.launch.jobs.Scheduler`."""
        cancel(jobs, *["--state=PENDING"] * only_waiting)


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

    redirect_output_to(log_path(Path(out_dir), number))
    job = current_job() or ""
    print(f"SLURM job {job} on {os.uname().nodename}, {time.ctime()}", flush=True)
    notices: list[int] = []

    def on_notice(signal_number: int, frame: object) -> None:
        notices.append(signal_number)
        stopping.request()

    stopping.listen(signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
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
