"""Executors that train fold runs: in this process, in several, or all on one network."""

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

#: How often a worker that trains in other processes looks after them.
_POLL_SECONDS = 1.0


@dataclass(frozen=True)
class FoldJob:
    """A fold run with all that it needs, as plain data.

    ``train`` and ``validation`` are labels of classes; nothing validates with fixed epochs.
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

        def progress(position: dict[str, Any]) -> None:
            on_progress({"fold": self.fold, **position})

        progress({"epoch": 0})
        where = (self.folder, device, progress, strategy)

        def train_it() -> FoldResult:
            return Trainer(self.task, train, validation, *where, renew_lease=renew_lease).run()

        if strategy.size > 1:  # the others wait in the middle of a step
            return train_it()
        return once_more_if_full(device, train_it)


class SerialExecutor:
    """Trains in this process, one after the other; with a strategy, together with its others.

    Args:
        strategy: the processes that train each network together. Those that are not the main one
            wait for jobs in :meth:`follow`.
    """

    def __init__(
        self, dataset: SampleSet, device: torch.device, strategy: Strategy | None = None
    ) -> None:
        self._dataset, self._device, self._strategy = dataset, device, strategy or Strategy()
        self._others_train = False

    def run(
        self, jobs: Sequence[FoldJob], on_progress: Progress, renew_lease: LeaseCheck = no_lease
    ) -> list[FoldResult]:
        """Train all of them and return their results in order.

        ``renew_lease`` is called before files are touched; what it raises when another worker has
        the work by now ends the training.
        """
        results = []
        for job in jobs:
            renew_lease()
            if self._others_train:  # still, at a job that failed here, and was not this worker's
                os._exit(LOST)
            self._strategy.broadcast(job)
            results.append(self._train(job, on_progress, renew_lease))
        return results

    def _train(self, job: FoldJob, on_progress: Progress, renew_lease: LeaseCheck) -> FoldResult:
        """Train with the other processes, which would wait for one that fails alone."""
        self._others_train = self._strategy.size > 1
        try:
            done = job.run(self._dataset, self._device, on_progress, self._strategy, renew_lease)
        except LeaseLost:
            if self._others_train:
                os._exit(LOST)
            raise
        except Diverged:  # the others see it too, and wait for the next job
            self._others_train = False
            raise
        self._others_train = False
        return done

    def follow(self) -> None:
        """Take part in the main process's jobs until it closes."""
        while True:
            job: FoldJob | None = self._strategy.broadcast(None)
            if job is None:
                return
            with contextlib.suppress(Diverged):  # the main process sees it too, and tells
                job.run(self._dataset, self._device, lambda position: None, self._strategy)

    def close(self) -> None:
        """End :meth:`follow` in the other processes, if they wait for jobs."""
        if self._others_train:
            return
        with contextlib.suppress(RuntimeError):
            self._strategy.broadcast(None)


