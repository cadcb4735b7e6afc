"""Reader of vectors and other tensors: NumPy, safetensors and Parquet files, and folders of
``reality-check embed`` and of Hugging Face's ``datasets``."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from reality_check.config.named import TENSOR_FILES
from reality_check.data.images import Images
from reality_check.data.readers._rows import Marks, rows_where, tested_labels
from reality_check.data.sample_set import ImageSet, SampleSet, TensorSet
from reality_check.data.source_images import recorded_source
from reality_check.data.tensors import Tensors
from reality_check.utils.errors import UsageError
from reality_check.utils.paths import expand_path
from reality_check.utils.text import nearest

#: Names of arrays that are tried, in this order, if none is given.
_SAMPLES = ("x", "X", "features", "embeddings", "vectors", "images", "data")
_LABELS = ("y", "labels", "label", "targets", "target")
_NAMES, _CLASS_NAMES, _ORIGIN = "names", "class_names", "origin"
#: Names of the arrays in which ``reality-check embed`` writes the data set's own split.
_TEST_CLASSES, _QUERIES = "test_classes", "queries"

Columns = Mapping[str, Any]


def read(config: Any) -> SampleSet:
    """Read the file or folder that a YAML names."""
    keys = ("x", "y", "names", "class_names", "where", "test")
    data = read_tensors(config.path, **{key: getattr(config, key, None) for key in keys})
    return replace(data, name=config.name)


def read_tensors(
    path: str | Path,
    x: str | None = None,
    y: str | None = None,
    names: str | None = None,
    class_names: str | None = None,
    where: Marks | None = None,
    test: Marks | None = None,
) -> SampleSet:
    """Read samples with labels from one file or folder.

    Args:
        path: ``.npz``, ``.npy``, ``.safetensors`` or ``.parquet``, or a folder that
            ``reality-check embed`` (``.npy`` files by the names of their arrays) or Hugging Face's
            ``save_to_disk`` wrote; ``~`` and ``${VAR}`` are expanded. Arrays of ``.npy`` and
            ``.safetensors`` files are memory-mapped; arrays of other files are read into memory.
        x: name of the array of samples: (N, D) vectors or (N, ...) tensors, see
            :meth:`reality_check.data.tensors.Tensors.from_array`; uint8 (N, H, W), or (N, H, W, C)
            with 1 or 3 channels, are images. None: the first of x, X, features, embeddings,
            vectors, images and data that exists.
        y: name of the array of labels, integers or texts (N,). None: the first of y, labels, label,
            targets and target that exists. For a ``.npy`` file, the path of another one.
        names: name of the array of the samples' names, texts (N,). None: ``names``, if it exists.
        class_names: name of the array of class names, of which ``[label]`` is the name of an
            integer label. None: ``class_names``, if it exists; else labels are their own names.
        where: keep only the rows where each named array (one value per sample) equals the value or
            one of the values, such as ``{"split": 0}``; None keeps all rows.
        test: selects, like ``where``, the rows of the official test; the classes of these rows,
            as far as ``where`` keeps them, are the test classes. None: the test classes that
            ``reality-check embed`` stored, if any.

    Returns:
        The samples in the file's order; labels are the ranks of the file's labels that are kept.

    Raises:
        UsageError: if the file cannot be read, an array is missing or does not fit, or a value is
            NaN or infinite.
    """
    path = expand_path(path)
    columns = _open(path, y)
    file = str(path)
    samples = _find_array(columns, x, _SAMPLES, f"The samples of {file!r} (x: NAME)")
    y = "y" if path.suffix == ".npy" else y  # for .npy files, ``y`` was the path of the labels
    labels = _find_array(columns, y, _LABELS, f"The labels of {file!r} (y: NAME)")
    rows: Any = rows_where(columns, where, len(samples), file) if where else slice(None)
    labels, test_classes = np.asarray(labels), columns.get(_TEST_CLASSES)
    if test:
        is_test = np.isin(np.arange(len(samples)), rows_where(columns, test, len(samples), file))
        if not is_test[rows].any():
            raise UsageError(f"No row of {file!r} that 'where' keeps is named by 'test'.")
        test_classes = tested_labels(labels[rows], is_test[rows], file)
    sample_names = _find_optional(columns, names, _NAMES, f"The names of {file!r}")
    queries = columns.get(_QUERIES)
    source = recorded_source(columns, len(samples))
    data = build_sample_set(
        samples[rows],
        labels[rows],
        path.stem,
        f"The samples of {file!r}",
        names=None if sample_names is None else np.asarray(sample_names)[rows],
        queries=None if queries is None else queries[rows],
        class_names=_find_optional(
            columns, class_names, _CLASS_NAMES, f"The class names of {file!r}"
        ),
        origin=str(columns.get(_ORIGIN, "")),
        test_classes=test_classes,
    )
    return data if source is None else replace(data, source=source[rows])


def build_sample_set(
    samples: np.ndarray,
    labels: np.ndarray,
    name: str,
    subject: str,
    names: Sequence[str] | np.ndarray | None = None,
    queries: np.ndarray | None = None,
    class_names: Sequence[str] | np.ndarray | None = None,
    origin: str = "",
    test_classes: np.ndarray | None = None,
) -> SampleSet:
    """Build an :class:`ImageSet` or a :class:`TensorSet` from the samples and labels of a file.

    Args:
        samples: shape (N, ...); uint8 (N, H, W), or (N, H, W, C) with 1 or 3 channels, are images.
        labels: integers or texts, shape (N,).
        name: name of the data set.
        subject: what error messages call the samples.
        names: name of each sample; None if the samples have no names.
        queries: bool, shape (N,): which samples are queries; None if all are.
        class_names: name of each integer label; None if labels are their own names.
        origin: where the samples come from.
        test_classes: labels of the test classes of the data set's own split; None if it has none.

    Raises:
        UsageError: if the arrays do not fit each other, or a value is not allowed.
    """
    labels = labels.astype(str) if labels.dtype.kind == "O" else labels
    if labels.shape != samples.shape[:1] or labels.dtype.kind not in "iuUbS":
        expected = f"one integer or text for each of {len(samples)} samples"
        more = "; 2-d labels have no single class" if labels.ndim == 2 else ""
        raise UsageError(
            f"{subject} have labels of shape {labels.shape} and type {labels.dtype}, but they must "
            f"be {expected}{more}."
        )
    values, ranks = np.unique(labels, return_inverse=True)
    options: dict[str, Any] = {
        "labels": ranks.astype(np.int64),
        "class_names": _class_names(values, class_names, subject),
        "name": name,
        "sample_names": None if names is None else np.asarray(names).astype(str),
        "origin": origin,
        "queries": None if queries is None else np.asarray(queries, dtype=bool),
    }
    if test_classes is not None:  # of which some may have no samples here
        test_labels = np.searchsorted(values, np.intersect1d(values, test_classes))
        options["test_classes"] = tuple(test_labels.tolist())
    if samples.dtype == np.uint8 and samples.ndim == 3:  # grey images
        samples = samples[..., None]
    if samples.dtype == np.uint8 and samples.ndim == 4 and samples.shape[3] in (1, 3):
        return ImageSet(Images.from_array(samples), **options)
    return TensorSet(Tensors.from_array(samples, subject), **options)


def _class_names(values: np.ndarray, names: Any, subject: str) -> tuple[str, ...]:
    """Return the names of the distinct labels ``values``, which are texts or indices of names."""
    if names is None or values.dtype.kind in "US":
        return tuple(map(str, values))
    if int(values.min()) < 0 or int(values.max()) >= len(names):
        raise UsageError(
            f"{subject} have labels {values.min()}..{values.max()}, but {len(names)} class names; "
            "give one name for each label from 0 on."
        )
    return tuple(str(names[value]) for value in values)


def _find_array(columns: Columns, chosen: str | None, known: Sequence[str], subject: str) -> Any:
    """Return the array of the chosen name, or, if that is None, the first of the known names."""
    candidates = known if chosen is None else [chosen]
    key = next((name for name in candidates if name in columns), None)
    if key is None:
        raise UsageError(
            f"{subject}: there is no {' or '.join(map(repr, candidates))}, only "
            f"{', '.join(map(repr, columns))}; name one of them.{nearest(candidates[0], columns)}"
        )
    if np.ndim(columns[key]) == 0:
        raise UsageError(f"{subject}: {key!r} has shape (), but needs one entry for each sample.")
    return columns[key]


def _find_optional(columns: Columns, chosen: str | None, known: str, subject: str) -> Any:
    """Return the array of the chosen name, or, if that is None, of the known name if it exists."""
    return columns.get(known) if chosen is None else _find_array(columns, chosen, (), subject)


# -- formats -----------------------------------------------------------------------------------


def _open(path: Path, y: str | None) -> Columns:
    """Return the arrays of a file or folder by name; ``y`` is the labels' file for ``.npy``."""
    if path.is_dir() and not any(path.glob("*.npy")):
        return _read_huggingface(path)
    if not path.is_dir() and path.suffix not in TENSOR_FILES:
        known = ", ".join(TENSOR_FILES)
        raise UsageError(
            f"{str(path)!r} is not a file that can be read ({known}, or a folder of reality-check "
            "embed or of Hugging Face's save_to_disk)."
        )
    if not path.exists():
        raise UsageError(f"There is no file {str(path)!r}; check the path.")
    try:
        if path.is_dir():
            files = sorted(path.glob("*.npy"))
            return _with_texts({file.stem: np.load(file, mmap_mode="r") for file in files})
        if path.suffix == ".npy":
            return _read_npy(path, y)
        return _FORMATS[path.suffix](path)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{str(path)!r} cannot be read ({error}).") from error


