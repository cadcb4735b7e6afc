"""Checks of arguments: each error says what was given and what is allowed."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Number:
    """A check of a number: called with a name and a value, it returns the value or raises an error.

    Args:
        allowed: What the number must be, in words.
        is_allowed: Returns whether a number is allowed.
    """

    allowed: str
    is_allowed: Callable[[float], bool]

    def __call__(self, name: str, value: Any) -> float:
        """Return ``value`` as a float, or raise ValueError if it is not an allowed number."""
        try:
            # float() also takes bools and texts, which are no numbers here.
            number = None if isinstance(value, (bool, str)) else float(value)
        except (TypeError, ValueError):
            number = None
        if number is None or not self.is_allowed(number):
            allowed = "a number" if number is None else self.allowed
            raise ValueError(f"{name} must be {allowed}, but got {name}={value!r}.")
        return number


positive = Number("finite and greater than 0", lambda x: 0 < x < math.inf)
positive_or_infinite = Number("greater than 0", lambda x: x > 0)
non_negative = Number("finite and at least 0", lambda x: 0 <= x < math.inf)
at_least_one = Number("finite and at least 1", lambda x: 1 <= x < math.inf)
fraction = Number("at least 0 and below 1", lambda x: 0 <= x < 1)
share = Number("above 0 and at most 1", lambda x: 0 < x <= 1)


def positive_integer(name: str, value: Any) -> int:
    """Return ``value`` as an int, or raise ValueError if it is not a positive integer."""
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if isinstance(value, bool) or number < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, but got {name}={value!r}.")
    return number


def one_of(name: str, value: Any, allowed: Sequence[Any]) -> Any:
    """Return ``value``, or raise ValueError if it is not in ``allowed``."""
    # Compared by identity, because 0 == False although 0 is not an allowed bool.
    if not any(
        value is option or (isinstance(value, str) and value == option) for option in allowed
    ):
        options = ", ".join(repr(option) for option in allowed)
        raise ValueError(f"{name} must be one of {options}, but got {name}={value!r}.")
    return value


def class_labels(labels: Tensor, num_classes: int, check: bool | None = None) -> Tensor:
    """Return ``labels`` as int64, or raise ValueError if they are not integers 0..num_classes-1.

    With ``check=None`` a GPU, or any device under torch.compile, asserts the range asynchronously,
    because reading the labels would wait for the device. True raises the error on a GPU too; False
    skips the check of the range.
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
    """Raise ValueError unless ``embeddings`` are floating-point, of shape (N, embedding_size).

    ``embedding_size=None`` allows any size.
    """
    if embeddings.ndim != 2 or embedding_size not in (None, embeddings.shape[1]):
        raise ValueError(
            f"embeddings must have shape (batch_size, {embedding_size or 'embedding_size'}), "
            f"but got {tuple(embeddings.shape)}."
        )
    if not embeddings.dtype.is_floating_point:
        raise ValueError(f"embeddings must be floating point, but got {embeddings.dtype}.")


def require_squares(x: Tensor, name: str) -> None:
    """Raise ValueError if sums of squared distances between rows overflow in the dtype of ``x``."""
    # |a - b|^2 is at most 2 |a|^2 + 2 |b|^2; the factor 4 also leaves room for sums of distances.
    if not math.isfinite(x.square().sum().mul_(4)):
        raise ValueError(
            f"{name} must have finite squares, but those of values up to "
            f"{float(x.abs().max()):.3g} overflow in {x.dtype}; divide all by one number, or look "
            "for what made them so large (a training that diverged)."
        )
