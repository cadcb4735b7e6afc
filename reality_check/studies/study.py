"""Optuna: the queue of work and the samplers.

No other package imports optuna.

Every stage of a method (search, reproductions, complete) is one study with a fixed number of
*num_trials*. Each attempt at a trial_index is an Optuna trial that carries the trial_index's
number. A trial_index is taken while it has a live trial (waiting, running or complete); of several
live trials of one trial_index the one with the smallest number keeps it and the others stand down.
So the stage ends with exactly one complete trial per trial_index, whatever happens to the workers:
a lost worker's trial_index simply has no live trial any more, and is enqueued again with the same
parameters.
"""

from __future__ import annotations

import contextlib
import logging
import math
import random
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import optuna
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from reality_check.config.values import Range, Searched
from reality_check.studies.patient_storage import NothingWaits
from reality_check.studies.sampler import IndexedSampler, sampler_arguments
from reality_check.studies.storage import open_storage
from reality_check.utils.environment import describe_environment
from reality_check.utils.errors import WorkFailed
from reality_check.utils.interrupt import Stopped
from reality_check.utils.lease import HeartbeatMonitor, Lease
from reality_check.utils.processes import is_alive, this_process

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)

#: Seconds after which a trial that no worker has signed is lost (killed between two statements).
#: Longer than a signature takes on a busy machine: else workers take each other's trials away.
UNSIGNED_GRACE = 60.0
#: How often a trial index is tried again after losing its worker.
MAX_LOST = 3

__all__ = [
    "DuplicateTrial",
    "FrozenTrial",
    "Study",
    "TrialContext",
    "TrialResult",
    "WorkFailed",
    "best_trial",
    "complete_by_index",
    "open_storage",
    "state_name",
    "was_abandoned",
]

_LIVE = (TrialState.COMPLETE, TrialState.RUNNING, TrialState.WAITING)


class DuplicateTrial(Exception):
    """This trial's trial index is held by an earlier trial: the trial stands down."""


@dataclass(frozen=True)
class TrialContext:
    """A trial index that this worker now works on.

    Attributes:
        trial_index: its number.
        params: what to train with.
        renew_lease: to be called before files of the trial index are touched; returns until when
            (by ``time.monotonic``) it need not be called again, and raises ``LeaseLost`` when the
            trial index went to another worker, because this one was silent for too long.
    """

    trial_index: int
    params: dict[str, Any]
    renew_lease: Callable[[], float] = lambda: math.inf


@dataclass(frozen=True)
class TrialResult:
    """What a unit of work found: the value to maximise, and plain data to keep with it."""

    value: float
    attributes: dict[str, Any] = field(default_factory=dict)


