"""An Optuna study with a fixed number of trials, which any number of workers share.

Every stage of a method (search, reproductions, final) is one study. Each attempt at trial ``k`` is
an Optuna trial with ``k`` as its index. An index is taken while it has a live attempt (waiting,
running or complete); of several live attempts, the earliest keeps it and the others stand down. So
the stage ends with exactly one complete attempt per trial, whatever happens to the workers: the
trial of a lost worker no longer has a live attempt, and is enqueued again with the same parameters.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import random
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optuna
from optuna.trial import TrialState

from reality_check.config.values import Searched, dump_value, parse_value
from reality_check.results import TrialRecord
from reality_check.studies.attempts import complete_by_index, mark_superseded
from reality_check.studies.patient_storage import NothingWaits, PatientStorage
from reality_check.studies.plan import Drawn, StudyState
from reality_check.studies.sampler import IndexedSampler, record_params, sampler_arguments, suggest
from reality_check.studies.storage import holds_study
from reality_check.studies.trial import (
    TrialContext,
    Work,
    read_trial,
    record_error,
    set_attributes,
    was_taken_away,
)
from reality_check.utils.environment import describe_environment
from reality_check.utils.errors import WorkFailed
from reality_check.utils.interrupt import Stopped
from reality_check.utils.lease import HeartbeatMonitor, Lease
from reality_check.utils.processes import is_alive, this_process

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)

#: Seconds after which a running trial without a worker's signature counts as lost, since its worker
#: was killed between two statements. Signing may take a while on a busy machine, and with a shorter
#: limit workers would take each other's trials away.
UNSIGNED_GRACE = 60.0
#: How often a trial is repeated after it has lost its worker.
MAX_LOST = 3


class DuplicateTrial(Exception):
    """An earlier attempt has this trial's index, so this attempt stands down."""


