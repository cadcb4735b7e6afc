"""The plain data every reader returns: decoded images, labels and class names."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from reality_check.errors import UsageError

_HASH_CHUNK_BYTES = 1 << 26


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Decoded images with their classes.

    Args:
        images: uint8, shape (N, H, W, C) with C = 1 (grey) or 3 (RGB); may be memory-mapped.
        labels: int64, shape (N,), values 0..C-1; every class owns at least one image.
        class_names: one distinct name per label. Readers sort the classes, so that a label is the
            rank of its class; :meth:`subset` keeps the order that it was asked for.
        name: how reports call the data set.

    Raises:
        UsageError: if an array has another type or shape, a label lies outside the classes, a
            class has no image or a name occurs twice.
    """

    images: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...]
    name: str
    _digest: list[str] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        _check_images(self.name, self.images)
        _check_labels(self.name, self.labels, len(self.images), self.class_names)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of every image."""
        height, width, channels = self.images.shape[1:]
        return int(height), int(width), int(channels)

    def subset(self, classes: Sequence[int]) -> ImageSet:
        """Keep some classes and relabel them 0..len(classes)-1 in the given order.

        Args:
            classes: distinct labels of this set.

        Returns:
            A new set; images stand in the order of this set, so also within each class.

        Raises:
            UsageError: if ``classes`` is empty, repeats a class or names one that is not here.
        """
        chosen = [int(label) for label in classes]
        _check_subset(self.name, chosen, self.num_classes)
        new_label = np.full(self.num_classes, -1, dtype=np.int64)
        new_label[chosen] = np.arange(len(chosen))
        relabelled = new_label[self.labels]
        rows = np.flatnonzero(relabelled >= 0)
        names = tuple(self.class_names[label] for label in chosen)
        return ImageSet(self.images[rows], relabelled[rows], names, self.name)

    def fingerprint(self) -> str:
        """Return the sha256 (hex) of images, labels and class names; computed once.

        Two sets with equal content have equal fingerprints, whatever their ``name`` and wherever
        they were read from.
        """
        if not self._digest:
            self._digest.append(self._hash_content())
        return self._digest[0]

    def _hash_content(self) -> str:
        digest = hashlib.sha256()
        digest.update(json.dumps([list(self.images.shape), list(self.class_names)]).encode())
        digest.update(np.ascontiguousarray(self.labels, dtype="<i8").tobytes())
        rows = max(1, _HASH_CHUNK_BYTES // max(1, self.images[0].nbytes))
        for start in range(0, len(self.images), rows):
            digest.update(np.ascontiguousarray(self.images[start : start + rows]).data)
        return digest.hexdigest()


def _check_images(name: str, images: np.ndarray) -> None:
    if images.dtype != np.uint8:
        raise UsageError(
            f"The images of {name!r} are {images.dtype}, but they must be uint8 (0..255); "
            "convert them with images.astype('uint8') after scaling to 0..255."
        )
    if images.ndim != 4 or images.shape[3] not in (1, 3) or 0 in images.shape:
        raise UsageError(
            f"The images of {name!r} have shape {images.shape}, but they must be (N, H, W, C) with "
            "at least one image and C = 1 (grey) or 3 (RGB)."
        )


def _check_labels(
    name: str, labels: np.ndarray, num_images: int, class_names: tuple[str, ...]
) -> None:
    if labels.dtype != np.int64 or labels.shape != (num_images,):
        raise UsageError(
            f"The labels of {name!r} are {labels.dtype} of shape {labels.shape}, but they must be "
            f"int64 of shape ({num_images},), one per image."
        )
    twice = [text for text, count in Counter(class_names).items() if count > 1]
    if twice:
        raise UsageError(f"{name!r} has two classes named {twice[0]!r}; give each its own name.")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= len(class_names):
        raise UsageError(
            f"The labels of {name!r} span {low}..{high}, but with {len(class_names)} class names "
            f"they must be 0..{len(class_names) - 1}; number the classes from 0 without gaps."
        )
    empty = np.flatnonzero(np.bincount(labels, minlength=len(class_names)) == 0)
    if empty.size:
        raise UsageError(
            f"Class {class_names[empty[0]]!r} of {name!r} has no image; "
            "remove the class or add images to it."
        )


def _check_subset(name: str, chosen: list[int], num_classes: int) -> None:
    if not chosen:
        raise UsageError(f"A subset of {name!r} needs at least one class, but none was given.")
    if len(set(chosen)) != len(chosen):
        raise UsageError(f"A subset of {name!r} names a class twice; give each class once.")
    outside = [label for label in chosen if not 0 <= label < num_classes]
    if outside:
        raise UsageError(
            f"A subset of {name!r} names class {outside[0]}, but its classes are "
            f"0..{num_classes - 1}."
        )
