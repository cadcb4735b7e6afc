"""The progress of a fold run: epochs, phases, evaluations, and the best evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reality_check.config.method import last_change
from reality_check.config.metrics import SELECTS_ON_TEST
from reality_check.training.early_stopping import EarlyStopping
from reality_check.training.fold import FoldResult, FoldTask


@dataclass
class Position:
    """The position of a fold run; all counts are in epochs."""

    phase: int = 1
    epoch: int = 0  # epochs that the current weights were trained for
    spent: int = 0  # all epochs trained, including those discarded at the end of phase 1
    phase_epochs: int = 0  # epochs trained in this phase
    phase_start: int = 0  # ``epoch`` when this phase began
    seconds: float = 0.0

    @property
    def follow_up_epochs(self) -> int:
        """Epochs of the second phase that the current weights were trained for."""
        return self.epoch - self.phase_start if self.phase == 2 else 0


@dataclass(frozen=True)
class Best:
    """The best evaluation so far, and the epochs of its weights."""

    value: float
    epoch: int
    phase: int
    follow_up_epochs: int


class FoldProgress:
    """Decides when a fold run evaluates and when a phase ends, and keeps its evaluations.

    Attributes:
        position: the current position of the run.
        best: the best evaluation of the current phase. Evaluations count once the schedules have
            reached their last values, so that the network was trained by the whole method;
            ``None`` before the first of these.
        cut_short: the phases whose best epoch was the last one that was allowed.
        history: one row per evaluation: ``epoch`` (-1 for the trunk without embedder, 0 for the
            untrained network), ``step`` (epochs trained so far), ``phase``, ``loss`` and the
            metrics; rows of trained weights also have ``attributes`` of the loss and the miner.
    """

    def __init__(self, task: FoldTask) -> None:
        self._task = task
        self._training = task.training
        self.position = Position()
        self.best: Best | None = None
        self.cut_short: list[int] = []
        self.history: list[dict[str, Any]] = []
        self._stopping = EarlyStopping(task.training.patience)
        settings = task.settings
        has_two_phases = settings.second_phase is not None
        # The last epoch in which a schedule changes a value; 0 if no schedule does.
        self._last_change = last_change(settings.schedules, task.training, has_two_phases)

    # -- phases -----------------------------------------------------------------------------

    def has_second_phase(self) -> bool:
        """Return whether a second phase comes after the first."""
        if self._task.fixed_epochs is not None:
            return self._task.fixed_epochs[1] > 0
        return self._task.settings.second_phase is not None

    def phase_limit(self) -> int:
        """Return the maximum number of epochs of this phase; both phases share ``max_epochs``."""
        position, training = self.position, self._training
        if self._task.fixed_epochs is not None:
            return self._task.fixed_epochs[position.phase - 1]
        if position.phase == 2:  # what the first phase has left
            return training.max_epochs - (position.spent - position.phase_epochs)
        return training.phase_epochs(self.has_second_phase())[0]

    def phase_is_over(self) -> bool:
        """Return whether the current phase has ended."""
        return self.position.phase_epochs >= self.phase_limit() or self._stopping.should_stop

    def evaluation_is_due(self) -> bool:
        """Return whether the network is to be evaluated after the epoch that has just ended."""
        epochs = self.position.phase_epochs
        return epochs % self._training.evaluate_every == 0 or epochs >= self.phase_limit()

    def count_epoch(self, seconds: float) -> None:
        """Count an epoch of training."""
        self.position.epoch += 1
        self.position.spent += 1
        self.position.phase_epochs += 1
        self.position.seconds += seconds

    def end_phase(self) -> None:
        """Record the phase as cut short if its best epoch is the last one that was allowed."""
        training, position = self._training, self.position
        # More epochs were not possible in a phase of fixed length, so it is not cut short.
        has_fixed_length = (
            position.phase == 1 and training.second_phase_epochs and self.has_second_phase()
        )
        at_best = self.best is not None and self.best.epoch == position.epoch
        if at_best and not has_fixed_length and position.phase_epochs >= self.phase_limit():
            self.cut_short.append(position.phase)

    def begin_second_phase(self) -> None:
        """Start the second phase, which has its own best evaluation and its own patience.

        It is part of the method, so weights of the first phase are no longer candidates.
        """
        self.position.phase = 2
        self.position.phase_epochs = 0
        self.position.phase_start = self.position.epoch
        self.best = None
        self._stopping = EarlyStopping(self._training.patience)

    # -- evaluations ------------------------------------------------------------------------

    def add_untrained(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """Record an evaluation before the training, in epoch -1 or 0.

        The untrained network counts for the patience, unless a schedule changes the loss, but is
        never the best.
        """
        if epoch == 0 and not self._last_change:
            self._stopping.update(0, self._value(metrics))
        row = {"epoch": epoch, "step": epoch, "phase": 1, "loss": None, **metrics}
        self.history.append(row)

    def add(
        self,
        metrics: Mapping[str, float],
        loss: float,
        attributes: Mapping[str, Mapping[str, float]] | None = None,
    ) -> bool:
        """Record an evaluation of trained weights; return whether it is the best so far.

        Ties keep the earlier epoch. Weights from before a schedule's last change do not count.
        """
        position, value = self.position, self._value(metrics)
        row = {"epoch": position.epoch, "step": position.spent, "phase": position.phase}
        self.history.append({**row, "loss": loss, **metrics, "attributes": attributes or {}})
        if position.epoch <= self._last_change:
            return False
        self._stopping.update(position.epoch, value)
        if self.best is not None and value <= self.best.value:
            return False
        self.best = Best(value, position.epoch, position.phase, position.follow_up_epochs)
        return True

    def _value(self, metrics: Mapping[str, float]) -> float:
        """Return the value by which epochs are compared; higher is better."""
        if self._task.selects_on == "test":
            return metrics[SELECTS_ON_TEST]  # of which higher values are always better
        return self._task.sign * metrics[self._task.selects_by]

    # -- reports -----------------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        """Return the position and the best value, for live views."""
        fixed = self._task.fixed_epochs
        return {
            "epoch": self.position.spent,
            "max_epochs": sum(fixed) if fixed else self._training.max_epochs,
            "best": None if self.best is None else self.best.value,
        }

    def result(self) -> FoldResult:
        """Return the result so far; without evaluations, the current weights count as the best."""
        position = self.position
        best = self.best or Best(0.0, position.epoch, position.phase, position.follow_up_epochs)
        return FoldResult(
            value=best.value,
            epoch=best.epoch,
            follow_up_epochs=best.follow_up_epochs,
            epochs_spent=position.spent,
            cut_short=tuple(self.cut_short),
            seconds=position.seconds,
            curve=tuple(self.history),
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain data."""
        return {
            "position": dict(vars(self.position)),
            "best": None if self.best is None else dict(vars(self.best)),
            "stopping": dict(vars(self._stopping)),
            "cut_short": list(self.cut_short),
            "history": list(self.history),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned."""
        self.position = Position(**state["position"])
        self.best = None if state["best"] is None else Best(**state["best"])
        self._stopping = EarlyStopping(**state["stopping"])
        self.cut_short = list(state["cut_short"])
        self.history = list(state["history"])

    def return_to(self, state: Mapping[str, Any]) -> None:
        """Restore an earlier state, but keep the evaluations and the phases cut short so far.

        The number of all epochs trained and their time are kept too.
        """
        spent, seconds = self.position.spent, self.position.seconds
        history, cut_short = self.history, self.cut_short
        self.load_state_dict(state)
        self.position.spent, self.position.seconds = spent, seconds
        self.history, self.cut_short = history, cut_short
