"""Samples that are not images: vectors, token ids, spectrograms; all of one shape and type."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from reality_check.utils.errors import UsageError

#: The types that arrays are stored as. Other types are converted if that loses no more digits than
#: training in float32 does.
_STORED = ("float16", "float32", "uint8", "int8", "int16", "int32", "int64")
_CONVERTED = {"float64": "float32", "uint16": "int32", "uint32": "int64"}
#: The number of values that are checked at once.
_CHUNK = 1 << 24
#: Larger values are refused, because sums of their squares overflow in float32.
_LARGEST = 1e18


class TensorShape(NamedTuple):
    """Shape and type of a trunk's input that is not an image.

    Attributes:
        sizes: shape of one sample, without the batch dimension.
        dtype: float32, or the integer type of the samples.
    """

    sizes: tuple[int, ...]
    dtype: torch.dtype

    def __str__(self) -> str:
        sizes = " x ".join(map(str, self.sizes))
        kind = "vectors" if len(self.sizes) == 1 else "tensors"
        return f"{kind} of {sizes} {str(self.dtype).removeprefix('torch.')} values"


#: The shape of a network's input: (H, W, C) for images, else shape and type of the tensors.
InputShape = tuple[int, int, int] | TensorShape


def example_input(shape: InputShape) -> torch.Tensor:
    """Return one sample of zeros as an input of a trunk: (1, C, H, W), or (1, ...) of tensors."""
    if isinstance(shape, TensorShape):
        return torch.zeros(1, *shape.sizes, dtype=shape.dtype)
    height, width, channels = shape
    return torch.zeros(1, channels, height, width)


class Tensors:
    """N samples of one shape. Indexing by rows gives a view: nothing is copied.

    Args:
        array: shape (M, ...), float16, float32 or integers; may be memory-mapped.
        rows: int64, shape (N,): indices of the samples in ``array``; None means all, in order.
    """

    def __init__(self, array: np.ndarray, rows: np.ndarray | None = None) -> None:
        self.values = array
        self.rows = np.arange(len(array)) if rows is None else np.asarray(rows, np.int64)

    @classmethod
    def from_array(cls, array: np.ndarray, subject: str = "The samples") -> Tensors:
        """Create samples from an array, after checking it.

        Args:
            array: shape (N, ...). float64 becomes float32, uint16 becomes int32 and uint32 becomes
                int64; other types are not copied.
            subject: what error messages call the samples.

        Raises:
            UsageError: if the array has another type or shape, is empty, or a value is too large,
                NaN or infinite.
        """
        if array.dtype.name in _CONVERTED:
            array = array.astype(_CONVERTED[array.dtype.name])
        if array.dtype.name not in _STORED:
            raise UsageError(
                f"{subject} are {array.dtype}, but they must be float16, float32 or integers; "
                "convert them with array.astype('float32')."
            )
        if array.ndim < 2 or 0 in array.shape:
            raise UsageError(
                f"{subject} have shape {array.shape}, but they must be (N, D) for vectors or "
                "(N, ...) for other tensors, none of them 0."
            )
        if array.dtype.kind == "f":
            _check_finite(array, subject)
        return cls(array)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: Any) -> Tensors:
        """Return a view of some samples: a slice, an integer array or a bool mask."""
        return Tensors(self.values, np.atleast_1d(self.rows[rows]))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of each sample."""
        return tuple(self.values.shape[1:])

    @property
    def input_shape(self) -> TensorShape:
        """Shape and type of the samples as a trunk's input; float16 becomes float32."""
        stored = self.values.dtype
        dtype = torch.float32 if stored.kind == "f" else getattr(torch, stored.name)
        return TensorShape(self.shape, dtype)

    def array(self) -> np.ndarray:
        """Return all samples, shape (N, ...); a copy unless they are consecutive."""
        return self.values[self._slice_or_rows(self.rows)]

    def contiguous(self, first: int, last: int) -> np.ndarray:
        """Return the samples ``first:last`` of this view as a contiguous array."""
        return np.ascontiguousarray(self.values[self._slice_or_rows(self.rows[first:last])])

    @staticmethod
    def _slice_or_rows(rows: np.ndarray) -> slice | np.ndarray:
        """Return consecutive rows as a slice, which copies nothing, and others unchanged."""
        if len(rows) and (np.diff(rows) == 1).all():
            return slice(int(rows[0]), int(rows[-1]) + 1)
        return rows

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.array()
        return array.astype(dtype) if dtype is not None else array


def _check_finite(array: np.ndarray, subject: str) -> None:
    """Raise UsageError if a value is NaN, infinite or too large; a large array is read in parts."""
    rows_per_chunk = max(1, _CHUNK // max(1, array[0].size))
    for first in range(0, len(array), rows_per_chunk):
        with np.errstate(over="ignore"):  # the largest value of float16 is below
            finite = np.abs(array[first : first + rows_per_chunk]) < _LARGEST
        if not finite.all():
            bad = np.flatnonzero(~finite.reshape(len(finite), -1).all(axis=1))
            raise UsageError(
                f"{subject} hold values beyond {_LARGEST:g}, NaN or infinite values, first in row "
                f"{first + bad[0]} (counted from 0); remove that row or fix what computed it."
            )
