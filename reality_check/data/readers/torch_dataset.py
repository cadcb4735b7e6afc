"""Reader of any map-style ``torch.utils.data.Dataset``: images, vectors or other tensors."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from PIL import Image

from reality_check.config.classes import build, find_class, one_line
from reality_check.data.readers.tensors import build_sample_set
from reality_check.data.sample_set import SampleSet
from reality_check.utils.errors import UsageError, users_code
from reality_check.utils.paths import expand_path
from reality_check.utils.text import nearest

#: Modules in which data sets are looked up by name.
_LIBRARIES = {"torchvision": "torchvision.datasets", "pml": "pytorch_metric_learning.datasets"}


def read(config: Any) -> SampleSet:
    """Read the data set that a YAML names."""
    return read_torch_dataset(config.dataset, config.arguments, config.name, config.size)


def read_torch_dataset(
    dataset: str, arguments: Mapping[str, Any], name: str, size: int | None = None
) -> SampleSet:
    """Read all items of a torch data set into memory.

    Args:
        dataset: the import path of a class or function, such as ``my_data.Birds``;
            ``torchvision:NAME`` or ``pml:NAME`` for a data set of torchvision or
            pytorch-metric-learning (``pip install 'pml-extensions[vision]'``).
        arguments: arguments of its constructor; in ``root`` and ``path``, ``~`` and ``${VAR}`` are
            expanded.
        name: name of the data set in reports.
        size: side of the squares that images are resized to, in pixels; None if all have one size.

    Returns:
        Images if the samples are PIL images, uint8 tensors (C, H, W) or uint8 arrays (H, W, C) with
        1 or 3 channels, else tensors. An item must be (sample, label, ...), and a label an integer
        or a text. The attribute ``classes`` of the data set, if there is one, names the classes.

    Raises:
        UsageError: if the data set does not exist or cannot be built or read, or if its items are
            of other kinds or sizes.
    """
    subject = f"data set {name!r}: {dataset}"
    expanded = {
        key: str(expand_path(value))
        if key in ("root", "path") and isinstance(value, str)
        else value
        for key, value in arguments.items()
    }
    data = build(_find_dataset(dataset, subject), expanded, subject, extra={})
    with users_code(f"{subject} cannot be read"):
        return _read_items(data, subject, name, size)


def _read_items(data: Any, subject: str, name: str, size: int | None) -> SampleSet:
    """Read all samples and labels, and check that the samples are alike."""
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        raise UsageError(
            f"{subject} is not a map-style data set: it needs __len__ and __getitem__, got "
            f"{type(data).__name__}."
        )
    if not len(data):
        raise UsageError(f"{subject} is empty.")
    first, _ = _read_item(data, 0, subject, size)
    samples = np.empty((len(data), *first.shape), first.dtype)
    labels: list[Any] = []
    for index in range(len(data)):
        sample, label = _read_item(data, index, subject, size)
        if sample.shape != first.shape or sample.dtype != first.dtype:
            hint = "" if size or first.ndim != 3 else "; write size: 64 to resize images"
            raise UsageError(
                f"{subject}: item {index} is {sample.dtype} of shape {sample.shape}, but item 0 is "
                f"{first.dtype} of shape {first.shape}; all must be alike{hint}."
            )
        samples[index] = sample
        labels.append(label)
    names = getattr(data, "classes", None)
    if not isinstance(names, list | tuple) or any(isinstance(label, str) for label in labels):
        names = None
    return build_sample_set(
        samples, np.asarray(labels), name, f"The samples of {name!r}", class_names=names
    )


def _find_dataset(dataset: str, subject: str) -> Any:
    """Return the class or function that ``dataset`` names."""
    library, colon, name = dataset.partition(":")
    if not colon:
        return find_class(dataset, "dataset")
    if library not in _LIBRARIES:
        raise UsageError(
            f"{subject}: there is no library {library!r}; write torchvision:{name}, pml:{name} or "
            "an import path such as my_data.Birds."
        )
    try:
        module = importlib.import_module(_LIBRARIES[library])
    except (ImportError, RuntimeError) as error:
        raise UsageError(
            f"{subject} needs {_LIBRARIES[library]}, which cannot be imported "
            f"({one_line(error, 120)}); run pip install 'pml-extensions[vision]'."
        ) from None
    classes = [key for key, value in vars(module).items() if isinstance(value, type)]
    known = list(getattr(module, "__all__", classes))
    if name not in known:
        raise UsageError(f"{subject}: {library} has no data set {name!r}.{nearest(name, known)}")
    return getattr(module, name)


def _read_item(data: Any, index: int, subject: str, size: int | None) -> tuple[np.ndarray, Any]:
    """Return a sample, as an array (H, W, C) or (...), and its label."""
    with users_code(f"{subject}: item {index} cannot be read"):
        item = data[index]
    if not isinstance(item, tuple | list) or len(item) < 2:
        raise UsageError(
            f"{subject}: item {index} is {type(item).__name__}, but it must be (sample, label)."
        )
    label = item[1].item() if hasattr(item[1], "item") and np.ndim(item[1]) == 0 else item[1]
    if not isinstance(label, int | str) or isinstance(label, bool):
        raise UsageError(
            f"{subject}: the label of item {index} is {one_line(label, 60)}, but it must be an "
            "integer or a text."
        )
    return _to_array(item[0], index, subject, size), label


def _to_array(sample: Any, index: int, subject: str, size: int | None) -> np.ndarray:
    """Convert a sample to an array; images become (H, W, C), resized if ``size`` is given."""
    if isinstance(sample, Image.Image):
        sample = sample if sample.mode in ("L", "RGB") else sample.convert("RGB")
        return _resize(sample, size)
    if isinstance(sample, torch.Tensor):
        sample = sample.detach().cpu()
        if sample.dtype == torch.uint8 and sample.dim() == 3 and sample.shape[0] in (1, 3):
            sample = sample.permute(1, 2, 0)  # from torchvision's order, (C, H, W)
        sample = sample.numpy()
    array = np.asarray(sample)
    if array.dtype == object or array.ndim == 0:
        raise UsageError(
            f"{subject}: the sample of item {index} is {type(sample).__name__}, but it must be a "
            "PIL image, a tensor or an array."
        )
    is_image = array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] in (1, 3)
    if is_image and size is not None:
        return _resize(Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array), size)
    return array


def _resize(image: Image.Image, size: int | None) -> np.ndarray:
    """Return an image as an array (H, W, C), resized to a square unless ``size`` is None."""
    if size is not None and image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR, reducing_gap=3.0)
    array = np.asarray(image)
    return array[:, :, None] if array.ndim == 2 else array
