"""Worker processes on this machine, and the process that supervises them."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reality_check.data.residency import WORKERS_ON_GPU
from reality_check.launch.devices import environment
from reality_check.launch.parallelism import Parallelism
from reality_check.studies.study import WorkFailed
from reality_check.utils.errors import UsageError
from reality_check.utils.exit_status import DONE, LOST, STOPPED, UNEXPLAINED, USAGE
from reality_check.utils.files import atomic_write
from reality_check.utils.interrupt import Stopped
from reality_check.utils.own_names import own_path
from reality_check.utils.processes import OF_RUN
from reality_check.utils.text import duration

#: Environment variables of workers that are set to 1. The first one keeps files in the current
#: folder from shadowing Python's modules (from Python 3.11 on); the others allow one BLAS thread.
ENVIRONMENT = (
    "PYTHONSAFEPATH",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
#: A worker may die within this many seconds of its start at most this many times in a row.
_EARLY_SECONDS, _MAX_EARLY_DEATHS = 20.0, 3
#: Seconds that workers have to end their epochs, once the time of the run is over.
GRACE_SECONDS = 120.0


@dataclass
class _Worker:
    number: int
    process: subprocess.Popen[bytes]
    started: float
    deaths: int = 0


class LocalWorkers:
    """Starts worker processes, replaces any that are killed, and stops all of them at the end.

    Args:
        out_dir: the output folder that the workers work on.
        parallelism: the number of workers, and how each of them trains.
        log: called with a sentence when workers are asked to stop, and when one is too slow.
        deadline: when the workers are asked to stop, by ``time.monotonic``.
    """

    def __init__(
        self,
        out_dir: Path,
        parallelism: Parallelism,
        log: Callable[[str], None] = lambda text: None,
        deadline: float = math.inf,
    ) -> None:
        self.out_dir = out_dir
        self._parallelism, self._log = parallelism, log
        self._deadline, self._is_over = deadline, False
        self._devices = parallelism.device_groups()
        numbers = range(len(self._devices))
        self._workers = [_Worker(n, self._spawn(n), time.monotonic()) for n in numbers]

    def wait(self, on_tick: Callable[[], None]) -> None:
        """Return when all workers are done; ``on_tick`` is called several times a second.

        Raises:
            UsageError: a worker found that the user's input cannot be used.
            WorkFailed: a worker failed, or died several times in a row.
            Stopped: the deadline has passed, and no worker trains any more.
        """
        running, end = self._workers, math.inf
        while running and time.monotonic() < end:
            on_tick()
            time.sleep(0.2)
            if not self._is_over and time.monotonic() >= self._deadline:
                self._is_over, end = True, time.monotonic() + GRACE_SECONDS
                self._log("the time is over: each worker stops at the end of its current epoch")
                for worker in running:
                    worker.process.send_signal(signal.SIGTERM)
            running = [worker for worker in running if not self._has_ended(worker)]
        for worker in running:
            self._log(
                f"worker {worker.number} did not stop within {duration(GRACE_SECONDS)} and is "
                "killed; its work since the last checkpoint is lost"
            )
        if self._is_over:
            raise Stopped

    def stop(self) -> None:
        """Kill all workers; a later run continues from their checkpoints."""
        for worker in self._workers:
            if worker.process.poll() is None:
                worker.process.kill()
        for worker in self._workers:
            worker.process.wait()

    def _has_ended(self, worker: _Worker) -> bool:
        """Return whether a worker is done; replace it if it was killed, and raise if it failed.

        Once the time is over, none is replaced.
        """
        status = worker.process.poll()
        if status is None:
            return False
        if status == DONE:
            return True
        raise_failure(self.out_dir, worker.number)
        if self._is_over:
            return True
        if status == UNEXPLAINED:
            raise WorkFailed(
                f"worker {worker.number} failed and could not write why into {self.out_dir}; is "
                "its disk full, or has it become read-only?"
            )
        self._replace(worker, status)
        return False

    def _replace(self, worker: _Worker, status: int) -> None:
        """Start a worker again that ended with ``status``, unless it died early too often."""
        lifetime = time.monotonic() - worker.started
        # Counts the early deaths in a row; a late one starts a new row.
        worker.deaths = worker.deaths + 1 if lifetime < _EARLY_SECONDS else 1
        if worker.deaths > _MAX_EARLY_DEATHS:
            log = log_path(self.out_dir, worker.number)
            reason = "if nobody killed it, memory was probably short"
            if status not in (-signal.SIGKILL, LOST):
                last = log.read_text(errors="replace").strip().rpartition("\n")[2]
                reason = f"the end of its log: {last}"
            # The status in words.
            ended = str(subprocess.CalledProcessError(status, "worker")).rstrip(".")
            raise WorkFailed(
                f"worker {worker.number} was ended {worker.deaths} times in a row within "
                f"{_EARLY_SECONDS:.0f} seconds ({ended}); {reason}. See {log}"
            )
        worker.process = self._spawn(worker.number)
        worker.started = time.monotonic()

    def _spawn(self, number: int) -> subprocess.Popen[bytes]:
        """Start the process of a worker, whose output goes to its log."""
        devices = self._devices[number]
        variables = {
            **dict.fromkeys(ENVIRONMENT, "1"),
            WORKERS_ON_GPU: str(self._devices.count(devices)),
            OF_RUN: "1",
            **environment(devices),
        }
        log = log_path(self.out_dir, number)
        log.parent.mkdir(parents=True, exist_ok=True)
        forget_failure(self.out_dir, number)
        with log.open("ab") as output:
            return subprocess.Popen(
                self._command(number),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **variables},
                # Ctrl-C then reaches only the parent, which ends its workers.
                start_new_session=True,
            )

    def _command(self, number: int) -> list[str]:
        """Return the command line of a worker."""
        parent, start = str(os.getpid()), [sys.executable, "-m"]
        folds = str(self._parallelism.folds_at_once)
        arguments = [str(self.out_dir.absolute()), str(number), "--folds-at-once", folds]
        processes = self._parallelism.processes_per_network
        if processes > 1:
            return [*start, "reality_check.launch.torchrun", str(processes), parent, *arguments]
        return [*start, "reality_check.launch.worker", *arguments, "--parent", parent]


def log_path(out_dir: Path, number: int) -> Path:
    """Return the path of a worker's log."""
    return own_path(out_dir, f"logs/worker_{number}.log")


