"""What ranks by directions takes embeddings of any length: the cosine has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pml_extensions.evaluation import (
    RetrievalMetrics,
    class_separability,
    clustering_metrics,
    merge_mirrored,
    nearest_neighbours,
    pair_verification,
)


def clusters() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(10, 8, generator=generator)
    labels = torch.arange(100) % 10
    return centres[labels] + 0.8 * torch.randn(100, 8, generator=generator), labels


MEASURES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "retrieval": lambda x, y: RetrievalMetrics(normalize=True)(x, y),
    "clustering": lambda x, y: clustering_metrics(x, y, normalize=True),
    "separability": lambda x, y: class_separability(x, y, normalize=True),
    "neighbours": lambda x, _: nearest_neighbours(x, range(9), 5).tolist(),
    "verification": lambda x, y: pair_verification(x[:50], x[50:], y[:50] == y[50:].flip(0) % 7),
    "mirrored": lambda x, _: merge_mirrored(x, x.flip(1)).tolist(),
}


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("exponent", [-40, 100])
def test_length_changes_nothing(name: str, exponent: int) -> None:
    x, labels = clusters()
    measure = MEASURES[name]
    assert str(measure(x * 2.0**exponent, labels)) == str(measure(x, labels))
