"""Small campaigns on made-up images whose fold runs can be replaced by made-up results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy.event import listen

from reality_check.config import Experiment, compose
from reality_check.training.trainer import FoldTask
from support.worked_experiment import WorkedExperiment

TRAINING = {
    "batch_size": 4,
    "iterations_per_epoch": 1,
    "max_epochs": 2,
    "evaluate_every": 1,
    "embedding_size": 4,
}


def experiment(**changes: Any) -> Experiment:
    return compose(
        {
            "name": "tiny",
            "dataset": "glyphs",
            "model": {"base": "conv4", "arguments": {"width": 4}},
            "protocol": {
                "base": "quick_one_search",
                "training": TRAINING,
                "search": {"trials": 2, "sampler": "random"},
                "reproductions": 2,
            },
            "methods": [
                {"base": "contrastive", "samples_per_class": 2},
                {"base": "heated_up_softmax", "samples_per_class": 1},
            ],
            "device": "cpu",
            **changes,
        }
    )


class Spied(WorkedExperiment):
    """A recorded on made-up images, whose database does not wait for the disk."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        engine = self.storage.engine
        engine.dispose()
        listen(engine, "connect", lambda raw, _: raw.execute("PRAGMA synchronous=OFF"))


Made = Callable[..., Spied]
Handed = list[tuple[FoldTask, tuple[str, ...], tuple[str, ...] | None, Path]]