class ProcessExecutor:
    """Trains in processes of its own, several fold runs at a time.

    A fold run depends on its job only, so the results are those of :class:`SerialExecutor` (on a
    GPU up to the order of its sums); all processes read one memory-mapped array.

    Args:
        load: reads the data set; called once in each process, so it must be picklable.
    """

    def __init__(self, count: int, load: LoadData, device: torch.device) -> None:
        self._count, self._load, self._device = count, load, device
        self._pool: ProcessPoolExecutor | None = None
        self._on_progress: Progress = lambda position: None

    def run(
        self, jobs: Sequence[FoldJob], on_progress: Progress, renew_lease: LeaseCheck = no_lease
    ) -> list[FoldResult]:
        """Train all of them and return their results in order.

        Raises the first exception of a fold run, after ending the others. When a process is killed,
        this one ends too, since what was lost is found out and repeated by the storage's rules.
        When this process is asked to stop, so are they.
        """
        self._on_progress = on_progress
        pool = self._pool = self._pool or self._start()
        self._held_until.value = renew_lease()
        try:
            # A signal that asks to stop must not meet a process that is not yet listening.
            with _held_back(stopping.listening()):
                futures = [pool.submit(_train, job) for job in jobs]
            self._wait(futures, renew_lease)
            return self._collect(futures)
        except BrokenProcessPool:
            os._exit(LOST)

    def _start(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        messages, self._writer = context.Pipe(duplex=False)
        self._held_until: Any = context.RawValue("d", 0.0)
        self._receiver = threading.Thread(target=self._receive, args=(messages,), daemon=True)
        self._receiver.start()
        send = functools.partial(_send, self._writer, context.Lock())
        return ProcessPoolExecutor(
            self._count,
            mp_context=context,
            initializer=_begin,
            initargs=(
                self._load,
                self._device,
                processes_on_gpu(),
                send,
                self._held_until,
                os.getpid(),
                stopping.listening(),
            ),
        )

    def _receive(self, messages: Connection) -> None:
        """Pass on messages until no process is left; the last message may be incomplete."""
        with messages:
            while True:
                try:
                    message = messages.recv()
                except (EOFError, OSError):
                    return
                self._on_progress(message)

    def _wait(self, futures: Sequence[Future[FoldResult]], renew_lease: LeaseCheck) -> None:
        """Wait until all are done or one has failed; wait for those that were asked to stop."""
        left, asked = set(futures), False
        while left:
            done, left = wait(left, _POLL_SECONDS, FIRST_EXCEPTION)
            if any(not isinstance(f.exception(), stopping.Stopped | None) for f in done):
                return
            if any(process.exitcode is not None for process in self._processes()):
                # The pool does not watch a process that was started while it looked at the others.
                raise BrokenProcessPool("a process was killed")
            try:
                self._held_until.value = renew_lease()
            except LeaseLost:
                self.close()
                raise
            if stopping.requested() and not asked:
                asked = True
                self._ask_to_stop()

    def _ask_to_stop(self) -> None:
        for number in stopping.listening()[:1]:
            for process in self._processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)

    def _processes(self) -> list[Any]:
        return [] if self._pool is None else list((self._pool._processes or {}).values())

    def _collect(self, futures: Sequence[Future[FoldResult]]) -> list[FoldResult]:
        errors = [future.exception() for future in futures if future.done()]
        for error in errors:
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
            self._receiver.join()


#: Who trains the fold runs of one unit of work.
FoldExecutor = SerialExecutor | ProcessExecutor


def _send(writer: Connection, lock: Any, message: dict[str, Any]) -> None:
    # Not a queue: a process killed in its middle would keep the parent from ever ending it.
    with lock:
        writer.send(message)


#: In a process of :class:`ProcessExecutor`: with what it trains its jobs.
_here: dict[str, Any] = {}


def _begin(
    load: LoadData,
    device: torch.device,
    on_gpu: int,
    send: Progress,
    held_until: Any,
    parent: int,
    signals: tuple[int, ...],
) -> None:
    die_with_parent(parent)
    stopping.listen(*signals)
    if signals:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    torch.set_num_threads(1)
    keep_freed_memory()
    share_gpu(on_gpu)
    _here.update(
        dataset=load(),
        device=device,
        on_progress=send,
        strategy=Strategy(),
        renew_lease=functools.partial(_wait_for_parent, held_until),
    )


def _wait_for_parent(held_until: Any) -> float:
    """Wait until the parent process has renewed the lease: a :data:`LeaseCheck` of its children."""
    while time.monotonic() >= held_until.value:
        time.sleep(0.05)
    return float(held_until.value)


def _train(job: FoldJob) -> FoldResult:
    stopping.check()
    return job.run(**_here)


@contextlib.contextmanager
def _held_back(signals: Sequence[int]) -> Iterator[None]:
    """Block signals meanwhile, also in processes that are started."""
    if not signals:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