class Study:
    """One study: ``num_trials`` units of work of one stage of one method.

    Args:
        storage: see :func:`open_storage`.
        name: of the study.
        num_trials: how many units of work there are.
        space: what is searched; empty when parameters are fixed.
        sampler: ``tpe``, ``gp`` or ``random``.
        startup_trials: random trials before the sampler starts to model.
        seed: of the study; trial index ``k`` draws from ``derive(seed, k)``.
        fixed: parameters that every trial index uses instead of sampling.
    """

    def __init__(
        self,
        storage: BaseStorage,
        name: str,
        num_trials: int,
        space: Mapping[str, Searched],
        sampler: str,
        startup_trials: int,
        seed: int,
        fixed: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.num_trials = num_trials
        self._storage = storage
        self._unsigned = HeartbeatMonitor()
        self._complete: dict[int, FrozenTrial] = {}
        self._lost_race = 0  # number of this worker's last trial, if its trial index was taken
        self.space = dict(space)
        self.fixed = dict(fixed) if fixed is not None else None
        self.study = optuna.create_study(
            study_name=name,
            storage=storage,
            direction="maximize",
            sampler=IndexedSampler(sampler, startup_trials, seed),
            pruner=optuna.pruners.NopPruner(),
            load_if_exists=True,
        )
        arguments = sampler_arguments(sampler, startup_trials)
        if "about" not in self.study.user_attrs:
            about = {"sampler": sampler, "sampler_arguments": arguments, **describe_environment()}
            self.study.set_user_attr("about", about)

    def note(self, key: str, value: Any) -> None:
        """Keep plain data with the study."""
        self.study.set_user_attr(key, value)

    def noted(self, key: str) -> Any:
        """Data kept by :meth:`note`; ``None`` if there is none."""
        return self.study.user_attrs.get(key)

    def about(self) -> dict[str, Any]:
        """The sampler with all its arguments, and the versions that the study began with."""
        return dict(self.study.user_attrs["about"])

    def trials(self) -> list[FrozenTrial]:
        """All attempts so far, by number."""
        return list(self.study.get_trials(deepcopy=False))

    def complete(self) -> dict[int, FrozenTrial]:
        """The complete trial of every trial index that has one; once all have, nothing changes."""
        if len(self._complete) < self.num_trials:
            self._complete = complete_by_index(self.trials(), self.num_trials)
        return dict(self._complete)

    def is_complete(self) -> bool:
        """Whether every trial index has its complete trial."""
        return len(self.complete()) == self.num_trials

    def failure(self) -> dict[str, Any] | None:
        """Why the stage was stopped by an exception, if it was."""
        found: dict[str, Any] | None = self.study.user_attrs.get("failure")
        return found

    def clear_failures(self) -> None:
        """Forget earlier failures and lost workers: the user runs the same command again."""
        trials = self.trials()
        if self.failure() is not None:
            self.study.set_user_attr("failure", None)
        if any(trial.state is TrialState.FAIL for trial in trials):
            self.study.set_user_attr("forgiven", len(trials))

    def work_once(
        self, work: Callable[[TrialContext], TrialResult], about: Mapping[str, Any] | None = None
    ) -> bool:
        """Claim one trial index and work on it.

        How many seconds it took is kept with the attempt, however it ends; of one that loses its
        worker, those up to the last heartbeat.

        Args:
            work: does the unit of work; see :class:`TrialResult`. Its exceptions stop the stage.
            about: plain data to keep with the attempt from its beginning on.

        Returns:
            Whether there was a trial index to claim. ``False`` means that all are complete or held
            by other workers.

        Raises:
            WorkFailed: ``work`` raised, or a trial index lost its worker too often.
        """
        if not self._offer_trial():
            return False
        failures: list[BaseException] = []

        def objective(trial: optuna.Trial) -> float:
            started = time.monotonic()  # the clock may be set meanwhile
            attempt = self._claim(trial)
            for key, value in (about or {}).items():
                trial.set_user_attr(key, value)
            try:
                outcome = work(attempt)
            except Stopped as error:
                failures.append(error)
                trial.set_user_attr("stopped", True)
                trial.set_user_attr("seconds", time.monotonic() - started)
                raise
            except Exception as error:
                # First, since it tells whether the trial went to another worker meanwhile: what
                # this one then misses (checkpoints, say) is no failure.
                _note_error(trial, error, time.monotonic() - started)
                failures.append(error)
                raise
            seconds = {"seconds": time.monotonic() - started}
            for key, value in {**seconds, **outcome.attributes}.items():
                trial.set_user_attr(key, value)
            return outcome.value

        try:
            self.study.optimize(objective, n_trials=1, catch=(DuplicateTrial,))
        except NothingWaits:
            return True  # another worker took the trial that waited; there may be other trials
        except Exception as error:
            if failures:
                # Not what came of it where the trial could not be ended.
                raise failures[0] from failures[0].__cause__
            if _was_taken_away(error):
                logging.getLogger(__name__).warning(
                    "%s: this worker was silent for too long; its trial went to another", self.name
                )
                return True
            raise
        return True

    def release_lost(self) -> list[FrozenTrial]:
        """Fail running trials whose worker is gone, so that their trials are free again.

        Returns:
            All attempts after that, by number.
        """
        optuna.storages.fail_stale_trials(self.study)
        trials = self.trials()
        running = [trial for trial in trials if trial.state is TrialState.RUNNING]
        unsigned = {t.number: None for t in running if "worker" not in t.user_attrs}
        silent = self._unsigned.stale(unsigned, UNSIGNED_GRACE)
        lost = [t for t in running if t.number in silent or not _may_live(t)]
        for trial in lost:
            self._fail(trial)
        return self.trials() if lost else trials

    def release_all(self) -> None:
        """Fail all running trials: there is no other worker, so theirs are gone."""
        for trial in self.trials():
            if trial.state is TrialState.RUNNING:
                self._fail(trial)

    def tidy(self) -> None:
        """End what is left over of a complete stage: attempts at trials that others completed."""
        if not self.is_complete():
            return
        for trial in self.trials():
            if not trial.state.is_finished():
                with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):
                    self._storage.set_trial_user_attr(trial._trial_id, "taken", True)
                self._fail(trial)

    def record_failure(self, message: str, usage: bool) -> None:
        """Note the exception that stops this stage, for all workers and for the user."""
        self.study.set_user_attr("failure", {"message": message, "usage": usage})

    # -- claiming -----------------------------------------------------------------------------

    def _offer_trial(self) -> bool:
        """Make sure that a trial is waiting if any trial index is free; return whether one is."""
        trials = self.release_lost()
        if any(trial.state is TrialState.WAITING for trial in trials):
            return True
        live = {trial.user_attrs.get("trial_index") for trial in trials if trial.state in _LIVE}
        every = [trial_index for trial_index in range(self.num_trials) if trial_index not in live]
        if not every:
            return False
        free = self._choose(every, trials)
        earlier = [trial for trial in trials if trial.user_attrs.get("trial_index") == free]
        forgiven = self.study.user_attrs.get("forgiven", 0)
        lost = sum(t.number >= forgiven and was_abandoned(t) for t in earlier)
        if lost > MAX_LOST:
            message = (
                f"trial {free}: its worker was lost {lost} times, each time without a word: "
                "killed, most likely for lack of memory; allow more, or use fewer workers, "
                "smaller batches"
            )
            self.record_failure(message, usage=False)
            raise WorkFailed(f"{self.name}, {message}")
        self.study.enqueue_trial(self._known_params(earlier), user_attrs={"trial_index": free})
        return True

    def _choose(self, free: Sequence[int], trials: Sequence[FrozenTrial]) -> int:
        """Which of the free trials to offer.

        One worker takes them in order, also after another one that was lost. Of many, those that
        raced for one trial index have trials of different numbers, and so race for others next; all
        the others spread by chance.
        """
        if self._lost_race:
            return free[self._lost_race % len(free)]
        running = sum(trial.state is TrialState.RUNNING for trial in trials)
        return random.SystemRandom().choice(free) if running > 1 else free[0]

    def _known_params(self, earlier: Sequence[FrozenTrial]) -> dict[str, Any]:
        """The parameters a trial index must use: the fixed ones, or those of an earlier attempt."""
        if self.fixed is not None:
            return {}
        whole = [trial.params for trial in earlier if set(trial.params) == set(self.space)]
        return dict(whole[-1]) if whole else {}

    def _claim(self, trial: optuna.Trial) -> TrialContext:
        """Sign the trial and make sure that no other one holds its trial index."""
        trial.set_user_attr("worker", this_process())
        trial_index = trial.user_attrs.get("trial_index")
        for other in self.trials():
            same = other.user_attrs.get("trial_index") == trial_index and other.state in _LIVE
            if trial_index is None or (same and other.number < trial.number):
                trial.set_user_attr("taken", True)
                self._lost_race = trial.number
                raise DuplicateTrial
        assert trial_index is not None
        self._lost_race = 0
        params = self.fixed
        if params is None:
            params = {name: _suggest(trial, name, value) for name, value in self.space.items()}
        return TrialContext(trial_index, dict(params), self._lease(trial).renew)

    def _lease(self, trial: optuna.Trial) -> Lease:
        """That a trial is this worker's own; without heartbeats nobody takes it away."""
        grace = getattr(self._storage, "grace_period", None)

        def is_running() -> bool:
            return self._storage.get_trial(trial._trial_id).state is TrialState.RUNNING

        return Lease(is_running, math.inf if grace is None else grace / 2)

    def _fail(self, trial: FrozenTrial) -> None:
        try:
            self._storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
        except Exception as error:
            if not _was_taken_away(error):
                raise