def redirect_output_to(log: Path) -> None:
    """Append all output of this process, and of processes that it starts, to a file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(output.fileno(), stream.fileno())


def write_progress(out_dir: Path, number: int, text: str) -> None:
    """Write what a worker is doing, for the live view."""
    # Short epochs call this several times a second, so it does not wait for the disk.
    atomic_write(log_path(out_dir, number).with_suffix(".json"), text, durable=False)


def write_failure(out_dir: Path, number: int, status: int, message: str) -> None:
    """Write why a worker stops, for the process that supervises it.

    The first reason is the cause, so later reasons do not replace it.
    """
    path = _failure_path(out_dir, number)
    if read_failure(out_dir, number) is not None or not path.parent.is_dir():
        return
    atomic_write(path, json.dumps({"status": status, "message": message}))


def read_failure(out_dir: Path, number: int) -> dict[str, Any] | None:
    """Return why a worker stopped: ``status`` and ``message``; ``None`` if none is recorded."""
    try:
        return json.loads(_failure_path(out_dir, number).read_text())
    except (OSError, ValueError):
        return None


def raise_failure(out_dir: Path, number: int) -> None:
    """Raise the recorded reason why a worker failed, if it did.

    Raises:
        UsageError: the worker found that the user's input cannot be used.
        WorkFailed: the worker failed.
    """
    failure = read_failure(out_dir, number)
    if failure is None or failure["status"] == STOPPED:
        return
    if failure["status"] == USAGE:
        raise UsageError(failure["message"])
    raise WorkFailed(f"{failure['message']}. Full log: {log_path(out_dir, number)}")


def has_stopped(out_dir: Path, number: int) -> bool:
    """Return whether a worker has recorded that it ended because it was asked to."""
    return (read_failure(out_dir, number) or {}).get("status") == STOPPED


def forget_failure(out_dir: Path, number: int) -> None:
    """Delete what :func:`write_failure` wrote, before the worker is started again."""
    _failure_path(out_dir, number).unlink(missing_ok=True)


def _failure_path(out_dir: Path, number: int) -> Path:
    return log_path(out_dir, number).with_suffix(".failure.json")
