"""Turn stored samples into a network's input: gather, augment and preprocess them."""

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

#: Number of pixels in an evaluation batch, by device; such a batch fits the cache of a CPU.
_BATCH_PIXELS = {"cpu": 64 * 64 * 64, "other": 4096 * 64 * 64}
#: Limits of the number of images in an evaluation batch.
_MIN_IMAGES = 32
_MAX_IMAGES = {"cpu": 128, "other": 512}
#: Maximum number of vectors in an evaluation batch.
_MAX_VECTORS = 2048

#: Maximum numbers of batches, images and pixels that are augmented together.
_BATCHES_TOGETHER, _IMAGES_TOGETHER, _PIXELS_TOGETHER = 16, 1024, 1024 * 32 * 32


def build_augmentation(
    model: Model, options: Augment, shape: InputShape
) -> Augmentation | VectorAugmentation:
    """Build the augmentation of a protocol, with the preprocessing of a trunk.

    Raises:
        UsageError: if an option is out of its range or does not fit the samples.
    """
    image_options, vector_options = options.of_images(), options.of_vectors()
    if not isinstance(shape, TensorShape):
        _refuse_options(vector_options, "images", "of vectors")
        return Augmentation(**image_options, preprocessing=preprocessing(model, shape[2]))
    _refuse_options(image_options, "no images", "of images", ", or take the protocol features")
    if model.preprocessing.model_dump(exclude_none=True):
        raise UsageError(
            "model.preprocessing is about pixels, but the samples are no images; remove it."
        )
    if not shape.dtype.is_floating_point:
        _refuse_options(vector_options, "integers", "of floats")
    return VectorAugmentation(math.prod(shape.sizes), **vector_options)


#: Options that change nothing without others.
_IDLE = ("resized_crop_ratio", "interpolation")


def _refuse_options(
    options: dict[str, Any], samples_kind: str, options_kind: str, advice: str = ""
) -> None:
    """Raise UsageError if options are set that have no meaning for the samples.

    The other arguments are words of the message.
    """
    given = [key for key, value in options.items() if value != Augment.model_fields[key].default]
    used = [key for key in given if key not in _IDLE]
    if used:
        keys = ", ".join(f"augmentation.{key}" for key in used)
        them = "it" if len(used) == 1 else "them"
        raise UsageError(
            f"The samples are {samples_kind}, but protocol.training has {keys}, "
            f"changes {options_kind}; remove {them}{advice}."
        )


def input_shape(samples: SampleSet, options: Augment) -> InputShape:
    """Return the shape of a network's input: (H, W, C) of images, or the shape of the tensors.

    Raises:
        UsageError: if the images have different sizes and no crop size is given.
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
        batch_size: size of the batches of evaluation; None chooses one that suits the device.
    """

    def __init__(
        self,
        samples: SampleSet,
        augmentation: Augmentation | VectorAugmentation,
        shape: InputShape,
        device: torch.device,
        batch_size: int | None = None,
    ) -> None:
        # An Augmentation is for images, a VectorAugmentation for tensors.
        self.augmentation: Any = augmentation
        self.evaluation: Any = augmentation.evaluation_transform()
        self.store: PixelStore | TensorStore
        device_kind = "cpu" if device.type == "cpu" else "other"
        max_samples = _MAX_IMAGES[device_kind]
        if isinstance(samples.samples, Images):
            assert not isinstance(shape, TensorShape)
            self.store = PixelStore(samples.samples, device)
            self._pixels = shape[0] * shape[1]  # of one sample
        else:
            self.store = TensorStore(samples.samples, device)
            self._pixels = math.prod(samples.samples.shape)
            if len(samples.samples.shape) == 1:
                max_samples = _MAX_VECTORS
        self._batch_size = batch_size or min(
            max(_BATCH_PIXELS[device_kind] // self._pixels, _MIN_IMAGES), max_samples
        )

    def __len__(self) -> int:
        return len(self.store)

    def batches_at_once(self, size: int) -> int:
        """Return how many batches of ``size`` images to augment together."""
        fitting = min(_IMAGES_TOGETHER // size, _PIXELS_TOGETHER // (size * self._pixels))
        return max(1, min(_BATCHES_TOGETHER, fitting))

    def training_batch(self, rows: np.ndarray, numbers: np.ndarray) -> Tensor:
        """Return augmented images, float32 (B, C, H, W), or tensors (B, ...).

        Args:
            rows: int64, shape (B,): indices of the samples.
            numbers: one row of random numbers per sample, see :meth:`Augmentation.draw`.
        """
        return self.augmentation.apply(self.store.batch(rows), numbers)

    def corrupted_batches(self, corruption: str) -> Iterator[Tensor]:
        """Yield batches of all images, corrupted after the crop and before the preprocessing.

        Args:
            corruption: one of :data:`pml_extensions.evaluation.CORRUPTIONS`, with its default
                strengths. An image is corrupted in the same way in every call, on every device.

        Raises:
            UsageError: if the images are grey and the corruption changes colours.
        """
        for start in range(0, len(self), self._batch_size):
            rows = np.arange(start, min(start + self._batch_size, len(self)))
            yield self.evaluation.corrupted(self.store.batch(rows), corruption, start)

    def evaluation_batches(self, rows: np.ndarray | None = None) -> Iterator[Tensor]:
        """Yield batches of the samples at ``rows`` (None: all), transformed for evaluation."""
        if rows is None:
            rows = np.arange(len(self))
        for start in range(0, len(rows), self._batch_size):
            yield self.evaluation(self.store.batch(rows[start : start + self._batch_size]))


def build_pipeline(
    samples: SampleSet,
    model: Model,
    options: Augment,
    device: torch.device,
    batch_size: int | None = None,
) -> Pipeline:
    """Build the pipeline of a sample set, with the augmentation and preprocessing of training."""
    shape = input_shape(samples, options)
    return Pipeline(samples, build_augmentation(model, options, shape), shape, device, batch_size)
