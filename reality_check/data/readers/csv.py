"""Reader of CSV lists: one line per image, with its path, its class and perhaps its split."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from reality_check.data.image_files import ImageFiles
from reality_check.data.readers._rows import tested_labels
from reality_check.utils.errors import UsageError
from reality_check.utils.paths import expand_path
from reality_check.utils.text import duplicates, nearest

_COLUMNS = ("path", "label", "split")
_SPLITS = ("train", "test", "query", "gallery")


class _Line(NamedTuple):
    path: str
    label: str
    split: str


def read(config: Any) -> ImageFiles:
    """List the images of the CSV file that a YAML names."""
    return list_csv(config.path)


def list_csv(path: str | Path) -> ImageFiles:
    """List the images that a CSV file names.

    Its first line names the columns, ``path,label`` or ``path,label,split``; other columns are
    ignored. Paths are relative to the file's folder and may go through a ``.zip`` file as if it
    were a folder. The split is ``train`` or ``test``; if the queries of the test are searched in a
    gallery of other images, it is ``query`` or ``gallery`` instead of ``test``.

    Args:
        path: the CSV file (UTF-8); ``~`` and ``${VAR}`` are expanded.

    Returns:
        The images in the file's order. The classes are sorted, as numbers if all labels are whole
        numbers, else as text. With a split, the classes that are not in training are the test
        classes.

    Raises:
        UsageError: if the file or one of its lines cannot be used.
    """
    file = expand_path(path)
    lines = _read(file)
    labels = {line.label for line in lines}
    all_numbers = all(label.isascii() and label.isdigit() for label in labels)
    names = tuple(sorted(labels, key=lambda label: (int(label) if all_numbers else 0, label)))
    label_of = {name: label for label, name in enumerate(names)}
    test_classes, queries = _official_test(file, lines, label_of)
    return ImageFiles(
        file.stem,
        file.parent,
        tuple(line.path for line in lines),
        np.array([label_of[line.label] for line in lines], np.int64),
        names,
        test_classes,
        queries,
    )


def _read(file: Path) -> list[_Line]:
    """Read all lines of a CSV file; raise UsageError if it names no image."""
    if not file.is_file():
        raise UsageError(f"There is no file {str(file)!r}; write the path of a CSV file.")
    try:
        with open(file, encoding="utf-8-sig", newline="") as stream:
            lines = list(_parse(file, csv.DictReader(stream, strict=True)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(
            f"{str(file)!r} cannot be read as a CSV file ({error}); save it as UTF-8 text with "
            "commas between the columns."
        ) from error
    if not lines:
        raise UsageError(f"{str(file)!r} lists no images; write a line path,label for each.")
    return lines


def _parse(file: Path, reader: csv.DictReader[str]) -> Iterator[_Line]:
    """Yield the lines of a CSV file, after checking them."""
    columns = [name.strip() for name in reader.fieldnames or ()]
    if repeated := duplicates(columns):
        raise UsageError(
            f"The first line of {str(file)!r} names the column {repeated[0]!r} twice; rename or "
            "remove one."
        )
    for name in ("path", "label"):
        if name not in columns:
            raise UsageError(
                f"The first line of {str(file)!r} names the columns "
                f"{', '.join(map(repr, columns)) or '(none)'}, but it must have 'path' and "
                f"'label'; write path,label or path,label,split."
            )
    reader.fieldnames = columns
    for row in reader:
        location = f"Line {reader.line_num} of {str(file)!r}"
        # DictReader marks too many columns by the key None, and too few by the value None.
        if None in row or None in row.values():
            raise UsageError(
                f"{location} has not {len(columns)} columns as the first line has; put texts with "
                'commas in them between double quotes (").'
            )
        path, label, split = ((row.get(name) or "").strip() for name in _COLUMNS)
        if not path or not label:
            raise UsageError(f"{location} has no path or no label; fill it in or remove the line.")
        if Path(path).is_absolute() or ".." in path.replace("\\", "/").split("/"):
            raise UsageError(
                f"{location} has the path {path!r}, but paths must be relative to the CSV file's "
                "folder and stay inside it; move the CSV file or the images."
            )
        if "split" in columns and split not in _SPLITS:
            raise UsageError(
                f"{location} has the split {split!r}, but it must be {', '.join(_SPLITS[:-1])} or "
                f"{_SPLITS[-1]}.{nearest(split, _SPLITS)}"
            )
        yield _Line(path, label, split)


def _official_test(
    file: Path, lines: list[_Line], label_of: dict[str, int]
) -> tuple[tuple[int, ...] | None, np.ndarray | None]:
    """Return the test classes and a mask of the queries, each None if the file has none."""
    _, labels, splits = np.array(lines).T
    is_test = ~np.isin(splits, ("", "train"))
    if not is_test.any():
        return None, None
    test_classes = tuple(
        sorted(label_of[name] for name in tested_labels(labels, is_test, str(file)))
    )
    if "test" not in splits:
        _check_gallery(file, lines)
        return test_classes, splits == "query"
    if not np.isin(splits, ("query", "gallery")).any():
        return test_classes, None
    raise UsageError(
        f"{str(file)!r} has the split 'test' together with 'query' or 'gallery'; write 'test' "
        "for all test images, or 'query' and 'gallery' for all."
    )


def _check_gallery(file: Path, lines: list[_Line]) -> None:
    """Raise UsageError unless there are queries, and all their classes are in the gallery."""
    queried, gallery = (
        {line.label for line in lines if line.split == split} for split in ("query", "gallery")
    )
    if not queried:
        raise UsageError(f"{str(file)!r} has a gallery but no query; write 'test' for both.")
    if missing := queried - gallery:
        raise UsageError(
            f"{str(file)!r} has a query of the class {min(missing)!r}, which has no image in the "
            "gallery, so it could never be found; add one."
        )
