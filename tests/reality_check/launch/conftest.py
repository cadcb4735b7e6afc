from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.spied import Handed, Made, Spied, experiment

from reality_check.data import ImageSet
from reality_check.models.pipeline import Pipeline
from reality_check.training.trainer import FoldResult, Trainer


@pytest.fixture
def make(
    make_images: Callable[..., ImageSet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Made:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)

    def make_recorded(on_progress: Callable[..., None] = lambda _: None, **changes: Any) -> Spied:
        return Spied(experiment(**changes), tmp_path, make_images(16), on_progress=on_progress)

    return make_recorded


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> Handed:
    """What every fold run is handed; each then ends at once with a made-up result."""
    seen: Handed = []

    def run(self: Trainer) -> FoldResult:
        validation = None if self.validation is None else self.validation.class_names
        seen.append((self.task, self.train_set.class_names, validation, self.folder))
        return FoldResult(0.1 * (len(seen) % 7), 3, 1, 4, 0.0, ())

    def embeddings(network: None, images: Pipeline, device: torch.device) -> torch.Tensor:
        generator = torch.Generator().manual_seed(0)
        return torch.randn(len(images), 4, generator=generator)

    monkeypatch.setattr(Trainer, "run", run)
    monkeypatch.setattr("reality_check.launch.scorer.load_kept", lambda *arguments: None)
    monkeypatch.setattr("reality_check.evaluation.categories.embed_images", embeddings)
    return seen
