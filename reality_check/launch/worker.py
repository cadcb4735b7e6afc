"""A worker: a process that runs trials from the storage until none is left."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from reality_check.config.source_code import use_sources
from reality_check.data.residency import WORKERS_ON_GPU, share_gpu
from reality_check.launch.local import (
    forget_failure,
    log_path,
    redirect_output_to,
    write_failure,
    write_progress,
)
from reality_check.launch.trial_runner import TrialRunner
from reality_check.launch.work_loop import WorkLoop, work_on
from reality_check.studies.finished import stamped
from reality_check.studies.output_folder import load_locked
from reality_check.studies.recorded_experiment import RecordedExperiment, check_studies
from reality_check.studies.suite_folder import member_folders
from reality_check.training.prepared_experiment import PreparedExperiment
from reality_check.training.strategy import DistributedStrategy, Strategy
from reality_check.utils import interrupt as stopping
from reality_check.utils.errors import UsageError, WorkFailed
from reality_check.utils.exit_status import DONE, FAILED, STOPPED, UNEXPLAINED, USAGE
from reality_check.utils.interrupt import Stopped
from reality_check.utils.printable import printable_output
from reality_check.utils.processes import die_with_parent, keep_freed_memory, this_process


def work(
    out_dir: Path,
    number: int,
    folds_at_once: int = 1,
    strategy: Strategy | None = None,
    storage: str | None = None,
) -> int:
    """Work on the experiment of an output folder until nothing is left; return an exit status.

    Args:
        out_dir: the output folder.
        number: the number of this worker.
        folds_at_once: the number of folds of a trial that are trained at a time.
        strategy: the processes that train each network together, if there are several.
        storage: the URL of the storage from this machine, if it differs from that of the folder.
    """
    torch.set_num_threads(1)
    keep_freed_memory()
    # If folds are trained in other processes, this process uploads samples too when it scores, so
    # it is one more that shares the GPU's memory.
    processes = folds_at_once + int(folds_at_once > 1)
    share_gpu(processes * int(os.environ.get(WORKERS_ON_GPU, "1")))
    worker = this_process()
    with contextlib.ExitStack() as stack:
        try:
            where = f"process {worker['pid']} on {worker['host'].partition('/')[0]}"
            print(stamped(f"worker {number} begins: {where}"), flush=True)
            members = [
                _Member(folder, number, folds_at_once, strategy, storage)
                for folder in member_folders(out_dir)
            ]
            for member in members:
                stack.callback(member.runner.close)
            _run_work_loop(members)
        except Stopped:
            print("asked to stop; the checkpoint is written", file=sys.stderr)
            return STOPPED
        except UsageError as error:
            return _report_failure(out_dir, number, USAGE, str(error))
        except WorkFailed as error:
            return _report_failure(out_dir, number, FAILED, str(error), error.__cause__)
        except (Exception, SystemExit) as error:
            text = f"{type(error).__name__}: {error}"
            return _report_failure(out_dir, number, FAILED, text, error)
    return DONE


class _Member:
    """An experiment that a worker works on, alone or as a part of a suite."""

    def __init__(
        self,
        folder: Path,
        number: int,
        folds_at_once: int,
        strategy: Strategy | None,
        storage: str | None,
    ) -> None:
        use_sources(folder)
        experiment = load_locked(folder)
        if storage is not None:
            experiment = experiment.model_copy(update={"storage": storage})
            # Opened without waiting for a server, so that a wrong URL is reported at once.
            check_studies(
                experiment, RecordedExperiment(experiment, folder, only_reads=True).storage
            )
        self.recorded = RecordedExperiment(experiment, folder, wait_for_storage=True)
        prepared, worker = PreparedExperiment(experiment), this_process()

        def on_progress(state: dict[str, Any]) -> None:
            state = {"worker": worker, "number": number, "time": time.time(), **state}
            with contextlib.suppress(OSError):
                write_progress(folder, number, json.dumps(state))

        self.runner = TrialRunner(prepared, folder, on_progress, folds_at_once, strategy)
        self.loop = WorkLoop(self.recorded, self.runner)


def _run_work_loop(members: Sequence[_Member]) -> None:
    """Run trials or, in processes that only help to train networks, take part in trainings."""
    first, *_ = members
    if not first.runner.strategy.is_main:
        first.runner.follow()
        return
    work_on([member.loop for member in members])


def join(
    out_dir: Path, folds_at_once: int = 1, storage: str | None = None, number: int | None = None
) -> int:
    """Run a worker that was started by hand or by a scheduler; return an exit status.

    SIGTERM, SIGUSR1 and SIGUSR2 ask the worker to stop at a point from which it can resume. If a
    run has given it a ``number``, its output goes to its log, and that it stopped is recorded.
    """
    os.environ["PYTHONSAFEPATH"] = "1"  # for its processes, as in workers of a run
    signals = [signal.SIGTERM]
    if sys.platform != "win32":
        signals += [signal.SIGUSR1, signal.SIGUSR2]
    with stopping.heeding(*signals):
        if number is None:
            return work(out_dir, _worker_number(), folds_at_once, storage=storage)
        redirect_output_to(log_path(out_dir, number))
        forget_failure(out_dir, number)  # of an earlier start of the same job
        status = work(out_dir, number, folds_at_once, storage=storage)
        if status == STOPPED:
            write_failure(out_dir, number, status, "asked to stop")
        return status


def _worker_number() -> int:
    """Return the id of the SLURM job if this is its first process, otherwise the process id.

    Jobs share an output folder, and processes of two machines may have the same id.
    """
    job = os.environ.get("SLURM_JOB_ID", "")
    is_first_process = os.environ.get("SLURM_PROCID", "0") == "0"
    return int(job) if job.isdigit() and is_first_process else os.getpid()


def _report_failure(
    out_dir: Path, number: int, status: int, message: str, cause: BaseException | None = None
) -> int:
    """Write the traceback to the log and the message for the supervisor; return a status."""
    with contextlib.suppress(OSError):  # the log may lie on the full disk
        if cause is not None:
            traceback.print_exception(cause)
        print(message, file=sys.stderr)
    try:
        write_failure(out_dir, number, status, message)
    except OSError:
        return UNEXPLAINED
    return status


def join_process_group() -> Strategy | None:
    """Join torchrun's process group; return ``None`` if torchrun did not start this process.

    Each process gets its own GPU if there are GPUs. Plain data are sent by gloo, tensors on a GPU
    by NCCL.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return None
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    if rank < torch.cuda.device_count():  # more processes than GPUs may train on the CPU
        torch.cuda.set_device(rank)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    # The other processes wait while the main one scores and writes, which can take long.
    torch.distributed.init_process_group(backend, timeout=timedelta(days=7))
    return DistributedStrategy()


