"""The server of an output folder as a SLURM job of its own."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from submitit.helpers import Checkpointable

from reality_check.config.schema import Experiment
from reality_check.launch.folder_lease import STALE, age
from reality_check.launch.jobs import MAX_LOST_JOBS, POLL_SECONDS
from reality_check.launch.parallelism import Parallelism
from reality_check.launch.slurm import job_parameters, submit_jobs
from reality_check.launch.slurm_queue import (
    OVER,
    cancel,
    current_job,
    job_states,
    recorded_jobs,
)
from reality_check.launch.storage_server import WORKERS, serve
from reality_check.studies.folder_server import server_url
from reality_check.studies.storage import open_storage
from reality_check.utils.errors import UsageError
from reality_check.utils.files import atomic_write
from reality_check.utils.own_names import own_path


class ServerJob(Checkpointable):
    """The job that submitit pickles; it asks to be requeued when its time is over."""

    def __call__(self, out_dir: str, workers: int) -> None:
        # An earlier server may have been killed with its node a moment ago.
        serve(Path(out_dir), workers, wait_seconds=2 * STALE)
        job = current_job() or ""
        if (job_states([job]) or {}).get(job) == "RUNNING":  # nobody has cancelled it
            subprocess.run(["scontrol", "requeue", job], check=True, timeout=120)


@contextlib.contextmanager
def server_job(
    experiment: Experiment, out_dir: Path, parallelism: Parallelism, log: Callable[[str], None]
) -> Iterator[None]:
    """Have a server for an output folder within the block, which begins when it answers.

    If none runs, it is a job, which is submitted again when it has ended. It is cancelled at the
    end, with workers that have not noticed that all is done, but not by Ctrl-C.

    Args:
        experiment: the experiment, or the first of a suite; its ``slurm`` is for this job too.
        out_dir: the output folder of the experiment or of the suite.
        parallelism: the number of workers.
        log: called with a sentence when a job is submitted.

    Raises:
        UsageError: SLURM refuses the job, or it fails.
    """
    folder = own_path(out_dir, "storage").resolve()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    keeper = _Keeper(experiment, folder, max(parallelism.workers or 1, WORKERS), log)
    keeper.check()
    threading.Thread(target=keeper.keep, daemon=True).start()
    is_left = False
    try:
        while not keeper.is_served():
            if keeper.failure:
                raise UsageError(keeper.failure)
            time.sleep(0.5)
        open_storage(server_url(out_dir), wait=True)
        yield
    except KeyboardInterrupt:
        is_left = True
        raise
    except UsageError:  # such as that another run works on the folder
        is_left = not keeper.submitted
        raise
    finally:
        keeper.done.set()
        if not is_left:
            cancel(recorded_jobs(own_path(out_dir, "slurm.json")).values())
            cancel(keeper.jobs())


class _Keeper:
    """Submits the job of a server, and again when it has ended."""

    def __init__(
        self, experiment: Experiment, folder: Path, workers: int, log: Callable[[str], None]
    ) -> None:
        request = {"gpus": 0, "cpus": 1, "memory": f"{512 + 8 * workers}M"}
        slurm = experiment.slurm.model_copy(update=request)
        self._parameters = job_parameters(slurm, f"{experiment.name}-storage", "cpu")
        self._folder, self._workers, self._log = folder, workers, log
        self._file = folder / "job"
        #: How many jobs were submitted, and why no more are.
        self.submitted, self.failure = 0, ""
        self.done = threading.Event()

    def jobs(self) -> list[str]:
        """Return the job that was submitted last, here or by an earlier call."""
        return [self._file.read_text()] if self._file.exists() else []

    def is_served(self) -> bool:
        """Return whether a server holds the lease, in a job or not."""
        with contextlib.suppress(FileNotFoundError):
            return age(self._folder / "lease") < STALE
        return False

    def check(self) -> None:
        """Submit a job if there is neither a server nor a job that has not ended."""
        jobs = self.jobs()
        states = job_states(jobs)
        if states is None or set(states.values()) - OVER or self.is_served():
            return
        logs = self._folder / "slurm"
        if self.submitted > MAX_LOST_JOBS:
            raise UsageError(
                f"the job of the storage has ended {self.submitted} times; see "
                f"{self._folder / 'log'} and {logs}"
            )
        arguments = [str(self._folder.parent)], [self._workers]
        (job,) = submit_jobs(self._parameters, logs, ServerJob(), arguments)
        self.submitted += 1
        atomic_write(self._file, job)
        self._log(f"SLURM job submitted for the storage: {job}")

    def keep(self) -> None:
        """Check every :data:`POLL_SECONDS` until :attr:`done`."""
        while not self.done.wait(POLL_SECONDS):
            try:
                self.check()
            except UsageError as error:
                self.failure = str(error)
                self._log(self.failure)
                return
