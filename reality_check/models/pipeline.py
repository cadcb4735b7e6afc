"""From stored images to what a network takes: gathering, augmentation and preprocessing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from reality_check.config.model import Model
from reality_check.config.training import Training
from reality_check.data.augmentation.augment import Augmentation
from reality_check.data.imageset import ImageSet
from reality_check.data.store import PixelStore
from reality_check.models import preprocessing
from reality_check.utils.errors import UsageError

#: Images of an evaluation batch: so many pixels, within limits. A CPU wants its maps in the cache.
_FEWEST = 32
_PIXELS = {"cpu": 64 * 64 * 64, "other": 4096 * 64 * 64}
_MOST = {"cpu": 128, "other": 512}

#: Batches, images and pixels that are augmented together.
_BATCHES_TOGETHER, _IMAGES_TOGETHER, _PIXELS_TOGETHER = 16, 1024, 1024 * 32 * 32


def build_augmentation(model: Model, training: Training, channels: int) -> Augmentation:
    """The augmentation of a protocol, with the preprocessing of a trunk.

    Args:
        model: of the experiment.
        training: of the protocol.
        channels: of the images, 1 or 3.

    Raises:
        UsageError: an option is out of its range, or does not fit the channels.
    """
    return Augmentation(
        **training.augmentation.model_dump(), preprocessing=preprocessing(model, channels)
    )


def input_shape(images: ImageSet, training: Training) -> tuple[int, int, int]:
    """Height, width and channels of what the network gets.

    Raises:
        UsageError: the images have different sizes and no crop size is given.
    """
    size = training.augmentation.crop_size
    if size is not None:
        return size, size, images.images.channels
    if images.image_shape is None:
        raise UsageError(
            f"The images of {images.name!r} have different sizes, so the network needs crops of "
            "one size: write protocol.training.augmentation.crop_size: 224, or dataset.resize: "
            "square."
        )
    return images.image_shape


class Pipeline:
    """The images of one set, as batches for a network.

    Args:
        images: the set.
        augmentation: of the training, see :func:`build_augmentation`.
        shape: (H, W, C) of the network's input, see :func:`input_shape`.
        device: where batches are wanted.
    """

    def __init__(
        self,
        images: ImageSet,
        augmentation: Augmentation,
        shape: tuple[int, int, int],
        device: torch.device,
    ) -> None:
        self.augmentation = augmentation
        self.evaluation = augmentation.evaluation_transform()
        self.store = PixelStore(images.images, device)
        self._pixels = shape[0] * shape[1]
        kind = "cpu" if device.type == "cpu" else "other"
        self._batch = min(max(_PIXELS[kind] // self._pixels, _FEWEST), _MOST[kind])

    def __len__(self) -> int:
        return len(self.store)

    def batches_at_once(self, size: int) -> int:
        """How many batches of ``size`` images are worth being augmented together."""
        fitting = min(_IMAGES_TOGETHER // size, _PIXELS_TOGETHER // (size * self._pixels))
        return max(1, min(_BATCHES_TOGETHER, fitting))

    def training_batch(self, rows: np.ndarray, numbers: np.ndarray) -> Tensor:
        """Augmented images: float32 (B, C, H, W).

        Args:
            rows: int64, shape (B,).
            numbers: random ones, one row per image, see :meth:`Augmentation.draw`.
        """
        return self.augmentation.apply(self.store.batch(rows), numbers)

    def corrupted_batches(self, corruption: str) -> Iterator[Tensor]:
        """All images in order, corrupted after the crop and before the preprocessing.

        Args:
            corruption: one of :data:`pml_extensions.evaluation.CORRUPTIONS`, with its default
                strengths. An image is corrupted in the same way in every call, on every device.

        Raises:
            UsageError: the images are grey and the corruption is one of colours.
        """
        for start in range(0, len(self), self._batch):
            rows = np.arange(start, min(start + self._batch, len(self)))
            yield self.evaluation.corrupted(self.store.batch(rows), corruption, start)

    def evaluation_batches(self, rows: np.ndarray | None = None) -> Iterator[Tensor]:
        """All images, or those of ``rows``, as evaluation sees them, in order."""
        rows = np.arange(len(self)) if rows is None else rows
        for start in range(0, len(rows), self._batch):
            yield self.evaluation(self.store.batch(rows[start : start + self._batch]))


def build_pipeline(
    images: ImageSet, model: Model, training: Training, device: torch.device
) -> Pipeline:
    """The images of one set, with the augmentation, input and preprocessing of an experiment.

    Raises:
        UsageError: see :func:`input_shape` and :func:`build_augmentation`.
    """
    shape = input_shape(images, training)
    return Pipeline(images, build_augmentation(model, training, shape[2]), shape, device)
