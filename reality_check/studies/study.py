"""One Optuna study with a fixed number of trials, which any number of workers share.

Every stage of a method (search, reproductions, final) is one study. Each attempt at trial ``k`` is
an Optuna trial that carries ``k``, its index. An index is taken while it has a live attempt
(waiting, running or complete); of several live attempts the earliest keeps it and the others stand
down. So the stage ends with exactly one complete attempt per trial, whatever happens to the
workers: the trial of a lost worker has no live attempt any more, and is enqueued again with the
same parameters.
"""

from __future__ import annotations

import contextlib
import functools
import json
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
from optuna.trial import TrialState

from reality_check.config.metrics import Stage
from reality_check.config.protocol import INDEPENDENT
from reality_check.config.values import Searched, dump_value, parse_value
from reality_check.studies.patient_storage import NothingWaits
from reality_check.studies.sampler import IndexedSampler, sampler_arguments, show, suggest
from reality_check.studies.storage import holds_study
from reality_check.studies.trial import (
    StoredTrial,
    TrialContext,
    Work,
    best_trial,
    complete_by_index,
    ranked_trials,
    record_error,
    set_attributes,
    was_taken_away,
)
from reality_check.utils.environment import describe_environment, split_versions
from reality_check.utils.errors import UsageError, WorkFailed
from reality_check.utils.interrupt import Stopped
from reality_check.utils.lease import HeartbeatMonitor, Lease
from reality_check.utils.processes import is_alive, this_process

optuna.logging.set_verbosity(optuna.logging.ERROR)
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)

#: Seconds after which a trial that no worker has signed is lost (killed between two statements).
#: Longer than a signature takes on a busy machine: else workers take each other's trials away.
UNSIGNED_GRACE = 60.0
#: How often a trial is tried again after losing its worker.
MAX_LOST = 3

#: The searched parameters by dotted name, or a function that returns them, where that is slow.
Space = Mapping[str, Searched] | Callable[[], Mapping[str, Searched]]


class DuplicateTrial(Exception):
    """An earlier attempt holds this trial's index: this one stands down."""


@dataclass(frozen=True)
class StudyPlan:
    """The trials that a study is to hold.

    Attributes:
        name: of the study in its storage.
        num_trials: how many trials it gets.
        seed: of the study; trial ``k`` draws from ``derive(seed, k)``.
        space: what is searched, or was, where parameters are fixed. A study that was begun before
            has its own.
        sampler: see :data:`reality_check.config.protocol.SAMPLERS`.
        startup_trials: random trials before the sampler starts to model; of more parameters, as
            many as these.
        seed_of_draws: of random draws, see :class:`IndexedSampler`; by default that of the study.
        fixed: by trial index, the parameters to use instead of sampling; ``None`` where there are
            none to use.
        first: what the first trial uses instead of sampling.
        sampler_arguments: further arguments of the sampler.
        made_of: by trial index, plain data outside of this study that an attempt depends on; an
            attempt that was made of other data does not count any more. ``None``: all count, since
            they are of a pack.
    """

    name: str
    num_trials: int
    seed: int
    space: Space = field(default_factory=dict)
    sampler: str = "random"
    startup_trials: int = 1
    seed_of_draws: int | None = None
    fixed: Sequence[Mapping[str, Any] | None] | None = None
    first: Mapping[str, Any] | None = None
    sampler_arguments: Mapping[str, Any] | None = None
    made_of: Sequence[Any] | None = ()


