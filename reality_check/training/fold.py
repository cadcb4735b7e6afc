"""The task and the result of a fold run, as plain data."""

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
        settings: the method with its sampled values.
        model: the configuration of the network.
        training: the configuration of the training.
        embedding_size: width of the embedding.
        network_seed: seed of the initial weights and of the order of batches, which is the same
            for all methods.
        loss_seed: seed of the initial parameters of the loss.
        fixed_epochs: number of epochs of the first and of the second phase if there is no
            validation set (the complete category); otherwise ``None``.
        keep_model: whether ``model.pt`` is written at the end.
        selects_on: which classes choose the best epoch. With ``test``, the epoch with the best
            P@1 on the test classes is kept, as some papers did, and reports say so. Only
            ``TrialRunner._train_selecting_on_test`` creates such a task.
        selects_by: the metric of the validation classes that chooses the epoch.
        sign: -1 if the lowest value of that metric is the best, otherwise 1; the metric is
            multiplied by it.
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

        Only a checkpoint with the same fingerprint is continued. So the fingerprint stays the same
        on another device, after a class was renamed, and when an option was added that the task
        does not use.
        """
        # The GPU settings are left out, because another device may have none.
        training = self.training.model_copy(update={"gpu": GpuSettings()})
        plain = _without_defaults(dataclasses.replace(self, training=training))
        text = json.dumps(plain, sort_keys=True, default=repr)
        return hashlib.sha256(text.encode()).hexdigest()


def _without_defaults(value: Any) -> Any:
    """Return a task, or a part of it, as plain data without options that have their defaults."""
    if isinstance(value, BaseModel):
        defaults = {
            name: option.get_default(call_default_factory=True)
            for name, option in type(value).model_fields.items()
            if not option.is_required()
        }
        values = dict(value)
    elif dataclasses.is_dataclass(value):
        # A field without a default gets MISSING here, which equals no value.
        defaults = {
            option.name: option.default
            if option.default_factory is dataclasses.MISSING
            else option.default_factory()
            for option in dataclasses.fields(value)
        }
        values = {name: getattr(value, name) for name in defaults}
    elif isinstance(value, Mapping):
        return {str(key): _without_defaults(item) for key, item in value.items()}
    elif isinstance(value, list | tuple):
        return [_without_defaults(item) for item in value]
    else:
        return value
    return {  # of a pydantic model or a dataclass
        name: _without_defaults(item)
        for name, item in values.items()
        if name not in defaults or item != defaults[name]
    }


@dataclass(frozen=True)
class FoldResult:
    """The result of a fold run.

    Attributes:
        value: the best validation score of a trained epoch (of the second phase, if there is one),
            times the task's ``sign``; 0 without validation classes, and P@1 on the test classes
            if these choose the epoch.
        epoch: the number of epochs that the best weights were trained for.
        follow_up_epochs: how many of those epochs belong to the second phase.
        epochs_spent: the number of all epochs trained, including those after the best.
        seconds: the wall time of training and evaluation.
        curve: one row per evaluation, see
            :class:`reality_check.training.fold_progress.FoldProgress`.
        cut_short: the phases whose best epoch was the last one that was allowed.
        remarks: how batches were embedded in parts, and options that could not be used.
        gpu_memory: the most bytes of GPU memory that were in use at a time; 0 without a GPU.
    """

    value: float
    epoch: int
    follow_up_epochs: int
    epochs_spent: int
    seconds: float
    curve: tuple[dict[str, Any], ...]
    cut_short: tuple[int, ...] = ()
    remarks: tuple[str, ...] = ()
    gpu_memory: int = 0
