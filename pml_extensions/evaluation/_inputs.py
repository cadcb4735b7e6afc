"""Checks of the arguments of evaluations; errors name the value and what is allowed."""

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
        name: Name of the argument in errors.

    Raises:
        ValueError: torch has no dtype for the values, or the rows of a list differ in length.
    """
    if isinstance(values, Tensor):
        return values.detach()
    try:
        array = np.asarray(values)
        # torch refuses arrays with negative strides or non-native byte order, and warns about
        # read-only ones, such as memory maps.
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        if not array.flags.writeable or min(array.strides, default=0) < 0:
            array = array.copy()
        return torch.from_numpy(array)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be a tensor or an array of numbers (convert strings by "
            f"numpy.unique(strings, return_inverse=True)[1]): {error}"
        ) from None


def matrix(values: Tensor | ArrayLike, name: str, finite_on_gpu: bool = True) -> Tensor:
    """Return ``values`` as a tensor of the same dtype, checked to be finite and of shape (N, D).

    Args:
        values: Shape (N, D), N > 0 and D > 0.
        name: Name of the argument in errors.
        finite_on_gpu: Whether values on a GPU are checked too, which synchronises with it.

    Raises:
        ValueError: The shape is wrong, or a value is complex, NaN or infinite.
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
    """Raise ValueError if ``x`` has NaN or infinity, or float64 values whose squares overflow."""
    # The sum is checked first, because it is faster; it may be infinite for finite values.
    if x.is_floating_point() and not math.isfinite(x.sum()) and not x.isfinite().all():
        bad = int((~x.isfinite().all(dim=1)).sum())
        raise ValueError(f"{name} must be finite, but {bad} of {len(x)} rows hold NaN or infinity.")
    # Squares are computed in float64 everywhere except in k-means, so float32 cannot overflow.
    if x.dtype == torch.float64:
        require_squares(x, name)


def integers(values: Tensor | ArrayLike, name: str) -> Tensor:
    """Return integers of any dtype as an int64 tensor of shape (N,).

    Args:
        values: Shape (N,), N > 0; booleans count as 0 and 1.
        name: Name of the argument in errors.

    Raises:
        ValueError: The shape is wrong, or the values are not integers.
    """
    y = tensor(values, name)
    if y.ndim != 1 or len(y) == 0:
        raise ValueError(f"{name} must have shape (N,) with N > 0, but got {tuple(y.shape)}.")
    if y.is_floating_point() or y.is_complex():
        raise ValueError(f"{name} must be integers, but their dtype is {y.dtype}.")
    return y.long()


def integers_of(x: Tensor, labels: Tensor | ArrayLike, name: str, labels_name: str) -> Tensor:
    """Return the labels of the rows of ``x``, int64, shape (N,), on the device of ``labels``.

    Args:
        x: Embeddings, shape (N, D).
        labels: Any integers, shape (N,).
        name: Name of ``x`` in errors.
        labels_name: Name of ``labels`` in errors.

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
    """Return the result of :func:`integers_of` on the device of ``x``."""
    return integers_of(x, labels, name, labels_name).to(x.device)


def embeddings_and_labels(
    embeddings: Tensor | ArrayLike, labels: Tensor | ArrayLike
) -> tuple[Tensor, Tensor]:
    """Check embeddings and labels, and return them as tensors on the device of the embeddings.

    Args:
        embeddings: Shape (N, D), any real dtype.
        labels: Any integers, shape (N,).

    Returns:
        The embeddings, as float64 if they are float64 and as float32 otherwise, and the labels as
        int64.

    Raises:
        ValueError: A shape or dtype is wrong, or an embedding is NaN or infinite.
    """
    x = matrix(embeddings, "embeddings")
    return at_least_float32(x), labels_of(x, labels, "embeddings", "labels")


def import_faiss() -> Any:
    """Import faiss, an optional dependency of k-means and binary codes."""
    try:
        import faiss
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "k-means and binary codes need faiss, which is not installed: pip install faiss-cpu",
            name="faiss",
        ) from error
    return faiss
