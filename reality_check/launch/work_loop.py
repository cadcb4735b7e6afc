"""The loop of a worker: claim a trial, run it, and wait for other workers if necessary."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch

from reality_check.config.metrics import Stage
from reality_check.config.source_code import use_sources
from reality_check.launch.trial_runner import TrialRunner
from reality_check.studies.finished import finished, stamped
from reality_check.studies.output_folder import remove_checkpoints, trial_folder
from reality_check.studies.plan import States, StudyKey, StudyState, next_units
from reality_check.studies.recorded_experiment import RecordedExperiment, check_version
from reality_check.studies.trial import TrialContext, TrialResult
from reality_check.utils.errors import UsageError, WorkFailed, reason
from reality_check.utils.interrupt import Stopped, check, pause
from reality_check.utils.text import one_line

#: Minimum and maximum of the seconds between two polls of the storage.
PAUSES = 1.0, 15.0


class WorkLoop:
    """Runs trials of an experiment, one at a time."""

    def __init__(self, recorded: RecordedExperiment, runner: TrialRunner) -> None:
        self._recorded = recorded
        self.runner = runner
        self._is_prepared = False
        self.experiment = recorded.experiment

    def step(self) -> Literal["worked", "wait", "done"]:
        """Run the next trial that is free; return what happened.

        Raises:
            WorkFailed: a trial failed here or in another worker.
            UsageError: a trial found that the user's input cannot be used.
            Stopped: this process was asked to stop.
        """
        states = self._recorded.states()
        for unit in next_units(states):  # only the first, since the others may change by its end
            # In a suite, those of another data set may be in use.
            use_sources(self._recorded.out_dir, again=False)
            self._prepare(states)
            self._work_on(unit.study)
            return "worked"
        if states.is_complete():
            self._recorded.tidy()
            return "done"
        for study in states.ready():
            if not study.is_complete:
                _raise_failure(study)
                self._recorded.study(study).release_lost()
        self.runner.on_progress({"doing": "waiting for other workers"})
        return "wait"

    def _prepare(self, states: States) -> None:
        """Load what the first trial needs, so that no trial fails if this machine lacks it."""
        if self._is_prepared:
            return
        _ = self.runner.prepared.device, self.runner.prepared.dataset
        for study in states.ready():
            if not study.is_complete:
                check_version(study)
        self._is_prepared = True

    def _work_on(self, study: StudyState) -> None:
        """Run a trial of a study, unless other workers have claimed all of them in the meantime.

        An exception stops the study for all workers.
        """
        _raise_failure(study)
        queue = self._recorded.study(study)
        finished_indices: list[int] = []  # at most one

        def run_trial(context: TrialContext) -> TrialResult:
            try:
                result = self.runner.do(study, context)
            except SystemExit as error:  # it would end this worker, then the next to try
                raise RuntimeError(reason(error)) from error
            finished_indices.append(context.trial_index)
            return result

        try:
            if queue.work_once(run_trial, self.runner.resources(study.planned)):
                self._end_trial(study.planned.key, finished_indices)
        except UsageError as error:
            queue.record_failure(str(error), usage=True)
            raise
        except (WorkFailed, Stopped):
            raise
        except Exception as error:
            message = _failure_reason(error)
            with contextlib.suppress(Exception):  # on a full disk, report the first error
                queue.record_failure(message, usage=False)
            raise _failure_error(study, {"message": message, "usage": False}) from error

    def _end_trial(self, key: StudyKey, indices: list[int]) -> None:
        """Delete the checkpoints that no trial of a search needs any more, but not their records.

        This includes trials of other workers, since a worker that was paused may have written some
        after its trial was complete. Then the trials that this worker has finished (``indices``)
        are reported in its log, and the study too if it is complete.
        """
        states, protocol = self._recorded.states(), self._recorded.experiment.protocol
        study = states.get(key)
        assert study is not None  # it was worked on
        if study.stage in (Stage.SEARCH, Stage.RACE):
            search = study.search if study.stage is Stage.SEARCH else 0
            searched = StudyKey(study.method, Stage.SEARCH, search)
            for index in states.finished_with(searched):
                where = study.method, Stage.SEARCH, index, search
                remove_checkpoints(trial_folder(self._recorded.out_dir, *where))
        for index in indices:
            if index in study.complete:
                print(stamped(finished(study, index, protocol)), flush=True)
        if indices and study.is_complete:
            print(stamped(finished(study, None, protocol)), flush=True)


def work_on(loops: Sequence[WorkLoop]) -> None:
    """Work until nothing is left, waiting for other workers if their results are needed.

    The experiments are worked on in their order. The failure of one does not end the others, and is
    raised when these are done.

    Raises:
        WorkFailed: a trial failed here or in another worker.
        UsageError: a trial found that the user's input cannot be used.
        Stopped: this process was asked to stop.
    """
    left, failures = list(loops), list[Exception]()
    while left:
        check()  # raises Stopped
        polled = time.monotonic()
        for loop in list(left):
            try:
                outcome = loop.step()
            except (UsageError, WorkFailed) as error:
                left.remove(loop)
                failures.append(error)
                if len(loops) > 1:  # the message says on which data set
                    failures[-1] = type(error)(f"{loop.experiment.name}: {error}")
                    failures[-1].__cause__ = error.__cause__
                continue
            if outcome == "worked":
                break
            if outcome == "done":
                left.remove(loop)
                if left:  # the next data set needs the memory
                    loop.runner.forget_data()
        else:
            if left:
                _pause_after_poll(time.monotonic() - polled)
    if failures:
        raise failures[0]


def _pause_after_poll(seconds_of_poll: float) -> None:
    """Wait after a poll without success, for longer if polls are slow.

    Otherwise many waiting workers could slow down the storage for the workers that train.
    """
    minimum, maximum = PAUSES
    pause(min(max(minimum, 10 * seconds_of_poll), maximum))


def _failure_reason(error: Exception) -> str:
    """Return why a trial failed, with a remedy if one is known."""
    if isinstance(error, torch.OutOfMemoryError):
        return (
            f"the GPU's memory is too small ({one_line(error)}). With fewer folds at once, fewer "
            "workers on it or a larger GPU the same command continues; a smaller "
            "protocol.training.batch_size, or autocast, makes another experiment, for another --out"
        )
    text = reason(error)
    if "CUDA error" in text:
        text += (
            ". Should the same command end so again: with protocol.training.gpu.cuda_graph=false "
            "it continues with plain steps (docs/gpu.md)"
        )
    return text


def _raise_failure(study: StudyState) -> None:
    """Raise the exception that has stopped a study, if there is one."""
    if study.failure is not None:
        raise _failure_error(study, study.failure)


def _failure_error(study: StudyState, failure: Mapping[str, Any]) -> Exception:
    if failure["usage"]:
        return UsageError(failure["message"])
    return WorkFailed(f"{study.method or 'baselines'}, {study.stage}: {failure['message']}")
