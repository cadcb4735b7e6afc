"""Find, download and unpack a published data set, and check that it is complete."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reality_check.data.image_files import ImageFiles
from reality_check.data.readers._archives import unpack
from reality_check.utils.download import RemoteFile, check_file, download
from reality_check.utils.errors import UsageError
from reality_check.utils.locks import locked
from reality_check.utils.paths import expand_path
from reality_check.utils.progress_bar import say


@dataclass(frozen=True)
class PublishedDataset:
    """A published data set.

    Args:
        title: its name in messages.
        experiment: name of an experiment that uses it, for the command that messages show.
        folder: usual name of its folder, for the same command.
        layouts: the genuine layouts, the preferred one first. A layout is the paths that must exist
            in the root folder, each with its alternatives as ``"a|b"``.
        archives: its archives, with their paths below the root folder.
        source: what to download and from where; in messages it follows the word "download".
        counts: published numbers, by the keys of :func:`count`.
        list_root: lists the images of a root folder that is complete by one of the layouts.
        stays_packed: whether images are read from the archives without unpacking them.
    """

    title: str
    experiment: str
    folder: str
    layouts: tuple[tuple[str, ...], ...]
    archives: tuple[RemoteFile, ...]
    source: str
    counts: dict[str, int]
    list_root: Callable[[Path], ImageFiles]
    stays_packed: bool = False

    def list_files(
        self, path: str | Path, download: bool = False, check_counts: bool = True
    ) -> ImageFiles:
        """List the images in the order of the data set's own lists, with the official test classes.

        Args:
            path: the root folder, its parent or an archive in it, which is unpacked; ``~`` and
                ``${VAR}`` are expanded.
            download: whether to download what is missing into ``path``, if that is possible.
            check_counts: whether to refuse other numbers of classes and images than the published
                ones.

        Raises:
            UsageError: if the data set is missing or incomplete, or its lists are damaged.
        """
        files = self.list_root(locate(path, self, download))
        if check_counts:
            compare_counts(files, self)
        return files

    def read(self, config: Any) -> ImageFiles:
        """List the images of the data set that a YAML describes."""
        return self.list_files(config.path, getattr(config, "download", False), config.check_counts)


def locate(path: str | Path, published: PublishedDataset, fetch: bool = False) -> Path:
    """Return the root folder of a data set; download and unpack its archives if necessary.

    Args:
        path: the root folder, its parent or an archive in it; ``~`` and ``${VAR}`` are expanded.
        fetch: whether to download what is missing, if that is possible.

    Raises:
        UsageError: if it is missing (the message says what to download into which folder), or its
            archive cannot be unpacked.
    """
    try:
        folder = expand_path(path)
    except UsageError as error:  # the folder is unknown
        raise UsageError(f"{error} {_advice(None, published)}") from None
    if folder.is_file():
        folder = folder.parent
    root = _find_root(folder, published)
    if root is None and (fetch or any((folder / a.name).is_file() for a in published.archives)):
        root = _obtain(folder, published, fetch)
    if root is None:
        raise UsageError(f"{_describe_missing(folder, published)} {_advice(folder, published)}")
    return root


def first_existing(root: Path, alternatives: str) -> str | None:
    """Return the first of the alternatives ``"a|b"`` that exists below ``root``, or None."""
    return next((path for path in alternatives.split("|") if os.path.exists(root / path)), None)


def count(files: ImageFiles) -> dict[str, int]:
    """Return the numbers of classes and images, in total and of each part."""
    tested = files.test_classes or ()
    in_test = int(np.isin(files.labels, tested).sum())
    queries = 0 if files.queries is None else int(files.queries.sum())
    return {
        "classes": len(files.class_names),
        "images": len(files),
        "training images": len(files) - in_test,
        "test classes": len(tested),
        "test images": in_test,
        "query images": queries,
        "gallery images": in_test - queries,
    }


def compare_counts(files: ImageFiles, published: PublishedDataset) -> None:
    """Raise UsageError if the numbers of a data set differ from the published ones."""
    counts = count(files)
    wrong = [name for name, number in published.counts.items() if counts[name] != number]
    if wrong:
        raise UsageError(
            f"{published.title} in {str(files.root)!r} has {_format_counts(counts, wrong)}, but "
            f"{_format_counts(published.counts, wrong)} are published: it is incomplete or another "
            "version. Download and unpack it again, or, if it is meant to be a part of it, write "
            "dataset.check_counts=false."
        )


def _format_counts(counts: dict[str, int], names: list[str]) -> str:
    return ", ".join(f"{counts[name]:,} {name}" for name in names)


def _find_root(folder: Path, published: PublishedDataset) -> Path | None:
    """Return the folder, or a folder in it, that has all paths of a layout; None if none has."""
    for candidates in ([folder], _folders_in(folder)):
        complete = [
            candidate
            for candidate in candidates
            if any(not _missing_paths(candidate, layout) for layout in published.layouts)
        ]
        if len(complete) > 1:
            raise UsageError(
                f"{published.title} lies twice in {str(folder)!r}: in {complete[0].name!r} and in "
                f"{complete[1].name!r}; write dataset.path={complete[0]} or the other."
            )
        if complete:
            return complete[0]
    return None


def _folders_in(folder: Path) -> list[Path]:
    """Return the folders in a folder that are not hidden; none if it cannot be read."""
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return []
    return [entry for entry in entries if os.path.isdir(entry) and not entry.name.startswith(".")]


def _missing_paths(root: Path, layout: tuple[str, ...]) -> list[str]:
    """Return the paths of a layout that do not exist; of alternatives, the first."""
    return [paths.split("|")[0] for paths in layout if first_existing(root, paths) is None]


def _obtain(folder: Path, published: PublishedDataset, fetch: bool) -> Path | None:
    """Download (if ``fetch``) and unpack archives until the data set is complete.

    Returns:
        The root folder of the data set; None if it is still incomplete.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        work = f"unpacks an archive in {str(folder)!r}."
        with locked(folder / ".unpacking.lock", work, say):
            # The previous holder of the lock may have unpacked the data set.
            root = _find_root(folder, published)
            for archive in published.archives if root is None else ():
                if fetch and archive.urls:
                    download(archive, folder)
                file = folder / archive.name
                can_unpack = file.is_file() and not published.stays_packed
                # An archive without a checksum may be another file of that name.
                if can_unpack and (archive.checksum is not None or _looks_like(file, published)):
                    check_file(file, archive)
                    unpack(file, file.parent)
                root = _find_root(folder, published)
                if root is not None:
                    break
            return root
    except OSError as error:
        raise UsageError(
            f"{published.title} cannot be unpacked in {str(folder)!r} ({error.strerror or error}); "
            "unpack it where you may write, and name that folder with dataset.path=..."
        ) from error