def complete_by_index(trials: Sequence[FrozenTrial], num_trials: int) -> dict[int, FrozenTrial]:
    """The complete trial of each trial index below ``num_trials``, in trial index order."""
    found: dict[int, FrozenTrial] = {}
    for trial in trials:
        trial_index = trial.user_attrs.get("trial_index")
        if (
            trial.state is TrialState.COMPLETE
            and trial_index is not None
            and trial_index < num_trials
        ):
            found.setdefault(trial_index, trial)
    return dict(sorted(found.items()))


def state_name(trial: FrozenTrial) -> str:
    """``complete``, ``running``, ``waiting`` or ``failed``."""
    name = trial.state.name.lower()
    return "failed" if name in ("fail", "pruned") else name


def best_trial(stage: Study) -> FrozenTrial | None:
    """The complete trial with the highest observed value; ``None`` if all diverged."""
    sound = [t for t in stage.complete().values() if not t.user_attrs.get("diverged")]
    return max(sound, key=lambda trial: float(trial.value or 0.0), default=None)


def _note_error(trial: optuna.Trial, error: Exception, seconds: float) -> None:
    try:
        trial.set_user_attr("error", f"{type(error).__name__}: {error}")
        trial.set_user_attr("seconds", seconds)
    except Exception as other:
        if _was_taken_away(other):
            raise
        logging.getLogger(__name__).warning("the error cannot be noted: %s", other)


def was_abandoned(trial: FrozenTrial) -> bool:
    """Whether a failed trial ended without a word: its worker was killed, or silent too long."""
    return not {"error", "taken", "stopped"} & set(trial.user_attrs)


def _may_live(trial: FrozenTrial) -> bool:
    """Whether the worker that signed a trial, if one has, may still be at it."""
    worker = trial.user_attrs.get("worker")
    return worker is None or is_alive(worker)


def _was_taken_away(error: BaseException) -> bool:
    """Whether Optuna refused to touch a trial because another worker has ended it."""
    if isinstance(error, optuna.exceptions.UpdateFinishedTrialError):
        return True
    if isinstance(error, AssertionError) and error.__context__ is not None:
        # Optuna's own assertion while it logs the refused trial hides the refusal.
        return _was_taken_away(error.__context__)
    return isinstance(error, ValueError | RuntimeError) and "Cannot tell a" in str(error)


def _suggest(trial: optuna.Trial, name: str, value: Searched) -> Any:
    if not isinstance(value, Range):
        return trial.suggest_categorical(name, value.choices)
    if value.integer:
        return trial.suggest_int(name, int(value.low), int(value.high), log=value.log)
    return trial.suggest_float(name, value.low, value.high, log=value.log)
