"""Reader of ``.npz`` files: arrays of images and labels, saved with ``numpy.savez``."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from reality_check.data.images import Images
from reality_check.data.sample_set import ImageSet
from reality_check.utils.errors import UsageError
from reality_check.utils.paths import expand_path
from reality_check.utils.text import nearest

_DEFAULT_NAMES_KEY = "class_names"


def read_npz(
    path: str | Path,
    where: Mapping[str, int | Sequence[int]] | None = None,
    images: str = "images",
    labels: str = "labels",
    class_names: str = _DEFAULT_NAMES_KEY,
    test: Mapping[str, int | Sequence[int]] | None = None,
) -> ImageSet:
    """Read images and labels from one ``.npz`` file.

    Args:
        path: the file; ``~`` and ``${VAR}`` are expanded.
        where: keep only the rows where each named array (one value per image) equals the value or
            one of the values, such as ``{"split": 0}``; None keeps all rows.
        images: key of the images: uint8 of shape (N, H, W) or (N, H, W, C).
        labels: key of the labels: integers or texts of shape (N,).
        class_names: key of the names: names[label] is the class of an integer label. Where the
            file has no such array, the labels themselves are the names.
        test: rows that belong to the official test, named as ``where`` names rows, such as
            ``{"split": 1}``: the classes of those among the kept rows are the test classes. None
            for a file without an official split.

    Returns:
        The kept rows in the file's order; a label is the rank of the file's label among those kept.

    Raises:
        UsageError: if the file cannot be read, a key is missing, an array does not fit or no row
            is kept.
    """
    file = expand_path(path)
    arrays = _open(file)
    pixels = _array(arrays, images, file)
    if pixels.ndim not in (3, 4):
        raise UsageError(
            f"The array {images!r} of {str(file)!r} has shape {pixels.shape}, but images must be "
            "(N, H, W) or (N, H, W, C)."
        )
    marks = _array(arrays, labels, file)
    _check_rows(file, labels, marks, len(pixels))
    rows = _rows(arrays, where or {}, len(pixels), file)
    values, ranks = np.unique(marks[rows], return_inverse=True)
    names = _names(arrays, class_names, values, file)
    kept = pixels[rows] if where else pixels
    if kept.ndim == 3:
        kept = kept[..., None]
    test_classes = None
    if test:
        tested = np.isin(rows, _rows(arrays, test, len(pixels), file))
        test_classes = _test_classes(ranks, tested, names, file)
    return ImageSet(Images.from_array(kept), ranks.astype(np.int64), names, file.stem, test_classes)


def _open(file: Path) -> Mapping[str, np.ndarray]:
    if not file.is_file():
        raise UsageError(f"There is no file {str(file)!r}; write the path of an .npz file.")
    try:
        arrays = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(
            f"{str(file)!r} cannot be read as an .npz file ({error}); save it with numpy.savez."
        ) from error
    if isinstance(arrays, np.ndarray):
        raise UsageError(f"{str(file)!r} holds a single array; save images and labels as .npz.")
    return arrays


def _array(arrays: Mapping[str, np.ndarray], key: str, file: Path) -> np.ndarray:
    if key not in arrays:
        raise UsageError(
            f"{str(file)!r} has no array {key!r}, only {', '.join(map(repr, arrays))}; "
            "name one of them." + nearest(key, arrays)
        )
    try:
        return arrays[key]
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(
            f"The array {key!r} of {str(file)!r} cannot be read ({error}); save it as plain "
            "numbers or texts, not as Python objects."
        ) from error


def _check_rows(file: Path, key: str, array: np.ndarray, num_images: int) -> None:
    if array.shape != (num_images,) or array.dtype.kind not in "iuUb":
        raise UsageError(
            f"The array {key!r} of {str(file)!r} is {array.dtype} of shape {array.shape}, but it "
            f"must hold integers or texts of shape ({num_images},), one per image."
        )


def _rows(
    arrays: Mapping[str, np.ndarray],
    where: Mapping[str, int | Sequence[int]],
    num_images: int,
    file: Path,
) -> np.ndarray:
    keep = np.ones(num_images, dtype=bool)
    for key, wanted in where.items():
        array = _array(arrays, key, file)
        _check_rows(file, key, array, num_images)
        keep &= np.isin(array, np.atleast_1d(np.asarray(wanted)))
        if not keep.any():
            values = ", ".join(str(value) for value in np.unique(array)[:8])
            raise UsageError(
                f"No row of {str(file)!r} has {key} = {wanted}; the values of {key!r} include "
                f"{values}."
            )
    return np.flatnonzero(keep)


def _test_classes(
    labels: np.ndarray, tested: np.ndarray, names: tuple[str, ...], file: Path
) -> tuple[int, ...]:
    if not tested.any():
        raise UsageError(f"No row of {str(file)!r} that 'where' keeps is named by 'test'.")
    shared = np.intersect1d(labels[tested], labels[~tested])
    if shared.size:
        raise UsageError(
            f"The class {names[shared[0]]!r} of {str(file)!r} has rows in 'test' and others "
            f"({shared.size} such classes); name all rows of a class or none."
        )
    return tuple(int(label) for label in np.unique(labels[tested]))


def _names(
    arrays: Mapping[str, np.ndarray], key: str, values: np.ndarray, file: Path
) -> tuple[str, ...]:
    if values.dtype.kind == "U" or (key == _DEFAULT_NAMES_KEY and key not in arrays):
        return tuple(str(value) for value in values)
    names = _array(arrays, key, file)
    if names.ndim != 1 or int(values.min()) < 0 or int(values.max()) >= len(names):
        raise UsageError(
            f"The labels of {str(file)!r} span {values.min()}..{values.max()}, but {key!r} has "
            f"shape {names.shape}; give one name for each label from 0 on."
        )
    return tuple(str(names[value]) for value in values)