def _looks_like(file: Path, published: PublishedDataset) -> bool:
    """Return whether an archive, whose name may be a common one, contains files of the data set."""
    if not zipfile.is_zipfile(file):  # a tar file would have to be read as a whole
        return True
    layouts = published.layouts
    expected = tuple(path for layout in layouts for paths in layout for path in paths.split("|"))
    with zipfile.ZipFile(file) as content:
        names = content.namelist()
    # The files may lie in one folder inside the archive.
    return any(
        part.startswith(expected) for name in names for part in (name, name.partition("/")[2])
    )


def _describe_missing(folder: Path, published: PublishedDataset) -> str:
    """Return a sentence on what the most complete of the possible root folders lacks."""
    if not folder.is_dir():
        return f"There is no folder {str(folder)!r} with {published.title}."
    incomplete = [
        (len(layout) - len(missing), candidate, missing)
        for candidate in (folder, *_folders_in(folder))
        for layout in published.layouts
        if len(missing := _missing_paths(candidate, layout)) < len(layout)
    ]
    if not incomplete:
        return f"The folder {str(folder)!r} does not hold {published.title}."
    _, root, missing = max(incomplete, key=lambda entry: entry[0])  # the most complete one
    return f"{published.title} in {str(root)!r} lacks {' and '.join(missing)}."


def _advice(folder: Path | None, published: PublishedDataset) -> str:
    """Return a sentence on how to name the data set's folder or to obtain the data set."""
    fetchable = any(archive.urls for archive in published.archives)
    or_download = "add dataset.download=true, or " if fetchable else ""
    return (
        f"If you have {published.title}, name its folder: reality-check run "
        f"{published.experiment} dataset.path=/my/{published.folder}. If not, "
        f"{or_download}download {published.source} and put it into "
        f"{repr(str(folder)) if folder else 'a folder of that name'}."
    )
