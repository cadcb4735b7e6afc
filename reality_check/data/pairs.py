"""Lists of image pairs for face verification: both images show one person, or two people."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reality_check.config.protocol import PairList
from reality_check.data.sample_set import SampleSet
from reality_check.utils.errors import UsageError
from reality_check.utils.paths import expand_path

#: For each pair, fold by fold: the first image, the second image (indices in the test set), and
#: whether they are of one class.
Pairs = tuple[Tensor, Tensor, NDArray[np.bool_]]
#: The number of folds of a list. Each has as many pairs of one class as of two classes.
FOLDS = 10


def read_pairs(lists: Mapping[str, PairList], test: SampleSet) -> dict[str, Pairs]:
    """Read lists of pairs of test images, by name.

    Raises:
        UsageError: if a list cannot be read, names an image that does not exist or exists twice, or
            does not fill ten equal folds.
    """
    return {name: _read_list(pair_list, test) for name, pair_list in lists.items()}


def _read_list(pair_list: PairList, test: SampleSet) -> Pairs:
    """Read a list, and order its pairs by folds.

    Fold k consists of the k-th tenth of the pairs of one class and the k-th tenth of the others.
    """
    subject = f"the list of pairs {pair_list.file!r}"
    row_of_name: dict[str, int] = {}
    # ``pair_list.images`` is the beginning of names in the data set that the list leaves out.
    for row, name in enumerate([] if test.sample_names is None else test.sample_names):
        key = _normalize_name(name.removeprefix(pair_list.images))
        if name.startswith(pair_list.images) and row_of_name.setdefault(key, row) != row:
            raise UsageError(f"{subject}: two test images are named {key!r}; rename one.")
    pairs = []
    try:
        for a, b, same in _parse(expand_path(pair_list.file).read_text(encoding="utf-8-sig")):
            pairs.append((row_of_name[_normalize_name(a)], row_of_name[_normalize_name(b)], same))
    except KeyError as error:
        raise UsageError(
            f"{subject} has {error}, but test images have names such as "
            f"{min(row_of_name, default='')!r}; write as images what paths begin with in the data "
            "set and not in the list."
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{subject} cannot be read after {len(pairs)} pairs: {error}.") from None
    first, second, same_class = np.array(pairs, dtype=np.int64).reshape(-1, 3).T
    indices_by_kind = np.flatnonzero(same_class), np.flatnonzero(same_class == 0)
    sizes = list(map(len, indices_by_kind))
    if sizes[0] != sizes[1] or sizes[0] % FOLDS or not pairs:
        raise UsageError(
            f"{subject} has {sizes[0]} pairs of one class and {sizes[1]} of two, but {FOLDS} equal "
            f"folds need as many of each, a multiple of {FOLDS}; restore the list."
        )
    # Change the order from (kind, fold, pair of the fold) to (fold, kind, pair of the fold).
    order = np.stack(indices_by_kind).reshape(2, FOLDS, -1).swapaxes(0, 1).ravel()
    return torch.from_numpy(first[order]), torch.from_numpy(second[order]), same_class[order] > 0


def _parse(text: str) -> Iterator[tuple[str, str, bool]]:
    """Yield for each pair its two images and whether they are of one class."""
    # An empty text gets an empty first line, which the check of the number of pairs refuses.
    head, *lines = [line.split() for line in text.splitlines() if line.strip()] or [[]]
    if all(map(str.isdecimal, head)):  # LFW: numbers of folds and pairs per fold and kind
        if 2 * math.prod(map(int, head)) != len(lines):
            raise ValueError(f"its first line does not announce its {len(lines)} pairs")
        for a, number_a, *rest in lines:
            same = not rest[1:]  # NAME NUMBER NUMBER; two people are NAME NUMBER NAME NUMBER
            b, number_b = (a, *rest) if same else rest
            yield f"{a}/{a}_{int(number_a):04d}", f"{b}/{b}_{int(number_b):04d}", same
    else:
        # CALFW and CPLFW have two lines IMAGE FLAG for each pair, other lists IMAGE IMAGE FLAG.
        fields, step = text.split(), 4 if len(head) == 2 else 3
        # Of the ``step`` fields of a pair, the first is an image, the last two are image and flag.
        columns = (fields[start::step] for start in (0, step - 2, step - 1))
        for a, b, flag in zip(*columns, strict=True):
            yield a, b, int(flag) > 0


def _normalize_name(name: str) -> str:
    """Return a path without its suffix, in normalised Unicode."""
    return re.sub(r"\.[A-Za-z]{2,4}$", "", unicodedata.normalize("NFC", name))
