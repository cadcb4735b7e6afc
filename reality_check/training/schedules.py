"""The factors by which schedules multiply learning rates and values of a loss."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, Literal

import torch

from reality_check.config.method import ValueSchedule
from reality_check.config.training import Schedule
from reality_check.training.methods import current_value, set_values


def rate_factor(
    schedule: Schedule, iteration: int, iterations_per_epoch: int, max_epochs: int
) -> float:
    """Return the factor by which learning rates are multiplied in an iteration.

    Args:
        schedule: the schedule of all learning rates.
        iteration: the iteration, counted from 0 at the start of the training.
        iterations_per_epoch: the number of iterations in an epoch.
        max_epochs: the epoch at which ``cosine`` and ``polynomial`` end.
    """
    epochs = _elapsed_epochs(schedule.per, iteration, iterations_per_epoch)
    return _warmup_factor(schedule, iteration) * _decay_factor(schedule, epochs, max_epochs)


def value_factor(
    schedule: ValueSchedule, iteration: int, iterations_per_epoch: int, max_epochs: int
) -> float:
    """Return the factor by which a value of the loss is multiplied in an iteration.

    Args:
        schedule: the schedule of the value.
        iteration: the number of earlier iterations that the current weights were trained with.
        iterations_per_epoch: the number of iterations in an epoch.
        max_epochs: the epoch at which ``linear`` and ``cosine`` end, if the schedule has no
            ``epochs``.
    """
    epochs = _elapsed_epochs(schedule.per, iteration, iterations_per_epoch)
    factor: Any = schedule.factor
    if schedule.kind == "constant":
        return 1.0
    if schedule.kind == "step":
        # The epochs of a final training are rounded up; it must not take a step that no fold took.
        return float(factor ** _steps_taken(schedule, min(epochs, max_epochs - 1)))
    length: Any = max_epochs if schedule.epochs is None else schedule.epochs
    return float(factor + (1 - factor) * _falling_factor(schedule.kind, epochs / length))


class ScheduledValues:
    """The values of a loss that follow a schedule.

    Args:
        loss: the new loss, before a checkpoint is loaded, so that it has its first values.
        schedules: the schedules by the names of the values.
        max_epochs: see :func:`value_factor`.

    Raises:
        UsageError: the loss has no such value.
    """

    def __init__(
        self, loss: torch.nn.Module, schedules: Mapping[str, ValueSchedule], max_epochs: int
    ) -> None:
        self._loss, self._schedules, self._max_epochs = loss, schedules, max_epochs
        self._initial = {name: current_value(loss, name, "schedule") for name in schedules}
        self._current: dict[str, float] = {}

    def __bool__(self) -> bool:
        """Return whether any value has a schedule."""
        return bool(self._schedules)

    def set(self, iteration: int, iterations_per_epoch: int) -> None:
        """Give the loss its values for an iteration."""
        values = {
            name: self._initial[name]
            * value_factor(schedule, iteration, iterations_per_epoch, self._max_epochs)
            for name, schedule in self._schedules.items()
        }
        if values != self._current:
            set_values(self._loss, values, "schedule")
            self._current = values

    def forget(self) -> None:
        """Forget the values that were set last, since a checkpoint may have replaced them."""
        self._current = {}


def _elapsed_epochs(per: Literal["epoch", "iteration"], iteration: int, per_epoch: int) -> float:
    """Return the epochs before an iteration, whole ones if the schedule changes per epoch."""
    return iteration // per_epoch if per == "epoch" else iteration / per_epoch


def _warmup_factor(schedule: Schedule, iteration: int) -> float:
    if iteration >= schedule.warmup_iterations:
        return 1.0
    share = iteration / schedule.warmup_iterations
    return schedule.warmup_start + (1 - schedule.warmup_start) * share


def _decay_factor(schedule: Schedule, epochs: float, max_epochs: int) -> float:
    if schedule.kind == "constant":
        return 1.0
    if schedule.kind == "step":
        return schedule.factor ** _steps_taken(schedule, epochs)
    falling = _falling_factor(schedule.kind, epochs / max_epochs) ** schedule.power
    return schedule.end + (1 - schedule.end) * falling


def _steps_taken(schedule: Schedule | ValueSchedule, epochs: float) -> int:
    """Return the number of steps, which come at the epochs ``at`` or after each ``every``."""
    interval: Any = schedule.every
    return bisect_right(schedule.at, epochs) if interval is None else int(epochs // interval)


def _falling_factor(kind: str, share: float) -> float:
    """Return a value that falls from 1 to 0 as ``share`` grows from 0 to 1.

    The curve is half a period of a cosine if ``kind`` is ``"cosine"``, otherwise a line.
    """
    left = 1 - min(share, 1.0)
    return (1 - math.cos(math.pi * left)) / 2 if kind == "cosine" else left
