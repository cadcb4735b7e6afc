"""Checks of what the evaluation is given; each error says what was given and what is allowed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from pml_extensions._shared.checks import require_squares
from pml_extensions._shared.numerics import at_least_float32


def tensor(values: Tensor | ArrayLike, name: str) -> Tensor:
    """Return ``values`` as a tensor without gradient, sharing memory where possible.

    Args:
        values: A tensor, an array, or nested lists of numbers.
        name: What an error calls it.

    Raises:
        ValueError: torch has no type for the values, or the rows of a list differ in length.
    """
    if isinstance(values, Tensor):
        return values.detach()
    try:
        array = np.asarray(values)
        # torch refuses arrays turned around or of foreign byte order, and warns about read-only
        # ones, such as memory maps.
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        if not array.flags.writeable or min(array.strides, default=0) < 0:
            array = array.copy()
        return torch.from_numpy(array)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be a tensor or an array of numbers (of texts make some by "
            f"numpy.unique(texts, return_inverse=True)[1]): {error}"
        ) from None


def matrix(values: Tensor | ArrayLike, name: str, finite_on_gpu: bool = True) -> Tensor:
    """Return ``values`` as a tensor of its own dtype, checked to be finite and of shape (N, D).

    Args:
        values: Shape (N, D), neither of them 0.
        name: What an error calls it.
        finite_on_gpu: Wait for a GPU to know that they are finite.

    Raises:
        ValueError: The shape does not fit, or a value is complex, NaN or infinite.
    """
    x = tensor(values, name)
    if x.ndim != 2 or x.numel() == 0:
        raise ValueError(
            f"{name} must have shape (N, D) with N > 0 and D > 0, but got {tuple(x.shape)}."
        )
    if x.is_complex():
        raise ValueError(f"{name} must be real numbers, but their dtype is {x.dtype}.")
    if finite_on_gpu or x.device.type == "cpu":
        require_finite(x, name)
    return x


def require_finite(x: Tensor, name: str) -> None:
    """Raise ValueError if ``x`` holds NaN, infinity or float64 numbers of infinite squares."""
    # A finite sum says so much faster, but large numbers may add up to an infinite one.
    if x.is_floating_point() and not math.isfinite(x.sum()) and not x.isfinite().all():
        bad = int((~x.isfinite().all(dim=1)).sum())
        raise ValueError(f"{name} must be finite, but {bad} of {len(x)} rows hold NaN or infinity.")
    if x.dtype == torch.float64:  # in which all squares are taken but those of k-means
        require_squares(x, name)


def integers(values: Tensor | ArrayLike, name: str) -> Tensor:
    """Return ``values`` as an int64 tensor of shape (N,), whatever integers they are.

    Args:
        values: Shape (N,), N > 0; booleans count as 0 and 1.
        name: What an error calls it.

    Raises:
        ValueError: The shape does not fit, or the values are no integers.
    """
    y = tensor(values, name)
    if y.ndim != 1 or len(y) == 0:
        raise ValueError(f"{name} must have shape (N,) with N > 0, but got {tuple(y.shape)}.")
    if y.is_floating_point() or y.is_complex():
        raise ValueError(f"{name} must be integers, but their dtype is {y.dtype}.")
    return y.long()


def integers_of(x: Tensor, labels: Tensor | ArrayLike, name: str, labels_name: str) -> Tensor:
    """Return the labels of the rows of ``x`` as an int64 tensor of shape (N,), where they are.

    Args:
        x: What is labelled, shape (N, D).
        labels: Integers of any value, shape (N,).
        name: What an error calls ``x``.
        labels_name: What an error calls ``labels``.

    Raises:
        ValueError: The labels are not N integers.
    """
    y = tensor(labels, labels_name)
    if y.shape != x.shape[:1]:
        raise ValueError(
            f"{labels_name} must have shape ({len(x)},) like {name}, but got {tuple(y.shape)}."
        )
    return integers(y, labels_name)


def labels_of(x: Tensor, labels: Tensor | ArrayLike, name: str, labels_name: str) -> Tensor:
    """Return the same on the device of ``x``."""
    return integers_of(x, labels, name, labels_name).to(x.device)


def embeddings_and_labels(
    embeddings: Tensor | ArrayLike,
    labels: Tensor | ArrayLike,
    name: str = "embeddings",
    labels_name: str = "labels",
) -> tuple[Tensor, Tensor]:
    """Return both as tensors on the device of the embeddings, checked.

    Args:
        embeddings: Shape (N, D), any real dtype.
        labels: Integers of any value, shape (N,).
        name: What an error calls the embeddings.
        labels_name: What an error calls the labels.

    Returns:
        The embeddings, float64 if they were and float32 otherwise, and the labels as int64.

    Raises:
        ValueError: Shapes or types do not fit, or an embedding is NaN or infinite.
    """
    x = matrix(embeddings, name)
    return at_least_float32(x), labels_of(x, labels, name, labels_name)


def import_faiss() -> Any:
    """Return faiss, which an installation without k-means and binary codes can do without."""
    try:
        import faiss
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "k-means and binary codes need faiss, which is not installed: pip install faiss-cpu",
            name="faiss",
        ) from error
    return faiss