class Study:
    """A study in a storage: a queue that hands out each trial exactly once.

    A study that was begun before keeps the search space that it has recorded.

    Args:
        storage: the storage.
        name: the name of the study there.
        state: the trials that it should have.
        search_space: returns the searched parameters by dotted name; called if a search begins.
    """

    def __init__(
        self,
        storage: PatientStorage,
        name: str,
        state: StudyState,
        search_space: Callable[[], Mapping[str, Searched]] = dict,
    ) -> None:
        self.name = name
        self.indices = state.indices
        self._state = state
        self._storage = storage
        self._unsigned = HeartbeatMonitor()  # of running trials whose worker is not recorded yet
        self._lost_race = 0  # number of this worker's last attempt, if another had its index
        if not holds_study(storage, name):  # creating it is a write, which may have to wait
            optuna.create_study(
                study_name=name, storage=storage, direction="maximize", load_if_exists=True
            )
        self.study = optuna.load_study(
            study_name=name, storage=storage, pruner=optuna.pruners.NopPruner()
        )
        about = self.attribute("about")
        if about is not None:
            self.space = parse_value(about["space"])
        else:  # retrainings have the space of their search
            self.space = dict(search_space() if state.given is None else state.space)
        self.study.sampler, recorded = _sampler(state, self.space)
        if about is None:  # the study begins now
            recorded |= {"space": dump_value(self.space), "seeds_by_trial": True}
            about = recorded | describe_environment()
            self.set_attribute("about", about)

    def set_attribute(self, key: str, value: Any) -> None:
        """Store plain data with the study."""
        self.study.set_user_attr(key, value)

    def attribute(self, key: str) -> Any:
        """Return data stored by :meth:`set_attribute`, or ``None`` if there is none."""
        return self.study.user_attrs.get(key)

    def trials(self) -> tuple[TrialRecord, ...]:
        """Return all attempts in the order of their numbers."""
        trials = map(read_trial, self.study.get_trials(deepcopy=False))
        return mark_superseded(trials, self._state.made_of)

    def clear_failures(self) -> None:
        """Forget failures and lost workers, since the user runs the command again."""
        trials = self.trials()
        if self.attribute("failure") is not None:
            self.set_attribute("failure", None)
        if any(trial.state == "failed" for trial in trials):
            # Attempts with smaller numbers no longer count as lost.
            self.set_attribute("forgiven", len(trials))

    def work_once(self, work: Work, about: Mapping[str, Any] | None = None) -> bool:
        """Claim a trial and run it.

        The duration of the attempt is recorded however it ends; if the worker is lost, up to its
        last heartbeat.

        Args:
            work: runs the trial. An exception stops the study.
            about: attributes of :class:`TrialRecord` that are recorded at the start.

        Returns:
            Whether there was a trial to claim. ``False`` means that all trials are complete or
            claimed by other workers.

        Raises:
            WorkFailed: ``work`` raised, or a trial lost its worker too often.
        """
        if not self._offer_trial():
            return False
        failures: list[BaseException] = []  # filled by the objective, with at most one
        objective = functools.partial(self._run_claimed, work, about or {}, failures)
        try:
            # A duplicate attempt stands down, and the next call offers another trial.
            self.study.optimize(objective, n_trials=1, catch=(DuplicateTrial,))
        except NothingWaits:
            return True  # another worker took the waiting trial; there may be others
        except Exception as error:
            if failures:
                # Raise the first failure, not an error that followed when the trial was ended.
                raise failures[0] from failures[0].__cause__
            if was_taken_away(error):
                logging.getLogger(__name__).warning(
                    "%s: this worker's heartbeat had stopped; its trial went to another", self.name
                )
                return True
            raise
        return True

    def _run_claimed(
        self,
        work: Work,
        about: Mapping[str, Any],
        failures: list[BaseException],
        trial: optuna.Trial,
    ) -> float:
        """Claim a trial and run it; return its value, and add an exception to ``failures``."""
        started = time.monotonic()  # unlike the clock, this is never set back
        context = self._claim(trial)
        set_attributes(trial, **about)
        try:
            result = work(context)
        except Stopped as error:
            failures.append(error)
            set_attributes(trial, stopped=True, seconds=time.monotonic() - started)
            raise
        except Exception as error:
            # This comes first, since it raises if the trial went to another worker; then errors of
            # this one (such as missing checkpoints) are no failure.
            record_error(trial, error, time.monotonic() - started)
            failures.append(error)
            raise
        set_attributes(trial, **{"seconds": time.monotonic() - started, **result.attributes})
        return result.value

    def release_lost(self) -> tuple[TrialRecord, ...]:
        """Fail the running trials of lost workers to free their indices; return all attempts.

        A worker is lost if its heartbeat has stopped, its process has ended, or it has not recorded
        itself for :data:`UNSIGNED_GRACE` seconds.
        """
        trials = self.trials()
        running = [trial for trial in trials if trial.state == "running"]
        silent = self._storage.stale(
            {trial.trial_id: trial.seconds for trial in running if trial.seconds is not None}
        )
        # The monitor calls an entry stale if its value, here always None, does not change.
        unsigned = {t.number: None for t in running if t.worker is None}
        stale = self._unsigned.stale(unsigned, UNSIGNED_GRACE)
        lost = [
            t
            for t in running
            if t.trial_id in silent or t.number in stale or (t.worker and not is_alive(t.worker))
        ]
        for trial in lost:
            self._fail_trial(trial)
        return self.trials() if lost else trials

    def release_all(self) -> None:
        """Fail the running trials of workers that ``run`` had started, since these are gone."""
        for trial in self.trials():
            if trial.state == "running" and trial.worker and trial.worker.get("of_run"):
                self._fail_trial(trial)

    def tidy(self) -> None:
        """If the study is complete, end the attempts that are still running or waiting."""
        trials = self.trials()
        if len(complete_by_index(trials, self.indices)) < len(self.indices):
            return
        for trial in trials:
            if trial.state in ("running", "waiting"):
                with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):
                    self._storage.set_trial_user_attr(trial.trial_id, "duplicate", True)
                self._fail_trial(trial)

    def record_failure(self, message: str, usage: bool) -> None:
        """Record the exception that stops this study for all workers.

        Args:
            message: the message for the user.
            usage: whether the user's input is the cause.
        """
        self.set_attribute("failure", {"message": message, "usage": usage})

    # -- claiming -----------------------------------------------------------------------------

    def _offer_trial(self) -> bool:
        """Enqueue a trial if none is waiting and an index is free; return whether one waits."""
        trials = self.release_lost()
        if any(trial.state == "waiting" for trial in trials):
            return True
        taken = {trial.trial_index for trial in trials if trial.holds_its_index}
        free_indices = [index for index in self.indices if index not in taken]
        if not free_indices:
            return False
        chosen = _choose_index(free_indices, trials, self._lost_race)
        earlier = [
            trial for trial in trials if trial.trial_index == chosen and not trial.superseded
        ]
        # Only attempts from this number on count, since the user has run the command again.
        forgiven = self.attribute("forgiven") or 0
        lost = sum(trial.number >= forgiven and trial.was_abandoned for trial in earlier)
        if lost > MAX_LOST:
            message = (
                f"trial {chosen}: its worker was lost {lost} times, each time without a word: "
                "killed, most likely for lack of memory (allow more, or use fewer workers, "
                "smaller batches), or crashed, which logs/ in the output folder would show"
            )
            self.record_failure(message, usage=False)
            raise WorkFailed(f"{self.name}, {message}")
        params = _known_params(self._state, chosen, [t.params for t in earlier], {*self.space})
        self.study.enqueue_trial(params, user_attrs={"trial_index": chosen})
        return True

    def _claim(self, trial: optuna.Trial) -> TrialContext:
        """Record that this process runs a trial, and return its index and parameters.

        What the trial depends on outside of this study is recorded with it, as ``made_of``
        (:class:`reality_check.studies.plan.StudyState`).

        Raises:
            DuplicateTrial: an earlier attempt has the same index; the trial has no index, since
                another worker took the one that was waiting; or the study does not have its index.
        """
        set_attributes(trial, worker=this_process())
        index = trial.user_attrs.get("trial_index")
        if index is not None and index not in self.indices:
            # This worker was paused, and the experiment has grown in the meantime.
            set_attributes(trial, duplicate=True)
            raise DuplicateTrial
        if index is None or any(
            other.trial_index == index and other.holds_its_index and other.number < trial.number
            for other in self.trials()
        ):
            set_attributes(trial, duplicate=True)
            self._lost_race = trial.number
            raise DuplicateTrial
        self._lost_race = 0
        made_of = self._state.made_of or ()
        if index < len(made_of):  # in a search, only trial 0 may depend on other studies
            set_attributes(trial, made_of=made_of[index])
        given, params = self._state.given, None
        with self._storage.drawing(trial._trial_id):
            if given is None:
                params = {name: suggest(trial, name, value) for name, value in self.space.items()}
            elif given[index] is not None:
                params = dict(given[index])
                record_params(trial, params, self.space)
        return TrialContext(index, params, _lease(self._storage, trial).renew)

    def _fail_trial(self, trial: TrialRecord) -> None:
        """End an attempt as failed, unless another worker has ended it."""
        try:
            self._storage.set_trial_state_values(trial.trial_id, TrialState.FAIL)
        except Exception as error:
            if not was_taken_away(error):
                raise


