"""Who trains the fold runs of a unit of work: this process, several, or a team for each."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from reality_check import stopping
from reality_check.data import ImageSet
from reality_check.measuring import Diverged
from reality_check.processes import die_with_parent
from reality_check.tasks import FoldResult, FoldTask
from reality_check.team import Team
from reality_check.training import FoldRun

Progress = Callable[[dict[str, Any]], None]
LoadData = Callable[[], ImageSet]

#: Exit status of a worker that lost one of its processes: as if it had been killed itself.
LOST = 137


@dataclass(frozen=True)
class FoldJob:
    """A fold run with all that it needs, as plain data.

    Attributes:
        task: what to do.
        fold: its number.
        train: labels of the training classes.
        validation: labels of the validation classes; None with fixed epochs.
        folder: of the fold run.
    """

    task: FoldTask
    fold: int
    train: tuple[int, ...]
    validation: tuple[int, ...] | None
    folder: Path

    def run(
        self, dataset: ImageSet, device: torch.device, on_progress: Progress, team: Team
    ) -> FoldResult:
        """Train it."""
        validation = None if self.validation is None else dataset.subset(self.validation)
        train = dataset.subset(self.train)

        def progress(position: dict[str, Any]) -> None:
            on_progress({"fold": self.fold, **position})

        progress({"epoch": 0})
        run = FoldRun(self.task, train, validation, self.folder, device, progress, team)
        return run.run()


class FoldRunner(Protocol):
    """Trains the fold runs of one unit of work."""

    def run(self, jobs: Sequence[FoldJob], on_progress: Progress) -> list[FoldResult]:
        """Train all of them and return their results in order."""

    def close(self) -> None:
        """End its processes."""


class OneByOne:
    """Trains in this process, one after the other; with a team, together with its others.

    Args:
        dataset: the whole data set.
        device: where to train.
        team: the processes that train each network together. Those that are not the main one
            wait for jobs in :meth:`follow`.
    """

    def __init__(self, dataset: ImageSet, device: torch.device, team: Team | None = None) -> None:
        self._dataset, self._device, self._team = dataset, device, team or Team()

    def run(self, jobs: Sequence[FoldJob], on_progress: Progress) -> list[FoldResult]:
        """Train all of them and return their results in order."""
        results = []
        for job in jobs:
            self._team.agree(job)
            results.append(job.run(self._dataset, self._device, on_progress, self._team))
        return results

    def follow(self) -> None:
        """Take part in the main process's jobs until it closes."""
        while True:
            job: FoldJob | None = self._team.agree(None)
            if job is None:
                return
            with contextlib.suppress(Diverged):  # the main process sees it too, and tells
                job.run(self._dataset, self._device, lambda position: None, self._team)

    def close(self) -> None:
        """Let the others go, if they are still there."""
        with contextlib.suppress(RuntimeError):
            self._team.agree(None)


class SeveralAtOnce:
    """Trains in processes of its own, several fold runs at a time.

    A fold run depends on its job only, so the results are those of :class:`OneByOne`; all
    processes read one memory-mapped array.

    Args:
        count: how many at a time.
        load: reads the data set; called once in each process, so it must be picklable.
        device: where to train.
    """

    def __init__(self, count: int, load: LoadData, device: torch.device) -> None:
        self._count, self._load, self._device = count, load, device
        self._pool: ProcessPoolExecutor | None = None
        self._on_progress: Progress = lambda position: None

    def run(self, jobs: Sequence[FoldJob], on_progress: Progress) -> list[FoldResult]:
        """Train all of them and return their results in order.

        Raises the first exception of a fold run, after ending the others. When a process is killed,
        this one ends too, since what was lost is found out and repeated by the storage's rules.
        """
        self._on_progress = on_progress
        pool = self._pool = self._pool or self._start()
        try:
            return self._collect([pool.submit(_train, job) for job in jobs])
        except BrokenProcessPool:
            os._exit(LOST)

    def _start(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        messages: Any = context.SimpleQueue()
        threading.Thread(target=self._tell, args=(messages,), daemon=True).start()
        return ProcessPoolExecutor(
            self._count,
            mp_context=context,
            initializer=_begin,
            initargs=(self._load, self._device, messages, stopping.listening()),
        )

    def _tell(self, messages: Any) -> None:
        while True:
            self._on_progress(messages.get())

    def _collect(self, futures: Sequence[Future[FoldResult]]) -> list[FoldResult]:
        wait(futures, return_when=FIRST_EXCEPTION)
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
            processes = list((self._pool._processes or {}).values())
            for process in processes:
                process.kill()
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


_here: dict[str, Any] = {}


def _begin(load: LoadData, device: torch.device, messages: Any, signals: tuple[int, ...]) -> None:
    die_with_parent()
    stopping.listen(*signals)
    torch.set_num_threads(1)
    _here.update(dataset=load(), device=device, messages=messages)


def _train(job: FoldJob) -> FoldResult:
    return job.run(_here["dataset"], _here["device"], _here["messages"].put, Team())
