"""Schedules of learning rates and of values of a loss: their factors in each iteration."""

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
    """Return the factor of every learning rate in an iteration.

    Args:
        iteration: 0-based, counted from the start of the training.
        max_epochs: at which ``cosine`` and ``polynomial`` end.
    """
    epochs = _epochs(schedule.per, iteration, iterations_per_epoch)
    return _warmup(schedule, iteration) * _decay(schedule, epochs, max_epochs)


def value_factor(
    schedule: ValueSchedule, iteration: int, iterations_per_epoch: int, max_epochs: int
) -> float:
    """Return the factor of a value of the loss in an iteration; arguments as above.

    Args:
        iteration: 0-based, of those that the current weights have seen.
        max_epochs: at which ``linear`` and ``cosine`` end that do not say when.
    """
    epochs = _epochs(schedule.per, iteration, iterations_per_epoch)
    factor: Any = schedule.factor
    if schedule.kind == "constant":
        return 1.0
    if schedule.kind == "step":
        # A final training whose epochs are rounded up takes no step that no fold has taken.
        return float(factor ** _steps(schedule, min(epochs, max_epochs - 1)))
    length: Any = max_epochs if schedule.epochs is None else schedule.epochs
    return float(factor + (1 - factor) * _fall(schedule.kind, epochs / length))


class ScheduledValues:
    """The values of a loss that follow a schedule.

    Args:
        loss: as it begins, before a checkpoint is loaded.

    Raises:
        UsageError: the loss has no such value.
    """

    def __init__(
        self, loss: torch.nn.Module, schedules: Mapping[str, ValueSchedule], max_epochs: int
    ) -> None:
        self._loss, self._schedules, self._max_epochs = loss, schedules, max_epochs
        self._first = {name: current_value(loss, name, "schedule") for name in schedules}
        self._now: dict[str, float] = {}

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._schedules)

    def set(self, iteration: int, iterations_per_epoch: int) -> None:
        """Set the values of an iteration in the loss."""
        values = {
            name: self._first[name]
            * value_factor(schedule, iteration, iterations_per_epoch, self._max_epochs)
            for name, schedule in self._schedules.items()
        }
        if values != self._now:
            set_values(self._loss, values, "schedule")
            self._now = values

    def forget(self) -> None:
        """Forget the current values, since a checkpoint may have set others."""
        self._now = {}


def _epochs(per: Literal["epoch", "iteration"], iteration: int, per_epoch: int) -> float:
    return iteration // per_epoch if per == "epoch" else iteration / per_epoch


def _warmup(schedule: Schedule, iteration: int) -> float:
    if iteration >= schedule.warmup_iterations:
        return 1.0
    share = iteration / schedule.warmup_iterations
    return schedule.warmup_start + (1 - schedule.warmup_start) * share


def _decay(schedule: Schedule, epochs: float, max_epochs: int) -> float:
    if schedule.kind == "constant":
        return 1.0
    if schedule.kind == "step":
        return schedule.factor ** _steps(schedule, epochs)
    shape = _fall(schedule.kind, epochs / max_epochs) ** schedule.power
    return schedule.end + (1 - schedule.end) * shape


def _steps(schedule: Schedule | ValueSchedule, epochs: float) -> int:
    every: Any = schedule.every
    return bisect_right(schedule.at, epochs) if every is None else int(epochs // every)


def _fall(kind: str, share: float) -> float:
    """Return a value that falls from 1 to 0 with the share of the time, by a line or a cosine."""
    left = 1 - min(share, 1.0)
    return (1 - math.cos(math.pi * left)) / 2 if kind == "cosine" else left
