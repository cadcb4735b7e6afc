"""Training data: readers, class splits, batches and augmentation on the device."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

from reality_check.data import readers
from reality_check.data.augmentation.augment import Augmentation
from reality_check.data.augmentation.normalize import Normalize
from reality_check.data.batch_sampler import ClassBalancedSampler, ShuffledSampler, build_sampler
from reality_check.data.cache.decoded import decode_files
from reality_check.data.image_files import ImageFiles
from reality_check.data.readers.glyphs import make_glyphs
from reality_check.data.readers.image_folder import list_image_folder
from reality_check.data.readers.tensors import read_tensors
from reality_check.data.readers.torch_dataset import read_torch_dataset
from reality_check.data.sample_set import ImageSet, SampleSet, TensorSet
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
    "list_image_folder",
    "load_dataset",
    "make_glyphs",
    "read_tensors",
    "read_torch_dataset",
    "split_dataset",
]


def load_dataset(config: Any, verify: bool = False) -> SampleSet:
    """Read the data set that ``config`` describes.

    Args:
        config: any object with the attribute ``reader``, the name of a module in
            :mod:`reality_check.data.readers`, and that reader's keys as attributes, see its class
            in :mod:`reality_check.config.datasets`.
        verify: whether to read all images that were decoded earlier and compare them with their
            checksums; if one differs, all are decoded again.

    Returns:
        The samples.

    Raises:
        UsageError: if the reader is unknown or the data cannot be read.
    """
    data: SampleSet | ImageFiles = _find_reader(config.reader).read(config)
    if isinstance(data, ImageFiles):  # not decoded yet
        options = (config.size, config.channels, config.resize, config.on_broken)
        data = decode_files(data, *options, verify)
    warn_of_oddities(data)
    return data


def _find_reader(name: str) -> Any:
    """Return the module of a reader; raise UsageError if there is none of that name."""
    known = [m.name for m in pkgutil.iter_modules(readers.__path__) if m.name[0] != "_"]
    if name not in known:
        raise UsageError(
            f"Reader {name!r} does not exist; write reader: {' or '.join(known)}."
            + nearest(str(name), known)
        )
    return importlib.import_module(f"{readers.__name__}.{name}")
