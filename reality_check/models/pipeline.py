"""Turn stored samples into a network's input: gathering, augmentation and preprocessing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reality_check.config.model import Model
from reality_check.config.training import Augment
from reality_check.data.augmentation.augment import Augmentation
from reality_check.data.augmentation.vectors import VectorAugmentation
from reality_check.data.images import Images
from reality_check.data.sample_set import ImageSet, SampleSet
from reality_check.data.store import PixelStore, TensorStore
from reality_check.data.tensors import InputShape, TensorShape
from reality_check.models import preprocessing
from reality_check.utils.errors import UsageError

#: Images of an evaluation batch: so many pixels, within limits. A CPU wants its maps in the cache.
_FEWEST = 32
_PIXELS = {"cpu": 64 * 64 * 64, "other": 4096 * 64 * 64}
_MOST = {"cpu": 128, "other": 512}
#: Vectors of an evaluation batch.
_MOST_VECTORS = 2048

#: Batches, images and pixels that are augmented together.
_BATCHES_TOGETHER, _IMAGES_TOGETHER, _PIXELS_TOGETHER = 16, 1024, 1024 * 32 * 32


def build_augmentation(
    model: Model, options: Augment, shape: InputShape
) -> Augmentation | VectorAugmentation:
    """Build the augmentation of a protocol, with the preprocessing of a trunk.

    Raises:
        UsageError: an option is out of its range, or does not fit the samples.
    """
    of_images, of_vectors = options.of_images(), options.of_vectors()
    if not isinstance(shape, TensorShape):
        _refuse(of_vectors, "images", "of vectors", "")
        return Augmentation(**of_images, preprocessing=preprocessing(model, shape[2]))
    _refuse(of_images, "no images", "of images", ", or take the protocol features")
    if model.preprocessing.model_dump(exclude_none=True):
        raise UsageError(
            "model.preprocessing is about pixels, but the samples are no images; remove it."
        )
    if not shape.dtype.is_floating_point:
        _refuse(of_vectors, "integers", "of floats", "")
    return VectorAugmentation(math.prod(shape.sizes), **of_vectors)


def _refuse(options: dict[str, Any], given: str, meant: str, instead: str) -> None:
    """Refuse augmentation that has no meaning for the samples."""
    used = [key for key, value in options.items() if value != Augment.model_fields[key].default]
    if used:
        keys = ", ".join(f"augmentation.{key}" for key in used)
        them = "it" if len(used) == 1 else "them"
        raise UsageError(
            f"The samples are {given}, but protocol.training has {keys}, changes {meant}; remove "
            f"{them}{instead}."
        )


def input_shape(samples: SampleSet, options: Augment) -> InputShape:
    """Return the shape of a network's input: (H, W, C) of images, else that of the tensors.

    Raises:
        UsageError: the images have different sizes and no crop size is given.
    """
    if not isinstance(samples, ImageSet):
        assert not isinstance(samples.samples, Images)
        return samples.samples.input_shape
    size = options.crop_size
    if size is not None:
        return size, size, samples.images.channels
    if samples.image_shape is None:
        raise UsageError(
            f"The images of {samples.name!r} have different sizes, so the network needs crops of "
            "one size: write protocol.training.augmentation.crop_size: 224, or dataset.resize: "
            "square."
        )
    return samples.image_shape


class Pipeline:
    """The samples of one set, as batches for a network.

    Args:
        batch_size: of evaluation; None: as many as fit the device well.
    """

    def __init__(
        self,
        samples: SampleSet,
        augmentation: Augmentation | VectorAugmentation,
        shape: InputShape,
        device: torch.device,
        batch_size: int | None = None,
    ) -> None:
        # Images go with an Augmentation and tensors with a VectorAugmentation.
        self.augmentation: Any = augmentation
        self.evaluation: Any = augmentation.evaluation_transform()
        self.store: PixelStore | TensorStore
        kind = "cpu" if device.type == "cpu" else "other"
        most = _MOST[kind]
        if isinstance(samples.samples, Images):
            assert not isinstance(shape, TensorShape)
            self.store = PixelStore(samples.samples, device)
            self._pixels = shape[0] * shape[1]
        else:
            self.store = TensorStore(samples.samples, device)
            self._pixels = math.prod(samples.samples.shape)
            most = _MOST_VECTORS if len(samples.samples.shape) == 1 else most
        self._batch = batch_size or min(max(_PIXELS[kind] // self._pixels, _FEWEST), most)

    def __len__(self) -> int:
        return len(self.store)

    def batches_at_once(self, size: int) -> int:
        """Return how many batches of ``size`` images to augment together."""
        fitting = min(_IMAGES_TOGETHER // size, _PIXELS_TOGETHER // (size * self._pixels))
        return max(1, min(_BATCHES_TOGETHER, fitting))

    def training_batch(self, rows: np.ndarray, numbers: np.ndarray) -> Tensor:
        """Return augmented images, float32 (B, C, H, W), or tensors (B, ...), of rows, int64 (B,).

        ``numbers`` are random ones, one row per image, see :meth:`Augmentation.draw`.
        """
        return self.augmentation.apply(self.store.batch(rows), numbers)

    def corrupted_batches(self, corruption: str) -> Iterator[Tensor]:
        """Yield all images in order, corrupted after the crop and before the preprocessing.

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
        """Yield all images, or those of ``rows``, as evaluation sees them, in order."""
        rows = np.arange(len(self)) if rows is None else rows
        for start in range(0, len(rows), self._batch):
            yield self.evaluation(self.store.batch(rows[start : start + self._batch]))


def build_pipeline(
    samples: SampleSet,
    model: Model,
    options: Augment,
    device: torch.device,
    batch_size: int | None = None,
) -> Pipeline:
    """Build the pipeline of a sample set, with the augmentation and preprocessing of a training."""
    shape = input_shape(samples, options)
    return Pipeline(samples, build_augmentation(model, options, shape), shape, device, batch_size)
