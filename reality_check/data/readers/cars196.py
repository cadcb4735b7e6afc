"""Cars196 (Stanford Cars, Krause et al. 2013) from its genuine files, in the layouts in use."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from reality_check.data.image_files import ImageFiles
from reality_check.data.readers._lists import assemble, read_lines
from reality_check.data.readers._published import PublishedDataset, first_existing
from reality_check.utils.download import RemoteFile
from reality_check.utils.errors import UsageError

_ORIGINAL = ("cars_annos.mat", "car_ims")
_DEVKIT = (
    "cars_test_annos_withlabels.mat|devkit/cars_test_annos_withlabels.mat",
    "devkit/cars_train_annos.mat|car_devkit/devkit/cars_train_annos.mat|cars_train_annos.mat",
    "devkit/cars_meta.mat|car_devkit/devkit/cars_meta.mat|cars_meta.mat",
    "cars_train/cars_train|cars_train",
    "cars_test/cars_test|cars_test",
)
_BY_CLASS = (
    "anno_train.csv",
    "anno_test.csv",
    "names.csv",
    "car_data/car_data/train|car_data/train",
    "car_data/car_data/test|car_data/test",
)
_FIRST_TEST_CLASS = 99


class _Cars(NamedTuple):
    paths: list[str]
    class_ids: list[int]  # of the images, from 1
    class_names: list[str]


def _list_root(root: Path) -> ImageFiles:
    """List the images; ``assemble`` turns the official class numbers, 1 to 196, into labels.

    The order of the images depends on the layout. The test classes are the classes 99 to 196; the
    train and test images of a layout are not used as a split, because they share their classes.
    """
    # The caller has found all files of a layout, each at one of its possible paths.
    cars = next(
        read_layout(root)
        for layout, read_layout in _LAYOUTS.items()
        if all(first_existing(root, paths) for paths in layout)
    )
    outside = [number for number in cars.class_ids if not 1 <= number <= len(cars.class_names)]
    if outside:
        raise UsageError(
            f"An image of Cars196 in {str(root)!r} is of class {outside[0]}, but there are names "
            f"for the classes 1..{len(cars.class_names)} only; restore the lists from their "
            "archive."
        )
    return assemble(
        "cars196",
        root,
        cars.paths,
        cars.class_ids,
        lambda number: cars.class_names[number - 1],
        is_test=[number >= _FIRST_TEST_CLASS for number in cars.class_ids],
    )


def _read_original(root: Path) -> _Cars:
    """Read the layout of the original site."""
    file = root / "cars_annos.mat"
    paths, class_ids = _read_annotations(file, "relative_im_path")
    return _Cars(paths, class_ids, list(map(str, _load_mat(file, "class_names"))))


def _read_devkit(root: Path) -> _Cars:
    """Read the layout in which training and test images are in two folders."""
    test, train, meta, train_images, test_images = (  # in the order of _DEVKIT
        str(first_existing(root, alternatives)) for alternatives in _DEVKIT
    )
    paths: list[str] = []
    class_ids: list[int] = []
    for list_file, folder in ((train, train_images), (test, test_images)):
        names, numbers = _read_annotations(root / list_file, "fname")
        paths += [f"{folder}/{name}" for name in names]
        class_ids += numbers
    return _Cars(paths, class_ids, list(map(str, _load_mat(root / meta, "class_names"))))


def _read_by_class(root: Path) -> _Cars:
    """Read the layout of Kaggle, in which the images are in folders by class."""
    class_names = [line.fields[0] for line in read_lines(root / "names.csv", ("name",))]
    paths: list[str] = []
    class_ids: list[int] = []
    for part in ("train", "test"):
        folder = first_existing(root, f"car_data/car_data/{part}|car_data/{part}")
        # To ``read_lines``, which splits at blanks, a line is one field.
        for line in read_lines(root / f"anno_{part}.csv", ("file, box and class",)):
            name, *_, text = line.fields[0].split(",")
            if not text.strip().isdigit() or not 1 <= int(text) <= len(class_names):
                raise UsageError(
                    f"{line.location()} ends with {text!r}, but it must be a class from 1 to "
                    f"{len(class_names)}, the lines of names.csv; restore both from their archive."
                )
            class_ids.append(int(text))
            # The class "Ram C/V Cargo Van Minivan 2012" cannot be a folder under its own name.
            paths.append(f"{folder}/{class_names[int(text) - 1].replace('/', '-')}/{name.strip()}")
    return _Cars(paths, class_ids, class_names)


def _load_mat(file: Path, variable: str) -> Any:
    """Return a variable of a MATLAB file as an array (N,)."""
    from scipy.io import loadmat

    try:
        return np.atleast_1d(loadmat(file, squeeze_me=True, variable_names=[variable])[variable])
    except Exception as error:  # scipy raises nearly anything for a damaged file
        raise UsageError(
            f"{str(file)!r} cannot be read as a MATLAB file of Cars196 ({error}); restore it from "
            "its archive."
        ) from error


def _read_annotations(file: Path, path_field: str) -> tuple[list[str], list[int]]:
    """Return the path and the class number of each annotated image."""
    table = _load_mat(file, "annotations")
    missing = [name for name in (path_field, "class") if name not in (table.dtype.names or ())]
    if missing:
        raise UsageError(
            f"The annotations of {str(file)!r} have no {missing[0]!r} (cars_test_annos.mat has no "
            "classes; cars_test_annos_withlabels.mat has them); take the file of that name from "
            "Cars196."
        )
    return list(map(str, table[path_field])), list(map(int, table["class"]))


_LAYOUTS = {_ORIGINAL: _read_original, _DEVKIT: _read_devkit, _BY_CLASS: _read_by_class}
CARS196 = PublishedDataset(
    title="Cars196",
    experiment="cars196_mlrc",
    folder="cars196",
    layouts=tuple(_LAYOUTS),
    archives=(
        RemoteFile("car_ims.tgz", (), "md5:d5c8f0aa497503f355e17dc7886c3f14"),
        RemoteFile("car_devkit.tgz", (), "md5:c3b158d763b6e2245038c8ad08e45376"),
        RemoteFile("cars_train.tgz", (), "md5:065e5b463ae28d29e77c1b4b166cfe61"),
        RemoteFile("cars_test.tgz", (), "md5:4ce7ebf6a94d07f1952d94dd34c4d501"),
        RemoteFile("stanford-car-dataset-by-classes-folder.zip"),
        RemoteFile("archive.zip"),  # the name that a browser saves it under
    ),
    source=(
        "the archive (2 GB) of "
        "https://www.kaggle.com/datasets/jutrera/stanford-car-dataset-by-classes-folder (the "
        "original site is gone; its car_ims.tgz with cars_annos.mat, or cars_train.tgz, "
        "cars_test.tgz and car_devkit.tgz with cars_test_annos_withlabels.mat, do as well)"
    ),
    counts={"classes": 196, "images": 16_185, "test images": 8_131},
    list_root=_list_root,
)
read = CARS196.read