def _read_npy(path: Path, y: str | None) -> Columns:
    """Return the samples of a ``.npy`` file and the labels of the file ``y``."""
    if y is None:
        raise UsageError(
            f"{str(path)!r} holds samples without labels; name the file of the labels (y: "
            "labels.npy), or save both in an .npz file."
        )
    labels = expand_path(y)
    beside = path.parent / labels
    file = labels if labels.is_file() else beside
    if not file.is_file():
        raise UsageError(f"There is no file {y!r} with the labels, nor {str(beside)!r}.")
    return {"x": np.load(path, mmap_mode="r"), "y": np.load(file)}


def _read_npz(path: Path) -> Columns:
    with np.load(path, allow_pickle=False) as arrays:
        return _with_texts(dict(arrays))


def _with_texts(arrays: dict[str, np.ndarray]) -> Columns:
    """Return the arrays by name, those without dimensions converted to texts."""
    return {name: str(array) if array.ndim == 0 else array for name, array in arrays.items()}


def _read_safetensors(path: Path) -> Columns:
    """Return the arrays of a file, with the names and the origin in its metadata."""
    library = _import("safetensors", path)
    with library.safe_open(str(path), framework="pt") as file:
        columns: dict[str, Any] = {name: file.get_tensor(name).numpy() for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata() or {}
    for name in (_NAMES, _CLASS_NAMES):
        if name in metadata:
            columns[name] = json.loads(metadata[name])
    return {**columns, _ORIGIN: metadata.get(_ORIGIN, "")}


def _read_parquet(path: Path) -> Columns:
    return _read_arrow(_import("pyarrow.parquet", path).read_table(path), str(path))


def _read_huggingface(path: Path) -> Columns:
    """Return the columns of a folder that ``save_to_disk`` of Hugging Face's datasets wrote."""
    library = _import("datasets", path)
    try:
        data = library.load_from_disk(str(path))
    except Exception as error:
        raise UsageError(
            f"The folder {str(path)!r} is none that save_to_disk of Hugging Face's datasets wrote "
            f"({error}); for a folder of images write reader: image_folder."
        ) from None
    if isinstance(data, library.DatasetDict):
        raise UsageError(
            f"{str(path)!r} holds the parts {', '.join(data)}; name the folder of one of them."
        )
    return _read_arrow(data.with_format("arrow")[:], str(path))


def _read_arrow(table: Any, file: str) -> Columns:
    """Return the columns of an Arrow table by name."""
    return {name: _to_array(table.column(name), name, file) for name in table.column_names}


def _to_array(column: Any, name: str, file: str) -> np.ndarray:
    """Convert an Arrow column to an array; lists of equal length become its further axes."""
    column = column.combine_chunks()
    flat, sizes = column, []  # each level of nested lists becomes an axis
    while hasattr(flat, "flatten") and hasattr(flat.type, "value_type"):  # a column of lists
        inner = flat.flatten()
        size, remainder = divmod(len(inner), max(1, len(flat)))
        # Lists of a fixed size have no lengths.
        lengths = getattr(flat, "value_lengths", lambda: None)()
        if remainder or (lengths is not None and len(lengths.unique()) > 1):
            raise UsageError(
                f"The column {name!r} of {file!r} has rows of different lengths, but all samples "
                "must have one shape; pad or cut them."
            )
        sizes.append(size)
        flat = inner
    return flat.to_numpy(zero_copy_only=False).reshape(len(column), *sizes)


#: Functions that read the formats, except ``.npy``, whose labels are in another file.
_FORMATS: dict[str, Callable[[Path], Columns]] = {
    ".npz": _read_npz,
    ".safetensors": _read_safetensors,
    ".parquet": _read_parquet,
}


def _import(module: str, path: Path) -> Any:
    """Return a module; raise UsageError if its package is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise UsageError(
            f"Reading {str(path)!r} needs the package {module.partition('.')[0]}; install it with "
            f"pip install 'pml-extensions[features]'."
        ) from None
