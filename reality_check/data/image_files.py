"""A data set before decoding: files, labels and the official split, as readers return them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """The image files of a data set with their classes.

    Args:
        name: name of the data set in reports.
        root: folder that contains the files.
        paths: path of each image, relative to ``root`` with forward slashes, in the data set's own
            order.
        labels: int64, shape (N,): the class of each image, as its index in ``class_names``.
        class_names: one distinct name per label.
        test_classes: labels of the official test classes, ascending; None if the data set has no
            official split.
        queries: bool, shape (N,): which images are queries of the official test; the other images
            of the test classes are its gallery. None if every test image is both.
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
