"""The task of a training and its result, as plain data."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from reality_check.config.metrics import PRIMARY
from reality_check.config.model import Model
from reality_check.config.training import GpuSettings, Training
from reality_check.training.methods import FilledMethod


@dataclass(frozen=True)
class FoldTask:
    """The task of a fold run.

    Attributes:
        network_seed: of the initial weights and the order of batches; the same for all methods.
        loss_seed: of the initial parameters of the loss.
        embedding_size: width of the embedding.
        fixed_epochs: epochs of the first and second phase when there is no validation set
            (the complete category); else ``None``.
        keep_model: whether ``model.pt`` is written at the end.
        selects_on: what the second set of images is. ``test``: the test classes, so that the epoch
            with the best P@1 on them is kept, as papers did; reports say so. Only
            ``TrialRunner._selecting_on_test`` makes such a task.
        selects_by: the metric of the validation classes that chooses the epoch.
        sign: -1 where its lowest value is the best: values are then minus the metric.
    """

    settings: FilledMethod
    model: Model
    training: Training
    embedding_size: int
    network_seed: int
    loss_seed: int
    fixed_epochs: tuple[int, int] | None = None
    keep_model: bool = True
    selects_on: Literal["validation", "test"] = "validation"
    selects_by: str = PRIMARY
    sign: int = 1

    def fingerprint(self) -> str:
        """Return the SHA-256 of all values that differ from their defaults.

        A checkpoint of another task must not be continued. One of the same task must be, also on
        another device, or after a class was renamed, or an option was added that it does not use.
        """
        training = self.training.model_copy(update={"gpu": GpuSettings()})
        plain = _without_defaults(dataclasses.replace(self, training=training))
        text = json.dumps(plain, sort_keys=True, default=repr)
        return hashlib.sha256(text.encode()).hexdigest()


def _without_defaults(value: Any) -> Any:
    """Return a task, or a part of it, as plain data."""
    if isinstance(value, BaseModel):
        defaults = {
            name: option.get_default(call_default_factory=True)
            for name, option in type(value).model_fields.items()
            if not option.is_required()
        }
        return _without_defaults(_changes(dict(value), defaults))
    if dataclasses.is_dataclass(value):
        defaults = {
            option.name: option.default
            if option.default_factory is dataclasses.MISSING
            else option.default_factory()
            for option in dataclasses.fields(value)
        }
        given = {name: getattr(value, name) for name in defaults}
        return _without_defaults(_changes(given, defaults))
    if isinstance(value, Mapping):
        return {str(key): _without_defaults(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_defaults(item) for item in value]
    return value


def _changes(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in given.items()
        if name not in defaults or value != defaults[name]
    }


@dataclass(frozen=True)
class FoldResult:
    """The result of a fold run.

    Attributes:
        value: best validation score over trained epochs, of the second phase where there is one,
            times the task's ``sign`` (0 without validation; P@1 where the test classes select).
        epoch: epochs of training of the best weights.
        follow_up_epochs: those of them that belong to the second phase.
        epochs_spent: all epochs trained, also those after the best.
        cut_short: the phases that ended at their best epoch because none more was allowed.
        seconds: wall time, training and evaluation.
        curve: one row per evaluation, see
            :class:`reality_check.training.fold_progress.FoldProgress`.
        remarks: options that could not be used, which does not change the result.
    """

    value: float
    epoch: int
    follow_up_epochs: int
    epochs_spent: int
    seconds: float
    curve: tuple[dict[str, Any], ...]
    cut_short: tuple[int, ...] = ()
    remarks: tuple[str, ...] = ()
