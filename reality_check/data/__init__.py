"""Training data: readers, class splits, batches and augmentation on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from reality_check.data.augment import Augmentation, Normalize
from reality_check.data.glyphs import make_glyphs
from reality_check.data.imagefolder import read_image_folder
from reality_check.data.imageset import ImageSet
from reality_check.data.npz import read_npz
from reality_check.data.sampler import ClassBalancedSampler
from reality_check.data.splits import ClassSplits, Fold, class_splits, split_dataset
from reality_check.errors import UsageError, nearest

__all__ = [
    "Augmentation",
    "ClassBalancedSampler",
    "ClassSplits",
    "Fold",
    "ImageSet",
    "Normalize",
    "class_splits",
    "load_dataset",
    "make_glyphs",
    "read_image_folder",
    "read_npz",
    "split_dataset",
]


def load_dataset(config: Any) -> ImageSet:
    """Read the data set that ``config`` describes.

    Args:
        config: any object with the attribute ``reader`` and that reader's fields:

            - ``"glyphs"``: ``classes``, ``images_per_class``, ``size``, ``seed``
              (:func:`make_glyphs`);
            - ``"image_folder"``: ``path``, ``size``, ``channels``, ``on_broken``
              (:func:`read_image_folder`);
            - ``"npz"``: ``path``, ``where`` and, if they differ from their defaults, the keys
              ``images``, ``labels``, ``class_names`` (:func:`read_npz`).

    Returns:
        The decoded images.

    Raises:
        UsageError: for an unknown reader, and for data that cannot be read.
    """
    if config.reader not in _READERS:
        raise UsageError(
            f"Reader {config.reader!r} does not exist; write reader: {' or '.join(_READERS)}."
            + nearest(str(config.reader), _READERS)
        )
    return _READERS[config.reader](config)


def _glyphs(config: Any) -> ImageSet:
    return make_glyphs(config.classes, config.images_per_class, config.size, config.seed)


def _image_folder(config: Any) -> ImageSet:
    resize = getattr(config, "resize", "short_side")
    return read_image_folder(config.path, config.size, config.channels, config.on_broken, resize)


def _npz(config: Any) -> ImageSet:
    keys = {key: getattr(config, key, None) for key in ("images", "labels", "class_names")}
    return read_npz(config.path, config.where, **{key: name for key, name in keys.items() if name})


_READERS: dict[str, Callable[[Any], ImageSet]] = {
    "glyphs": _glyphs,
    "image_folder": _image_folder,
    "npz": _npz,
}