def leave_process_group() -> None:
    """End the process group, if there is one.

    Otherwise torch's threads sometimes abort a process when it ends (torch issue 190489), which
    torchrun takes for a failure.
    """
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def main() -> int:
    """Entry point of ``python -m reality_check.launch.worker DIR NUMBER``."""
    parser = argparse.ArgumentParser(prog="python -m reality_check.launch.worker")
    parser.add_argument("out_dir", type=Path)
    parser.add_argument("number", type=int, nargs="?", default=0)
    parser.add_argument("--parent", type=int, help="end at once unless this is the parent process")
    parser.add_argument("--folds-at-once", type=int, default=1)
    options = parser.parse_args()
    printable_output("utf-8")  # the output is a log
    os.environ["PYTHONIOENCODING"] = "utf-8:backslashreplace"  # for fold processes
    die_with_parent()
    if options.parent is not None and os.getppid() != options.parent:
        return FAILED
    strategy = join_process_group()
    if strategy is None and sys.platform != "win32":  # several cannot stop in the same epoch
        stopping.listen(signal.SIGTERM)
    status = work(options.out_dir, options.number, options.folds_at_once, strategy)
    if status == DONE:
        leave_process_group()
    elif torch.distributed.is_initialized():
        # Other processes may be waiting for this one in the middle of a step; torchrun ends them.
        sys.stdout.flush()
        os._exit(status)
    return status


if __name__ == "__main__":
    sys.exit(main())
