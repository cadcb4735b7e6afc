"""Small campaigns on made-up images whose fold runs can be replaced by made-up results."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from sqlalchemy.event import listen

from reality_check.config import Experiment, compose
from reality_check.models.pipeline import Pipeline
from reality_check.training.trainer import FoldResult, FoldTask, Trainer
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


@contextlib.contextmanager
def made_up_fold_runs() -> Iterator[Handed]:
    """What every fold run is handed; each then ends at once with a made-up result."""
    seen: Handed = []
    seeds = itertools.count()

    def run(self: Trainer) -> FoldResult:
        validation = None if self.validation is None else self.validation.class_names
        seen.append((self.task, self.train_set.class_names, validation, self.folder))
        return FoldResult(0.1 * (len(seen) % 7), 3, 1, 4, 0.0, ())

    def embeddings(network: None, images: Pipeline, device: torch.device) -> torch.Tensor:
        generator = torch.Generator().manual_seed(next(seeds))  # no two networks are equal
        return torch.randn(len(images), 4, generator=generator)

    with (
        mock.patch.object(Trainer, "run", run),
        mock.patch("reality_check.launch.scorer.load_kept", return_value=None),
        mock.patch("reality_check.evaluation.categories.embed_images", embeddings),
        mock.patch("os.fsync"),
    ):
        yield seen