def _choose_index(free: Sequence[int], trials: Sequence[TrialRecord], lost_race: int) -> int:
    """Choose one of the free indices.

    A single worker takes them in order. Several workers choose at random. Workers that have just
    lost a race for an index choose by the numbers of their attempts (``lost_race``, else 0), which
    differ, so that they do not race for the same index again.
    """
    if lost_race:
        return free[lost_race % len(free)]
    running = sum(trial.state == "running" for trial in trials)
    return random.SystemRandom().choice(free) if running > 1 else free[0]


def _sampler(
    state: StudyState, space: Mapping[str, Searched]
) -> tuple[IndexedSampler, dict[str, Any]]:
    """Return the sampler of a study, and what is recorded about it."""
    seed, drawn = state.planned.seed, state.planned.parameters
    if not isinstance(drawn, Drawn):
        # Optuna wants a sampler, but nothing uses its draws.
        drawn = Drawn("random", {}, startup_trials=1, draw_seed=seed)
    kind, options = drawn.sampler, drawn.sampler_arguments
    # At least one random trial for each parameter, if there are as many trials.
    startup_trials = min(state.num_trials, max(drawn.startup_trials, len(space)))
    recorded = sampler_arguments(kind, startup_trials, options)
    return (
        IndexedSampler(kind, startup_trials, seed, drawn.draw_seed, options, sorted(space)),
        {"sampler": kind, "sampler_arguments": recorded},
    )


def _known_params(
    state: StudyState, index: int, earlier: Sequence[Mapping[str, Any]], names: set[str]
) -> dict[str, Any]:
    """Return the parameters that a trial uses instead of sampling, such as an earlier draw.

    Args:
        state: the study.
        index: the index of the trial.
        earlier: the parameters of earlier attempts at the trial.
        names: the names of the searched parameters.
    """
    if state.given is not None:
        return dict(state.given[index] or {})
    # An attempt can end before all its values are drawn.
    complete_draws = [params for params in earlier if {*params} == names]
    if complete_draws:
        return dict(complete_draws[-1])
    return dict(state.first or {}) if index == 0 else {}


def _lease(storage: PatientStorage, trial: optuna.Trial) -> Lease:
    """Return the lease of a trial, shorter than the grace period after which others take it."""

    def is_running() -> bool:
        return storage.get_trial(trial._trial_id).state is TrialState.RUNNING

    return Lease(is_running, storage.grace_period / 2)
