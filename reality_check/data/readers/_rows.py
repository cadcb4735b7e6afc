"""Select rows of a file, and find the test classes of its own split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reality_check.utils.errors import UsageError
from reality_check.utils.text import nearest

#: From the name of an array, with an integer or text for each row, to the value or values of the
#: rows that are selected.
Marks = Mapping[str, int | Sequence[int]]


def rows_where(columns: Mapping[str, Any], marks: Marks, count: int, file: str) -> np.ndarray:
    """Return the indices of the rows that every entry of ``marks`` selects.

    Args:
        columns: arrays by name.
        count: number of rows.
        file: name of the file in messages.

    Raises:
        UsageError: if an array does not exist or does not fit, or no row has the values.
    """
    keep = np.ones(count, dtype=bool)
    for key, chosen in marks.items():
        if key not in columns:
            raise UsageError(
                f"{file!r} has no array {key!r}, only {', '.join(map(repr, columns))}; name one "
                f"of them.{nearest(key, columns)}"
            )
        array = np.asarray(columns[key])
        if array.shape != (count,) or array.dtype.kind not in "iuUb":
            raise UsageError(
                f"The array {key!r} of {file!r} is {array.dtype} of shape {array.shape}, but it "
                f"must hold integers or texts of shape ({count},), one for each sample."
            )
        keep &= np.isin(array, np.atleast_1d(np.asarray(chosen)))
        if not keep.any():
            values = ", ".join(map(str, np.unique(array)[:8]))
            raise UsageError(
                f"No row of {file!r} has {key} = {chosen}; the values of {key!r} include {values}."
            )
    return np.flatnonzero(keep)


def tested_labels(labels: np.ndarray, is_test: np.ndarray, source: str) -> np.ndarray:
    """Return the distinct labels of the test samples.

    Raises:
        UsageError: if a class has both test samples and others.
    """
    shared = np.intersect1d(labels[is_test], labels[~is_test])
    if shared.size:
        raise UsageError(
            f"The class {str(shared[0])!r} of {source!r} has samples in the test and others "
            f"({shared.size} such classes); take all samples of a class or none."
        )
    return np.unique(labels[is_test])
