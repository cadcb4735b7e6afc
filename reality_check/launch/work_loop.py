"""The loop of a worker: claim a trial, run it, and wait for other workers where necessary."""

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

#: Seconds between two polls of the storage, at least and at most.
PAUSES = 1.0, 15.0


class WorkLoop:
    """Runs trials of a campaign until none is left."""

    def __init__(self, campaign: Campaign, runner: TrialRunner) -> None:
        self._campaign = campaign
        self._runner = runner

    def run(self) -> None:
        """Work until nothing is left, waiting for other workers where their results are needed.

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
                _pause(time.monotonic() - polled)

    def _work_on_first_free_stage(self) -> Literal["worked", "wait", "done"]:
        """Run a trial of the first stage that has a free one.

        Searches without a running trial come first: a model learns most from one trial at a time.
        """
        ready = self._campaign.ready_stages
        searches = (work for work in ready() if work.stage is Stage.SEARCH)
        idle = (work for work in searches if _is_idle(work.study))
        for work in itertools.chain(idle, ready()):
            if work.study.is_complete():  # first, since that is remembered and not asked again
                continue
            failure = work.study.failure()
            if failure is not None:
                raise _failed(work, failure)
            if self._work_on(work):
                return "worked"
        return "done" if self._campaign.is_complete() else "wait"

    def _work_on(self, work: StageWork) -> bool:
        """Run a trial of a stage, if one is free; an exception stops the stage for all workers."""
        done: list[int] = []

        def do(context: TrialContext) -> TrialResult:
            try:
                result = self._runner.do(work, context)
            except SystemExit as error:  # would end the worker, and the next one
                raise RuntimeError(reason(error)) from error
            done.append(context.trial_index)
            return result

        try:
            if not work.study.work_once(do, self._runner.resources(work.stage)):
                return False
            self._prune(work)
            _print_finished(work, done, self._campaign.experiment.protocol)
            return True
        except UsageError as error:
            work.study.record_failure(str(error), usage=True)
            raise
        except (WorkFailed, Stopped):
            raise
        except Exception as error:
            message = _reason(error)
            with contextlib.suppress(Exception):  # on a full disk, the first reason is to tell
                work.study.record_failure(message, usage=False)
            raise _failed(work, {"message": message, "usage": False}) from error

    def _prune(self, work: StageWork) -> None:
        """Delete the checkpoints of all complete trials of a search; their records stay.

        Those of other workers' trials too: a worker that was paused may have written late.
        """
        if work.stage is not Stage.SEARCH:
            return
        for index in work.study.complete():
            out_dir = self._campaign.out_dir
            folder = trial_folder(out_dir, work.method, work.stage, index, work.search)
            remove_checkpoints(folder)


def _print_finished(work: StageWork, done: list[int], protocol: Protocol) -> None:
    """Print what was finished into the worker's log."""
    for index in done:
        if index in work.study.complete():
            print(stamped(finished(work, index, protocol)), flush=True)
    if done and work.study.is_complete():
        print(stamped(finished(work, None, protocol)), flush=True)


def _is_idle(study: Study) -> bool:
    """Whether trials are left, but none is running."""
    return not study.is_complete() and all(trial.state != "running" for trial in study.trials())


def _pause(seconds_of_poll: float) -> None:
    """Wait after a poll without success; longer where polls are slow.

    Many workers that wait must not keep the storage from those that work.
    """
    least, most = PAUSES
    pause(min(max(least, 10 * seconds_of_poll), most))


def _reason(error: Exception) -> str:
    """Return why a trial failed, and the remedy where it is known."""
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


def _failed(work: StageWork, failure: dict[str, Any]) -> Exception:
    if failure["usage"]:
        return UsageError(failure["message"])
    return WorkFailed(f"{work.method or 'baselines'}, {work.stage}: {failure['message']}")
