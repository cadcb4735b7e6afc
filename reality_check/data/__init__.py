"""Training data: readers, class splits, batches and augmentation on the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from reality_check.config.classes import build, find_class
from reality_check.data.augmentation.augment import Augmentation
from reality_check.data.augmentation.normalize import Normalize
from reality_check.data.cache.decoded import decode_files, is_intact
from reality_check.data.image_files import ImageFiles
from reality_check.data.readers.cars196 import list_cars196
from reality_check.data.readers.csv_list import list_csv
from reality_check.data.readers.cub200 import list_cub200
from reality_check.data.readers.glyphs import make_glyphs
from reality_check.data.readers.imagefolder import list_image_folder
from reality_check.data.readers.in_shop import list_in_shop
from reality_check.data.readers.mnist import read_mnist
from reality_check.data.readers.omniglot import list_omniglot
from reality_check.data.readers.online_products import list_online_products
from reality_check.data.readers.tensor_files import read_tensors
from reality_check.data.readers.torch_dataset import read_torch_dataset
from reality_check.data.sample_set import ImageSet, SampleSet, TensorSet
from reality_check.data.sampler import ClassBalancedSampler, ShuffledSampler, build_sampler
from reality_check.data.sanity import warn_of_oddities
from reality_check.data.splits import ClassSplits, Fold, class_splits, split_dataset
from reality_check.utils.errors import UsageError
from reality_check.utils.text import nearest

__all__ = [
    "Augmentation",
    "ClassBalancedSampler",
    "ClassSplits",
    "Fold",
    "ImageFiles",
    "ImageSet",
    "Normalize",
    "SampleSet",
    "ShuffledSampler",
    "TensorSet",
    "build_sampler",
    "class_splits",
    "decode_files",
    "is_intact",
    "list_cars196",
    "list_csv",
    "list_cub200",
    "list_image_folder",
    "list_in_shop",
    "list_omniglot",
    "list_online_products",
    "load_dataset",
    "make_glyphs",
    "read_mnist",
    "read_tensors",
    "read_torch_dataset",
    "split_dataset",
]


def load_dataset(config: Any, verify: bool = False) -> SampleSet:
    """Read the data set that ``config`` describes.

    Args:
        config: any object with the attribute ``reader`` and that reader's fields, which are those
            of its class in :mod:`reality_check.config.datasets`:

            - ``"glyphs"``: :func:`make_glyphs`;
            - ``"image_folder"``, ``"csv"``, ``"omniglot"``: :func:`list_image_folder`,
              :func:`list_csv` or :func:`list_omniglot`, then :func:`decode_files`;
            - ``"cub200"``, ``"cars196"``, ``"stanford_online_products"``, ``"in_shop"``:
              :func:`list_cub200`, :func:`list_cars196`, :func:`list_online_products` or
              :func:`list_in_shop`, then :func:`decode_files`;
            - ``"mnist"``, ``"fashion_mnist"``: :func:`read_mnist`;
            - ``"tensors"``: :func:`read_tensors`; ``"torch_dataset"``: :func:`read_torch_dataset`;
            - ``"function"``: a function of the user's or of a plugin.
        verify: compare images that were decoded earlier with their checksums, which reads them all;
            damaged ones are decoded again.

    Returns:
        The samples.

    Raises:
        UsageError: for an unknown reader, and for data that cannot be read.
    """
    known = (*_READERS, *_LISTS)
    if config.reader not in known:
        raise UsageError(
            f"Reader {config.reader!r} does not exist; write reader: {' or '.join(known)}."
            + nearest(str(config.reader), known)
        )
    read = _READERS.get(config.reader, _list_and_decode)
    data = read(config)
    if verify and isinstance(data, ImageSet) and not is_intact(data):
        data = read(config)
    warn_of_oddities(data)
    return data


def _list_and_decode(config: Any) -> SampleSet:
    files = _LISTS[config.reader](config)
    return decode_files(files, config.size, config.channels, config.resize, config.on_broken)


def _tensors(config: Any) -> SampleSet:
    keys = ("x", "y", "names", "class_names", "where", "test")
    data = read_tensors(config.path, **{key: getattr(config, key, None) for key in keys})
    return replace(data, name=config.name)


def _mnist(config: Any) -> SampleSet:
    return read_mnist(config.path, config.reader, config.download, config.check_counts)


def _call(config: Any) -> SampleSet:
    what = f"data set {config.name!r}: {config.function}"
    data = build(find_class(config.function, "dataset"), config.arguments, what, {})
    if not isinstance(data, SampleSet):
        raise UsageError(
            f"{what} must return a reality_check.data.ImageSet or TensorSet, got "
            f"{type(data).__name__}."
        )
    return data


#: Readers of image files: how each lists them.
_LISTS: dict[str, Callable[[Any], ImageFiles]] = {
    "image_folder": lambda config: list_image_folder(config.path),
    "csv": lambda config: list_csv(config.path),
    "omniglot": lambda config: list_omniglot(config.path, config.download, config.check_counts),
    "cub200": lambda config: list_cub200(config.path, config.download, config.check_counts),
    "cars196": lambda config: list_cars196(config.path, config.check_counts),
    "stanford_online_products": lambda config: list_online_products(
        config.path, config.download, config.check_counts
    ),
    "in_shop": lambda config: list_in_shop(config.path, config.check_counts),
}

#: Readers of images that need no decoding.
_READERS: dict[str, Callable[[Any], SampleSet]] = {
    "glyphs": lambda config: make_glyphs(
        config.classes, config.images_per_class, config.size, config.seed
    ),
    "tensors": _tensors,
    "torch_dataset": lambda config: read_torch_dataset(
        config.dataset, config.arguments, config.name, config.size
    ),
    "function": _call,
    "mnist": _mnist,
    "fashion_mnist": _mnist,
}
