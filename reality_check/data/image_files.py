"""A data set before decoding: files, labels and the official split, as every reader lists them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """The image files of a data set with their classes.

    Args:
        name: how reports call the data set.
        root: folder that ``paths`` are below.
        paths: one per image, relative to ``root`` with forward slashes, in the data set's own
            order.
        labels: int64, shape (N,), 0-based rank of each image's class.
        class_names: one distinct name per label.
        test_classes: labels of the official test classes, ascending; None where the data set has
            no official split.
        queries: bool, shape (N,): query images of the official test, the other images of the test
            classes being its gallery; None where every test image queries all others.
    """

    name: str
    root: Path
    paths: tuple[str, ...]
    labels: np.ndarray
    class_names: tuple[str, ...]
    test_classes: tuple[int, ...] | None = None
    queries: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.paths)
