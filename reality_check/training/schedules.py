"""Learning rates over a training: the factor of each iteration, as a pure function."""

from __future__ import annotations

import math
from bisect import bisect_right

from reality_check.config.training import Schedule


def rate_factor(
    schedule: Schedule, iteration: int, iterations_per_epoch: int, max_epochs: int
) -> float:
    """What every learning rate is multiplied by in an iteration.

    Args:
        schedule: of the training.
        iteration: 0-based, counted from the start of the training.
        iterations_per_epoch: of the training.
        max_epochs: at which ``cosine`` and ``polynomial`` end.

    Returns:
        At least 0.
    """
    epochs = iteration / iterations_per_epoch
    if schedule.per == "epoch":
        epochs = iteration // iterations_per_epoch
    return _warmup(schedule, iteration) * _decay(schedule, epochs, max_epochs)


def _warmup(schedule: Schedule, iteration: int) -> float:
    if iteration >= schedule.warmup_iterations:
        return 1.0
    share = iteration / schedule.warmup_iterations
    return schedule.warmup_start + (1 - schedule.warmup_start) * share


def _decay(schedule: Schedule, epochs: float, max_epochs: int) -> float:
    """The factor after so many epochs."""
    if schedule.kind == "constant":
        return 1.0
    if schedule.kind == "step":
        every = schedule.every
        steps = bisect_right(schedule.at, epochs) if every is None else int(epochs // every)
        return schedule.factor**steps
    left = 1 - min(epochs / max_epochs, 1.0)
    shape = left**schedule.power
    if schedule.kind == "cosine":
        shape = (1 - math.cos(math.pi * left)) / 2
    return schedule.end + (1 - schedule.end) * shape
