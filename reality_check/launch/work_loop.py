"""The loop of a worker: claim a trial, run it, and wait for other workers if necessary."""

from __future__ import annotations

import contextlib
import itertools
import time
from typing import Any, Literal

import torch

from reality_check.config.metrics import Stage
from reality_check.config.protocol import Protocol
from reality_check.launch.trial_runner import TrialRunner
from reality_check.studies.campaign import Campaign, StageWork
from reality_check.studies.finished import finished, stamped
from reality_check.studies.output_folder import remove_checkpoints, trial_folder
from reality_check.studies.study import Study
from reality_check.studies.trial import TrialContext, TrialResult
from reality_check.utils.errors import UsageError, WorkFailed, reason
from reality_check.utils.interrupt import Stopped, check, pause
from reality_check.utils.text import one_line

#: Minimum and maximum of the seconds between two polls of the storage.
PAUSES = 1.0, 15.0


class WorkLoop:
    """Runs trials of a campaign until none is left."""

    def __init__(self, campaign: Campaign, runner: TrialRunner) -> None:
        self._campaign = campaign
        self._runner = runner

    def run(self) -> None:
        """Work until nothing is left, waiting for other workers if their results are needed.

        Raises:
            WorkFailed: a trial failed here or in another worker.
            UsageError: a trial found that the user's input cannot be used.
            Stopped: this process was asked to stop.
        """
        while True:
            check()
            polled = time.monotonic()
            outcome = self._work_on_first_free_stage()
            if outcome == "done":
                self._campaign.tidy()
                return
            if outcome == "wait":
                self._runner.on_progress({"doing": "waiting for other workers"})
                _pause_after_poll(time.monotonic() - polled)

    def _work_on_first_free_stage(self) -> Literal["worked", "wait", "done"]:
        """Run a trial of the first stage that has a free trial; return what happened.

        Searches without a running trial come first, since the model of a search learns most if its
        trials run one at a time.
        """
        ready = self._campaign.ready_stages
        searches = (work for work in ready() if work.stage is Stage.SEARCH)
        idle = (work for work in searches if _is_idle(work.study))
        for work in itertools.chain(idle, ready()):
            if work.study.is_complete():  # cached, so this asks the storage only once
                continue
            failure = work.study.failure()
            if failure is not None:
                raise _failure_error(work, failure)
            if self._work_on(work):
                return "worked"
        return "done" if self._campaign.is_complete() else "wait"

    def _work_on(self, work: StageWork) -> bool:
        """Run a trial of a stage; return whether one was free.

        An exception stops the stage for all workers.
        """
        finished_indices: list[int] = []

        def run_trial(context: TrialContext) -> TrialResult:
            try:
                result = self._runner.do(work, context)
            except SystemExit as error:  # it would end this worker, then the next to try
                raise RuntimeError(reason(error)) from error
            finished_indices.append(context.trial_index)
            return result

        try:
            if not work.study.work_once(run_trial, self._runner.resources(work.stage)):
                return False
            self._remove_checkpoints(work)
            _print_finished(work, finished_indices, self._campaign.experiment.protocol)
            return True
        except UsageError as error:
            work.study.record_failure(str(error), usage=True)
            raise
        except (WorkFailed, Stopped):
            raise
        except Exception as error:
            message = _failure_reason(error)
            with contextlib.suppress(Exception):  # on a full disk, report the first error
                work.study.record_failure(message, usage=False)
            raise _failure_error(work, {"message": message, "usage": False}) from error

    def _remove_checkpoints(self, work: StageWork) -> None:
        """Delete the checkpoints of all complete trials of a search, but not their records.

        This includes trials of other workers, since a worker that was paused may have written some
        after its trial was complete.
        """
        if work.stage is not Stage.SEARCH:
            return
        for index in work.study.complete():
            out_dir = self._campaign.out_dir
            folder = trial_folder(out_dir, work.method, work.stage, index, work.search)
            remove_checkpoints(folder)


def _print_finished(work: StageWork, indices: list[int], protocol: Protocol) -> None:
    """Print the finished trials, and the stage if it is complete, into the worker's log."""
    for index in indices:
        if index in work.study.complete():
            print(stamped(finished(work, index, protocol)), flush=True)
    if indices and work.study.is_complete():
        print(stamped(finished(work, None, protocol)), flush=True)


def _is_idle(study: Study) -> bool:
    """Whether a study has trials left, but none is running."""
    return not study.is_complete() and all(trial.state != "running" for trial in study.trials())


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


def _failure_error(work: StageWork, failure: dict[str, Any]) -> Exception:
    if failure["usage"]:
        return UsageError(failure["message"])
    return WorkFailed(f"{work.method or 'baselines'}, {work.stage}: {failure['message']}")
