"""The protocol's patience rule, which ends a phase of training."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class EarlyStopping:
    """Decides to stop when an evaluation comes more than ``patience`` epochs after the best one.

    Only evaluations count; a value must be strictly higher to be the new best, so ties keep the
    earlier epoch (protocol section 2).

    Args:
        patience: the number of epochs to wait for a better value; ``None`` never stops.
    """

    patience: int | None
    best_value: float | None = None
    best_epoch: int | None = None
    latest_epoch: int | None = None

    def update(self, epoch: int, value: float) -> bool:
        """Record an evaluation; return whether it is the new best."""
        self.latest_epoch = epoch
        if self.best_value is not None and value <= self.best_value:
            return False
        self.best_value, self.best_epoch = value, epoch
        return True

    @property
    def should_stop(self) -> bool:
        """Whether the latest evaluation exhausted the patience."""
        if self.patience is None or self.latest_epoch is None or self.best_epoch is None:
            return False
        return self.latest_epoch - self.best_epoch > self.patience
