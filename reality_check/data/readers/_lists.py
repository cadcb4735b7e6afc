"""Read the list files of published data sets, and assemble data sets from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from reality_check.data.image_files import ImageFiles
from reality_check.data.readers._rows import tested_labels
from reality_check.utils.errors import UsageError

Id = TypeVar("Id", int, str)


class Line(NamedTuple):
    """A line of a list file, split into its fields."""

    file: Path
    number: int
    fields: list[str]

    def integer(self, index: int) -> int:
        """Return a field as a whole number."""
        try:
            return int(self.fields[index])
        except ValueError:
            raise UsageError(
                f"{self.location()} has {self.fields[index]!r} where a whole number must be; "
                "restore the file from its archive."
            ) from None

    def location(self) -> str:
        """Return ``"Line 3 of '/a/b.txt'"``."""
        return f"Line {self.number} of {str(self.file)!r}"


def read_lines(
    file: Path, fields: Sequence[str], spaced: int = -1, skip: int = 0
) -> Iterator[Line]:
    """Read a list file whose fields are separated by blanks.

    Line ends of any system, a byte order mark and empty lines are accepted; file names that are not
    UTF-8 are kept as they are.

    Args:
        fields: names of the fields of a line.
        spaced: which field may contain blanks: 0, the first, or -1, the last.
        skip: number of lines to skip at the beginning.

    Raises:
        UsageError: if the file cannot be read or a line has too few fields.
    """
    separators = len(fields) - 1
    try:
        with open(file, encoding="utf-8-sig", errors="surrogateescape") as lines:
            for number, line in enumerate(lines, start=1):
                text = line.strip()
                if number <= skip or not text:
                    continue
                # Splitting from the end leaves all further blanks in the first field.
                split = text.rsplit if spaced == 0 else text.split
                parts = [part.strip() for part in split(maxsplit=separators)]
                if len(parts) != len(fields):
                    raise UsageError(
                        f"Line {number} of {str(file)!r} is {text!r}, but it must hold "
                        f"{', '.join(fields)}; restore the file from its archive."
                    )
                yield Line(file, number, parts)
    except OSError as error:
        raise UsageError(f"{str(file)!r} cannot be read: {error.strerror or error}.") from error


def assemble(
    name: str,
    root: Path,
    paths: Sequence[str],
    class_ids: Sequence[Id],
    class_name: Callable[[Id], str],
    is_test: Sequence[bool],
    queries: Sequence[bool] | None = None,
) -> ImageFiles:
    """Assemble a data set from the content of its lists.

    Args:
        paths: path of each image, in the data set's own order.
        class_ids: official class of each image; labels are their ranks.
        class_name: returns the name of a class.
        is_test: whether each image belongs to the official test.
        queries: whether each image is a query of the official test; None if all are.

    Raises:
        UsageError: if there is no image, or a class has both test images and others.
    """
    if not paths:
        raise UsageError(f"The lists in {str(root)!r} name no image; restore them.")
    ids, labels = np.unique(np.array(class_ids), return_inverse=True)
    classes: list[Id] = ids.tolist()
    names = list(map(class_name, classes))
    if len(set(names)) < len(names):  # two classes have one name
        names = [f"{text} ({class_id})" for text, class_id in zip(names, classes, strict=True)]
    test_ids = tested_labels(np.array(class_ids), np.array(is_test), str(root))
    return ImageFiles(
        name,
        root,
        tuple(paths),
        labels.astype(np.int64),
        tuple(names),
        test_classes=tuple(np.searchsorted(ids, test_ids).tolist())
        if 0 < len(test_ids) < len(ids)  # else there is no split
        else None,
        queries=None if queries is None else np.array(queries, dtype=bool),
    )
