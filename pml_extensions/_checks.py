"""Checks of what users pass in; each error says what was given and what is allowed."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def positive_integer(name: str, value: Any) -> int:
    """Return ``value`` as an int, or raise ValueError if it is not a whole number above 0."""
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if isinstance(value, bool) or number < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, but got {name}={value!r}.")
    return number


def positive(name: str, value: Any) -> float:
    """Return ``value`` as a float, or raise ValueError if it is not finite and above 0."""
    number = _number(name, value)
    if not 0 < number < math.inf:
        raise ValueError(f"{name} must be finite and greater than 0, but got {name}={value!r}.")
    return number


def positive_or_infinite(name: str, value: Any) -> float:
    """Return ``value`` as a float, or raise ValueError if it is not above 0."""
    number = _number(name, value)
    if not number > 0:
        raise ValueError(f"{name} must be greater than 0, but got {name}={value!r}.")
    return number


def non_negative(name: str, value: Any) -> float:
    """Return ``value`` as a float, or raise ValueError if it is not finite and at least 0."""
    number = _number(name, value)
    if not 0 <= number < math.inf:
        raise ValueError(f"{name} must be finite and at least 0, but got {name}={value!r}.")
    return number


def at_least_one(name: str, value: Any) -> float:
    """Return ``value`` as a float, or raise ValueError if it is not finite and at least 1."""
    number = _number(name, value)
    if not 1 <= number < math.inf:
        raise ValueError(f"{name} must be finite and at least 1, but got {name}={value!r}.")
    return number


def fraction(name: str, value: Any) -> float:
    """Return ``value`` as a float, or raise ValueError if it is not in [0, 1)."""
    number = _number(name, value)
    if not 0 <= number < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, but got {name}={value!r}.")
    return number


def share(name: str, value: Any) -> float:
    """Return ``value`` as a float, or raise ValueError if it is not in (0, 1]."""
    number = _number(name, value)
    if not 0 < number <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1, but got {name}={value!r}.")
    return number


def one_of(name: str, value: Any, allowed: Sequence[Any]) -> Any:
    """Return ``value``, or raise ValueError if it is none of ``allowed``."""
    # Identity for booleans: 0 == False, but 0 is not what the signature offers.
    if not any(
        value is option or (isinstance(value, str) and value == option) for option in allowed
    ):
        options = ", ".join(repr(option) for option in allowed)
        raise ValueError(f"{name} must be one of {options}, but got {name}={value!r}.")
    return value


def fixed_distance(loss: str, kwargs: dict[str, Any]) -> None:
    """Raise ValueError if PML's ``distance`` is given to a loss whose equation fixes it."""
    if kwargs.get("distance") is not None:
        raise ValueError(
            f"{loss} takes no distance, because its equation fixes one; remove that argument."
        )


def class_labels(labels: Tensor, num_classes: int, check: bool | None = None) -> Tensor:
    """Return ``labels`` as int64, or raise ValueError if they are not integers 0..num_classes-1.

    On a GPU reading the range would wait for the device, so there, and under torch.compile, it is
    an assertion that the device makes, unless ``check`` is True; False checks nothing.
    """
    if labels.dtype.is_floating_point or labels.dtype.is_complex or labels.dtype == torch.bool:
        raise ValueError(f"labels must be integers, but their dtype is {labels.dtype}.")
    labels = labels.long()
    if check is False or len(labels) == 0:
        return labels
    lowest, highest = labels.aminmax()
    if torch.compiler.is_compiling() or (check is None and labels.device.type != "cpu"):
        valid = (lowest >= 0) & (highest < num_classes)
        torch._assert_async(valid, f"a label is not in 0..{num_classes - 1}")
    elif lowest < 0 or highest >= num_classes:
        wrong = lowest if lowest < 0 else highest
        raise ValueError(
            f"num_classes={num_classes}, but a label is {int(wrong)}; labels must be "
            f"0..{num_classes - 1} (data sets that count from 1 need remapping)."
        )
    return labels


def embedding_shape(embeddings: Tensor, embedding_size: int | None = None) -> None:
    """Raise ValueError unless ``embeddings`` are floating-point vectors of the expected size."""
    expected = "embedding_size" if embedding_size is None else embedding_size
    if embeddings.ndim != 2 or (
        embedding_size is not None and embeddings.shape[1] != embedding_size
    ):
        raise ValueError(
            f"embeddings must have shape (batch_size, {expected}), "
            f"but got {tuple(embeddings.shape)}."
        )
    if not embeddings.dtype.is_floating_point:
        raise ValueError(f"embeddings must be floating point, but got {embeddings.dtype}.")


def _number(name: str, value: Any) -> float:
    if isinstance(value, (bool, str)):
        raise ValueError(f"{name} must be a number, but got {name}={value!r}.")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number, but got {name}={value!r}.") from None