class Study:
    """The trials of one stage of one method, in a storage."""

    def __init__(self, storage: BaseStorage, plan: StudyPlan) -> None:
        self.name = name = plan.name
        self.num_trials = plan.num_trials
        self._plan = plan
        self._storage = storage
        self._unsigned = HeartbeatMonitor()
        self._complete: dict[int, StoredTrial] = {}
        self._lost_race = 0  # number of this worker's last trial, if its index was taken
        self._made_of = json.loads(json.dumps(plan.made_of))  # as the storage has it
        if not holds_study(storage, name):  # to create one is a write, which may have to wait
            optuna.create_study(
                study_name=name, storage=storage, direction="maximize", load_if_exists=True
            )
        self.study = optuna.load_study(
            study_name=name, storage=storage, pruner=optuna.pruners.NopPruner()
        )
        about = self.attribute("about")
        if about is None:
            self.space = dict(plan.space() if callable(plan.space) else plan.space)
        else:
            self.space = parse_value(about["space"])
        startup_trials = min(plan.num_trials, max(plan.startup_trials, len(self.space)))
        arguments = plan.sampler_arguments
        self.study.sampler = IndexedSampler(
            plan.sampler,
            startup_trials,
            plan.seed,
            plan.seed if plan.seed_of_draws is None else plan.seed_of_draws,
            arguments,
            sorted(self.space),
        )
        if about is None:
            about = {
                "sampler": plan.sampler,
                "sampler_arguments": sampler_arguments(plan.sampler, startup_trials, arguments),
                "space": dump_value(self.space),
            }
            self.set_attribute("about", about | describe_environment())

    def params_of(self, index: int) -> dict[str, Any] | None:
        """Return the fixed parameters of a trial; ``None`` if it has none."""
        fixed = None if self._plan.fixed is None else self._plan.fixed[index]
        return None if fixed is None else dict(fixed)

    def set_attribute(self, key: str, value: Any) -> None:
        """Store plain data with the study."""
        self.study.set_user_attr(key, value)

    def attribute(self, key: str) -> Any:
        """Return data stored by :meth:`set_attribute`; ``None`` if there is none."""
        return self.study.user_attrs.get(key)

    def about(self) -> dict[str, Any]:
        """Return the sampler, its arguments, the search space, and the first versions."""
        return dict(self.attribute("about"))

    def check_version(self) -> None:
        """Make sure that a search with a model runs with the Optuna with which it began.

        Raises:
            UsageError: another version is installed, which draws other trials.
        """
        about = self.about()
        began = split_versions(about["versions"]).get("optuna")
        if about["sampler"] not in INDEPENDENT and began != optuna.__version__:
            raise UsageError(
                f"{self.name} began with Optuna {began}, but {optuna.__version__} is installed, "
                f"whose sampler {about['sampler']} draws other trials from the same seed: write "
                f"pip install optuna=={began}, or start a new run with another --out."
            )

    def trials(self) -> list[StoredTrial]:
        """Return all attempts, by number."""
        trials = self.study.get_trials(deepcopy=False)
        return [StoredTrial.of(trial, self._made_of) for trial in trials]

    def complete(self) -> dict[int, StoredTrial]:
        """Return the complete attempts by trial index; cached once all trials are complete."""
        if len(self._complete) < self.num_trials:
            self._complete = complete_by_index(self.trials(), self.num_trials)
        return dict(self._complete)

    def is_complete(self) -> bool:
        """Whether every trial has its complete attempt."""
        return len(self.complete()) == self.num_trials

    def best(self) -> StoredTrial | None:
        """Return the best complete trial; ``None`` if all diverged."""
        return best_trial(self.complete())

    def ranked(self) -> list[StoredTrial]:
        """Return the complete trials that did not diverge, best first; of equals, the earlier."""
        return ranked_trials(self.complete())

    def failure(self) -> dict[str, Any] | None:
        """Return the exception that stopped the study, if any."""
        return self.attribute("failure")

    def clear_failures(self) -> None:
        """Forget failures and lost workers, since the user runs the command again."""
        trials = self.trials()
        if self.failure() is not None:
            self.set_attribute("failure", None)
        if any(trial.state == "failed" for trial in trials):
            self.set_attribute("forgiven", len(trials))

    def work_once(self, work: Work, about: Mapping[str, Any] | None = None) -> bool:
        """Claim a trial and run it.

        The attempt keeps its seconds, however it ends; if its worker is lost, those up to the last
        heartbeat.

        Args:
            work: runs the trial. Its exceptions stop the study.
            about: attributes of :class:`StoredTrial` that the attempt has from the start.

        Returns:
            Whether there was a trial to claim. ``False`` means that all are complete or held by
            other workers.

        Raises:
            WorkFailed: ``work`` raised, or a trial lost its worker too often.
        """
        if not self._offer_trial():
            return False
        failures: list[BaseException] = []
        objective = functools.partial(self._do, work, about or {}, failures)
        try:
            self.study.optimize(objective, n_trials=1, catch=(DuplicateTrial,))
        except NothingWaits:
            return True  # another worker took the trial that waited; there may be other trials
        except Exception as error:
            if failures:
                # Not what came of it where the trial could not be ended.
                raise failures[0] from failures[0].__cause__
            if was_taken_away(error):
                logging.getLogger(__name__).warning(
                    "%s: this worker's heartbeat had stopped; its trial went to another", self.name
                )
                return True
            raise
        return True

    def _do(
        self,
        work: Work,
        about: Mapping[str, Any],
        failures: list[BaseException],
        trial: optuna.Trial,
    ) -> float:
        started = time.monotonic()  # the clock may be set meanwhile
        context = self._claim(trial)
        set_attributes(trial, **about)
        try:
            result = work(context)
        except Stopped as error:
            failures.append(error)
            set_attributes(trial, stopped=True, seconds=time.monotonic() - started)
            raise
        except Exception as error:
            # First, since it tells whether the trial went to another worker meanwhile: what
            # this one then misses (checkpoints, say) is no failure.
            record_error(trial, error, time.monotonic() - started)
            failures.append(error)
            raise
        set_attributes(trial, **{"seconds": time.monotonic() - started, **result.attributes})
        return result.value

    def release_lost(self) -> list[StoredTrial]:
        """Fail the running trials of lost workers, which frees them; return all attempts."""
        optuna.storages.fail_stale_trials(self.study)
        trials = self.trials()
        running = [trial for trial in trials if trial.state == "running"]
        unsigned = {t.number: None for t in running if t.worker is None}
        stale = self._unsigned.stale(unsigned, UNSIGNED_GRACE)
        lost = [t for t in running if t.number in stale or (t.worker and not is_alive(t.worker))]
        for trial in lost:
            self._fail(trial)
        return self.trials() if lost else trials

    def release_all(self, only_started_by_run: bool = False) -> None:
        """Fail all running trials, whose workers are gone.

        Args:
            only_started_by_run: whether to fail only those of workers that ``run`` had started.
        """
        for trial in self.trials():
            of_run = trial.worker is not None and trial.worker.get("of_run", False)
            if trial.state == "running" and (of_run or not only_started_by_run):
                self._fail(trial)

    def tidy(self) -> None:
        """End the other attempts of a complete stage."""
        if not self.is_complete():
            return
        for trial in self.trials():
            if trial.state in ("running", "waiting"):
                with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):
                    self._storage.set_trial_user_attr(trial.trial_id, "duplicate", True)
                self._fail(trial)

    def record_failure(self, message: str, usage: bool) -> None:
        """Record the exception that stops this stage, for all workers and for the user."""
        self.set_attribute("failure", {"message": message, "usage": usage})

    # -- claiming -----------------------------------------------------------------------------

    def _offer_trial(self) -> bool:
        """Enqueue a trial if none is waiting and an index is free; return whether one waits."""
        trials = self.release_lost()
        if any(trial.state == "waiting" for trial in trials):
            return True
        taken = {trial.trial_index for trial in trials if trial.holds_its_index}
        every = [index for index in range(self.num_trials) if index not in taken]
        if not every:
            return False
        free = self._choose(every, trials)
        earlier = [trial for trial in trials if trial.trial_index == free and not trial.superseded]
        forgiven = self.attribute("forgiven") or 0
        lost = sum(trial.number >= forgiven and trial.was_abandoned for trial in earlier)
        if lost > MAX_LOST:
            message = (
                f"trial {free}: its worker was lost {lost} times, each time without a word: "
                "killed, most likely for lack of memory (allow more, or use fewer workers, "
                "smaller batches), or crashed, which logs/ in the output folder would show"
            )
            self.record_failure(message, usage=False)
            raise WorkFailed(f"{self.name}, {message}")
        self.study.enqueue_trial(
            self._known_params(free, earlier), user_attrs={"trial_index": free}
        )
        return True

    def _choose(self, free: Sequence[int], trials: Sequence[StoredTrial]) -> int:
        """Choose one of the free indices.

        One worker takes them in order, also after another one that was lost. Of many, those that
        raced for one index have trials of different numbers, and so race for others next; all
        the others spread by chance.
        """
        if self._lost_race:
            return free[self._lost_race % len(free)]
        running = sum(trial.state == "running" for trial in trials)
        return random.SystemRandom().choice(free) if running > 1 else free[0]

    def _known_params(self, index: int, earlier: Sequence[StoredTrial]) -> dict[str, Any]:
        """Return the parameters that a trial uses instead of sampling, such as earlier draws."""
        if self._plan.fixed is not None:
            return self.params_of(index) or {}
        whole = [trial.params for trial in earlier if set(trial.params) == set(self.space)]
        if whole:
            return dict(whole[-1])
        return dict(self._plan.first or {}) if index == 0 else {}

    def _claim(self, trial: optuna.Trial) -> TrialContext:
        """Sign a trial, after which no earlier attempt may hold its index."""
        set_attributes(trial, worker=this_process())
        index = trial.user_attrs.get("trial_index")
        if index is not None and index >= self.num_trials:
            # This worker was paused, and meanwhile the experiment has grown.
            set_attributes(trial, duplicate=True)
            raise DuplicateTrial
        for other in self.trials():
            same = other.trial_index == index and other.holds_its_index
            if index is None or (same and other.number < trial.number):
                set_attributes(trial, duplicate=True)
                self._lost_race = trial.number
                raise DuplicateTrial
        assert index is not None
        self._lost_race = 0
        if self._made_of is not None and index < len(self._made_of):
            set_attributes(trial, made_of=self._made_of[index])
        params = self.params_of(index)
        if self._plan.fixed is None:
            params = {name: suggest(trial, name, value) for name, value in self.space.items()}
        else:
            show(trial, params or {}, self.space)
        return TrialContext(index, params, self._lease(trial).renew)

    def _lease(self, trial: optuna.Trial) -> Lease:
        """Return the lease of a trial; without heartbeats it never ends."""
        grace = getattr(self._storage, "grace_period", None)

        def is_running() -> bool:
            return self._storage.get_trial(trial._trial_id).state is TrialState.RUNNING

        return Lease(is_running, math.inf if grace is None else grace / 2)

    def _fail(self, trial: StoredTrial) -> None:
        try:
            self._storage.set_trial_state_values(trial.trial_id, TrialState.FAIL)
        except Exception as error:
            if not was_taken_away(error):
                raise


#: The open studies, by method, stage and number of the search.
Studies = Mapping[tuple[str, Stage, int], Study]
