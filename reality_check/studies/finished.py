"""Log lines about finished trials and stages, with the best value so far."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from reality_check.config.metrics import Stage
from reality_check.config.protocol import Protocol
from reality_check.results import TrialRecord
from reality_check.studies.attempts import best_trial
from reality_check.studies.plan import StudyState
from reality_check.studies.recorded_experiment import RecordedExperiment
from reality_check.utils.text import duration


@dataclass(frozen=True)
class Finished:
    """A complete trial, or a stage whose trials are all complete.

    Attributes:
        method: the name of the method; ``""`` for the baselines.
        stage: the stage.
        search: the number of the search, for that stage.
        trial_index: the number of the trial; ``None`` for a whole stage.
        value: the value of the trial, a fraction; ``None`` for a stage, and if there is no value.
        diverged: why the trial diverged; ``None`` if it did not.
        seconds: the duration of the trial; of a stage, the sum over its trials.
        best: the value of the best trial so far.
        done: the number of complete trials of the stage at that time.
        wanted: the number of trials of the stage.
        metric: the name of the metric of ``value`` and ``best``.
    """

    method: str
    stage: Stage
    search: int
    trial_index: int | None
    value: float | None
    diverged: str | None
    seconds: float | None
    best: float | None
    done: int
    wanted: int
    metric: str

    def plain(self) -> dict[str, Any]:
        """Return the event as plain data, for a line of JSON."""
        kind = "stage_complete" if self.trial_index is None else "trial_complete"
        return {"event": kind, **dataclasses.asdict(self)}

    def __str__(self) -> str:
        """Return the event as a line of the log."""
        prefix = f"{self.method}: " if self.method else ""
        unit = "rung" if self.stage is Stage.RACE else "search"
        prefix += f"{unit} {self.search + 1}, " if self.search or unit == "rung" else ""
        time_taken = f"in {duration(self.seconds)}"
        best = "" if self.best is None else f"best {_percent(self.best)} {self.metric}"
        if self.trial_index is None:
            count = f"{self.stage} complete, {self.done} of {self.wanted}"
            return ", ".join(filter(None, (f"{prefix}{count} {time_taken}", best)))
        title = f"{prefix}{self.stage.trial_name} {self.trial_index + 1}"
        if self.diverged is not None:
            outcome = f"diverged ({self.diverged})"
        else:
            outcome = "" if self.value is None else _percent(self.value)
        outcome = " ".join(filter(None, (outcome, time_taken)))
        count = f"{self.done} of {self.wanted} done"
        return ", ".join(filter(None, (f"{title}: {outcome}", count, best)))


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


class Watch:
    """Finds the trials and stages that were finished since the last call."""

    def __init__(self, recorded: RecordedExperiment) -> None:
        self._recorded = recorded
        self._known: set[tuple[str, Stage, int, int | None]] = set()

    def news(self) -> Iterator[Finished]:
        """Yield what was finished since the last call, in order; the first time, everything."""
        for study in self._recorded.states().ready():
            complete = sorted(study.complete.items(), key=lambda item: _completion_key(item[1]))
            for index, _ in complete:
                if self._is_new(study, index):
                    yield finished(study, index, self._recorded.experiment.protocol)
            if study.is_complete and self._is_new(study, None):
                yield finished(study, None, self._recorded.experiment.protocol)

    def _is_new(self, study: StudyState, index: int | None) -> bool:
        key = (study.method, study.stage, study.search, index)
        is_new = key not in self._known
        self._known.add(key)
        return is_new


def finished(study: StudyState, index: int | None, protocol: Protocol) -> Finished:
    """Describe a complete trial of a stage, or the stage if ``index`` is ``None``."""
    complete = study.complete
    has_value = study.stage is not Stage.BASELINES
    value = diverged = None
    trials = list(complete.values())
    if index is not None:
        latest = complete[index]
        diverged = latest.diverged
        value = latest.value if has_value and diverged is None else None
        complete = {  # only the trials that were complete when this one ended
            n: trial
            for n, trial in complete.items()
            if _completion_key(trial) <= _completion_key(latest)
        }
        trials = [latest]
    best = best_trial(complete) if has_value else None
    return Finished(
        study.method,
        study.stage,
        study.search,
        index,
        value,
        diverged,
        sum(trial.seconds or 0.0 for trial in trials),
        None if best is None else best.value,
        len(complete),
        study.num_trials,
        protocol.objective(study.stage),
    )


def _completion_key(trial: TrialRecord) -> tuple[float, int]:
    """Return a key that sorts complete trials by time."""
    return (0.0 if trial.ended is None else trial.ended.timestamp()), trial.number


def stamped(text: object) -> str:
    """Return a text with the date and time in front."""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}"
