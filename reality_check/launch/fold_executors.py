"""Executors that train fold runs, in this process or in several."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from reality_check.data import SampleSet
from reality_check.data.residency import processes_on_gpu, share_gpu
from reality_check.evaluation.scoring import Diverged
from reality_check.launch.full_gpu import once_more_if_full
from reality_check.training.fold import FoldResult, FoldTask
from reality_check.training.strategy import Strategy
from reality_check.training.trainer import Trainer
from reality_check.utils import interrupt as stopping
from reality_check.utils.exit_status import LOST
from reality_check.utils.lease import LeaseCheck, LeaseLost, no_lease
from reality_check.utils.processes import die_with_parent, keep_freed_memory

Progress = Callable[[dict[str, Any]], None]
LoadData = Callable[[], SampleSet]

#: Seconds between two checks of the processes in which folds are trained.
_POLL_SECONDS = 1.0


@dataclass(frozen=True)
class FoldJob:
    """A fold run with all that it needs, as plain data.

    Attributes:
        task: what to train.
        fold: the number of the fold.
        train: the labels of the training classes.
        validation: the labels of the validation classes; ``None`` with fixed epochs.
        folder: the folder of the fold run.
    """

    task: FoldTask
    fold: int
    train: tuple[int, ...]
    validation: tuple[int, ...] | None
    folder: Path

    def run(
        self,
        dataset: SampleSet,
        device: torch.device,
        on_progress: Progress,
        strategy: Strategy,
        renew_lease: LeaseCheck = no_lease,
    ) -> FoldResult:
        """Train the network; if the GPU is out of memory, retry with the samples in main memory."""
        validation = None if self.validation is None else dataset.subset(self.validation)
        train = dataset.subset(self.train)

        def report_progress(position: dict[str, Any]) -> None:
            on_progress({"fold": self.fold, **position})

        report_progress({"epoch": 0})

        def train_network() -> FoldResult:
            return Trainer(
                self.task,
                train,
                validation,
                self.folder,
                device,
                report_progress,
                strategy,
                renew_lease=renew_lease,
            ).run()

        if strategy.size > 1:  # a retry would leave the other processes waiting in a step
            return train_network()
        return once_more_if_full(device, train_network)


class SerialExecutor:
    """Trains fold runs in this process, one after the other.

    Args:
        dataset: the whole data set.
        device: the device to train on.
        strategy: the processes that train each network together. All but the main process wait for
            jobs in :meth:`follow`.
    """

    def __init__(
        self, dataset: SampleSet, device: torch.device, strategy: Strategy | None = None
    ) -> None:
        self._dataset, self._device, self._strategy = dataset, device, strategy or Strategy()
        self._others_are_training = False

    def run(
        self, jobs: Sequence[FoldJob], on_progress: Progress, renew_lease: LeaseCheck = no_lease
    ) -> list[FoldResult]:
        """Train the jobs and return their results in order.

        ``renew_lease`` is called before files are touched. If another worker has taken over the
        work, it raises an exception, which ends the training.
        """
        results = []
        for job in jobs:
            renew_lease()
            # The other processes wait forever in an earlier job, which failed in this process only;
            # the supervisor starts all of them again.
            if self._others_are_training:
                os._exit(LOST)
            self._strategy.broadcast(job)
            results.append(self._train_job(job, on_progress, renew_lease))
        return results

    def _train_job(
        self, job: FoldJob, on_progress: Progress, renew_lease: LeaseCheck
    ) -> FoldResult:
        """Train one job; end this process if the others would wait for it forever."""
        self._others_are_training = self._strategy.size > 1
        try:
            result = job.run(self._dataset, self._device, on_progress, self._strategy, renew_lease)
        except LeaseLost:
            if self._others_are_training:
                os._exit(LOST)
            raise
        except Diverged:  # the others see it too and wait for the next job
            self._others_are_training = False
            raise
        self._others_are_training = False
        return result

    def follow(self) -> None:
        """Take part in the jobs of the main process until it calls :meth:`close`."""
        while True:
            # What the main process broadcasts: a job, or None at the end.
            job: FoldJob | None = self._strategy.broadcast(None)
            if job is None:
                return
            with contextlib.suppress(Diverged):  # the main process sees it too and reports it
                job.run(self._dataset, self._device, lambda position: None, self._strategy)

    def close(self) -> None:
        """End :meth:`follow` in the other processes, if they are waiting for jobs."""
        if self._others_are_training:
            return
        with contextlib.suppress(RuntimeError):  # they have ended already
            self._strategy.broadcast(None)


class ProcessExecutor:
    """Trains several fold runs at a time, each in a separate process.

    A fold run depends on its job only, so the results are the same as with
    :class:`SerialExecutor` (on a GPU up to the order of sums). All processes read one memory-mapped
    array.

    Args:
        count: the number of processes.
        load: reads the data set; called once in each process, so it must be picklable.
        device: the device to train on.
    """

    def __init__(self, count: int, load: LoadData, device: torch.device) -> None:
        self._count, self._load, self._device = count, load, device
        self._pool: ProcessPoolExecutor | None = None
        self._on_progress: Progress = lambda position: None

    def run(
        self, jobs: Sequence[FoldJob], on_progress: Progress, renew_lease: LeaseCheck = no_lease
    ) -> list[FoldResult]:
        """Train the jobs and return their results in order.

        If a fold run raises an exception, the other processes are ended, and it is raised here. If
        one of the processes is killed, this process ends too, and the trial is repeated like that
        of any lost worker. If this process is asked to stop, it asks the others to stop.
        """
        self._on_progress = on_progress
        pool = self._pool = self._pool or self._start()
        self._lease_end.value = renew_lease()  # the processes wait once it is over
        try:
            # A signal that asks to stop must not meet a process that is not yet listening.
            with _block_signals(stopping.listening()):
                futures = [pool.submit(_run_job, job) for job in jobs]
            self._wait(futures, renew_lease)
            return self._collect(futures)
        except BrokenProcessPool:
            os._exit(LOST)

    def _start(self) -> ProcessPoolExecutor:
        """Create the pool of processes, and start the thread that receives their messages.

        :func:`_initialize_process` says what the processes are given.
        """
        context = multiprocessing.get_context("spawn")
        messages, self._writer = context.Pipe(duplex=False)
        self._lease_end: Any = context.RawValue("d", 0.0)  # a number in shared memory
        self._message_thread = threading.Thread(
            target=self._forward_messages, args=(messages,), daemon=True
        )
        self._message_thread.start()
        send = functools.partial(_send, self._writer, context.Lock())
        return ProcessPoolExecutor(
            self._count,
            mp_context=context,
            initializer=_initialize_process,
            initargs=(
                self._load,
                self._device,
                processes_on_gpu(),
                send,
                self._lease_end,
                os.getpid(),
                stopping.listening(),
            ),
        )

    def _forward_messages(self, messages: Connection) -> None:
        """Pass messages to ``on_progress`` until no process is left; the last may be incomplete."""
        with messages:
            while True:
                try:
                    message = messages.recv()
                except (EOFError, OSError):
                    return
                self._on_progress(message)

    def _wait(self, futures: Sequence[Future[FoldResult]], renew_lease: LeaseCheck) -> None:
        """Wait until all fold runs are done, stopped on request, or one has failed."""
        pending, has_asked = set(futures), False
        while pending:
            done, pending = wait(pending, _POLL_SECONDS, FIRST_EXCEPTION)
            # A fold run has failed unless its exception is None or a request to stop.
            if any(not isinstance(f.exception(), stopping.Stopped | None) for f in done):
                return
            if any(process.exitcode is not None for process in self._processes()):
                # The pool overlooks a process that was started while it was waiting for the others.
                raise BrokenProcessPool("a process was killed")
            try:
                self._lease_end.value = renew_lease()
            except LeaseLost:
                self.close()
                raise
            if stopping.requested() and not has_asked:
                has_asked = True
                self._ask_to_stop()

    def _ask_to_stop(self) -> None:
        for number in stopping.listening()[:1]:  # the first signal that asks to stop, if any
            for process in self._processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)

    def _processes(self) -> list[Any]:
        return [] if self._pool is None else list((self._pool._processes or {}).values())

    def _collect(self, futures: Sequence[Future[FoldResult]]) -> list[FoldResult]:
        """Return the results, or raise an exception of a fold run after ending all processes."""
        errors = [future.exception() for future in futures if future.done()]
        for error in errors:  # a killed process comes first, since run() ends this one then
            if isinstance(error, BrokenProcessPool):
                raise error
        for error in errors:
            if error is not None:
                self.close()
                raise error
        return [future.result() for future in futures]

    def close(self) -> None:
        """End the processes at once; fold runs continue from their checkpoints."""
        if self._pool is not None:
            for process in self._processes():
                process.kill()
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
            self._writer.close()
            self._message_thread.join()


#: An object that trains the fold runs of a trial.
FoldExecutor = SerialExecutor | ProcessExecutor


def _send(writer: Connection, lock: Any, message: dict[str, Any]) -> None:
    # Not a queue: if a process is killed while it writes, the parent could not close it.
    with lock:
        writer.send(message)


#: In a process of :class:`ProcessExecutor`: the arguments of :meth:`FoldJob.run`.
_job_arguments: dict[str, Any] = {}


def _initialize_process(
    load: LoadData,
    device: torch.device,
    num_sharing_gpu: int,
    send: Progress,
    lease_end: Any,
    parent: int,
    signals: tuple[int, ...],
) -> None:
    """Prepare a process of the pool: its signals, threads and GPU, and the arguments of jobs.

    Args:
        load: reads the data set.
        device: the device to train on.
        num_sharing_gpu: the number of processes that share the GPU's memory.
        send: sends a message about the progress to the parent.
        lease_end: the time at which the lease of the trial ends, in memory shared with the parent.
        parent: the process id of the parent.
        signals: the signals that ask to stop, which are blocked when the process starts.
    """
    die_with_parent(parent)
    stopping.listen(*signals)
    if signals:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    torch.set_num_threads(1)
    keep_freed_memory()
    share_gpu(num_sharing_gpu)
    _job_arguments.update(
        dataset=load(),
        device=device,
        on_progress=send,
        strategy=Strategy(),
        renew_lease=functools.partial(_wait_for_parent, lease_end),
    )


def _wait_for_parent(lease_end: Any) -> float:
    """Wait until the parent has renewed the lease, and return the time at which that ends."""
    while time.monotonic() >= lease_end.value:
        time.sleep(0.05)
    return float(lease_end.value)


def _run_job(job: FoldJob) -> FoldResult:
    stopping.check()
    return job.run(**_job_arguments)


@contextlib.contextmanager
def _block_signals(signals: Sequence[int]) -> Iterator[None]:
    """Block signals inside the context, also in processes that it starts."""
    if not signals:
        yield
        return
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
