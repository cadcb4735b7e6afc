"""The keys of a data set's YAML: one class per reader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, NonNegativeInt

from reality_check.config.types import (
    CheckCounts,
    DataName,
    DataPath,
    Download,
    Fixed,
    MayDiffer,
)
from reality_check.config.values import Strict

#: A side of the decoded images, in pixels.
_Side = Annotated[int, Field(ge=8, le=1024)]


class GlyphsData(Strict):
    """The embedded data set: distorted characters of the fonts inside matplotlib."""

    name: DataName = "glyphs"
    reader: Literal["glyphs"]
    classes: Annotated[int, Field(ge=8, le=282)] = 240
    """Number of characters, each a class."""
    images_per_class: Annotated[int, Field(ge=2, le=1000)] = 24
    """Drawings of each character."""
    size: Annotated[int, Field(ge=16, le=128)] = 32
    """Side of the square images, in pixels."""
    seed: NonNegativeInt = 0
    """Seed of the distortions."""


class FilesData(Strict):
    """What all data sets of image files have in common: how the files are decoded."""

    path: DataPath
    """Folder or file of the data; ~ and ${VARIABLE} are expanded, a .zip file is read as it is."""
    size: _Side = 256
    """Short side of the decoded images, in pixels."""
    channels: Literal[1, 3] = 3
    """3: RGB, 1: grey; every image is converted."""
    resize: Literal["short_side", "square", "none"] = "short_side"
    """short_side: the short side becomes `size`, and the whole image is kept. square: the same, but
    only the central square is kept. none: as in the file."""
    on_broken: Literal["error", "skip"] = "error"
    """How unreadable images are handled. error: an error names the image. skip: they are left out
    and counted."""


class ImageFolderData(FilesData):
    """A folder, or a .zip file, with one sub-folder of images per class."""

    name: DataName
    reader: Literal["image_folder"]
    size: _Side = 64


class CsvData(FilesData):
    """A CSV file with the columns path, label and, optionally, split."""

    name: DataName
    reader: Literal["csv"]
    path: DataPath
    """A CSV file with the columns path, label and split."""


class OmniglotData(FilesData):
    """Omniglot: 964 background characters, and 659 to evaluate on."""

    name: DataName = "omniglot"
    reader: Literal["omniglot"]
    size: _Side = 28
    channels: Literal[1, 3] = 1
    download: Download = False
    check_counts: CheckCounts = True


class CUB200Data(FilesData):
    """CUB-200-2011: the folder CUB_200_2011 as it is in its archive."""

    name: DataName = "cub200"
    reader: Literal["cub200"]
    download: Download = False
    check_counts: CheckCounts = True


class Cars196Data(FilesData):
    """Cars196: car_ims with cars_annos.mat, cars_train and cars_test with devkit, or car_data."""

    name: DataName = "cars196"
    reader: Literal["cars196"]
    check_counts: CheckCounts = True


class OnlineProductsData(FilesData):
    """Stanford Online Products: the folder Stanford_Online_Products as it is in its archive."""

    name: DataName = "stanford_online_products"
    reader: Literal["stanford_online_products"]
    download: Download = False
    check_counts: CheckCounts = True


class InShopData(FilesData):
    """In-Shop Clothes Retrieval: Img/img and Eval/list_eval_partition.txt."""

    name: DataName = "in_shop"
    reader: Literal["in_shop"]
    check_counts: CheckCounts = True


class TensorsData(Strict):
    """Images, vectors or other tensors: .npz, .npy, .safetensors, .parquet, or a folder.

    The keys are explained in :func:`reality_check.data.read_tensors`.
    """

    name: DataName
    reader: Annotated[Literal["tensors", "npz"], AfterValidator(lambda _: "tensors")]
    path: DataPath
    """The .npz, .npy, .safetensors or .parquet file, or the folder of embed or save_to_disk."""
    x: str | None = None
    """Name of the array of samples; null finds x, X, features, embeddings, vectors, images or
    data."""
    y: str | None = None
    """Name of the array of labels; null finds y, labels, label, targets or target."""
    names: str | None = None
    """Name of the array of the samples' names, if there is one."""
    class_names: str | None = None
    """Name of the array of class names, by integer label, if there is one."""
    where: dict[str, int | list[int]] | None = None
    """Rows to keep, as {array: values}: those in which each array has one of its values."""
    test: dict[str, int | list[int]] | None = None
    """Rows of the official test set, in the form of `where`; the others are for training."""


class TorchDatasetData(Strict):
    """Any torch.utils.data.Dataset: by import path, or one of torchvision or PML by name.

    The keys are explained in :func:`reality_check.data.read_torch_dataset`.
    """

    name: DataName
    reader: Literal["torch_dataset"]
    dataset: str
    """Import path, such as my_data.Birds, or torchvision:NAME or pml:NAME."""
    arguments: Annotated[Fixed, MayDiffer("runs", ("root", "path"))] = Field(default_factory=dict)
    """Keyword arguments of its constructor; ~ and ${VARIABLE} in root and path are expanded."""
    size: _Side | None = None
    """Side of the squares that images are resized to, in pixels; null: they have one size
    already."""


class FunctionData(Strict):
    """Samples that a function returns, given by import path or by the name that a plugin adds.

    It is called with ``arguments`` and returns a :class:`reality_check.data.ImageSet` or a
    :class:`reality_check.data.TensorSet`.
    """

    name: DataName
    reader: Literal["function"]
    function: str
    """Import path, such as my_data.read, or a name that an installed package adds."""
    arguments: Annotated[Fixed, MayDiffer("runs", ("path",))] = Field(default_factory=dict)
    """Keyword arguments of the function."""


_TORCHVISION = {"mnist": "MNIST", "fashion_mnist": "FashionMNIST"}


def _from_earlier_versions(values: Any) -> Any:
    """Convert an MNIST data set of an earlier version, which had a reader of its own."""
    if not isinstance(values, Mapping) or values.get("reader") not in _TORCHVISION:
        return values
    return {
        "name": values.get("name"),
        "reader": "torch_dataset",
        "dataset": f"torchvision:{_TORCHVISION[values['reader']]}",
        "arguments": {"root": values.get("path")},
    }


Dataset = Annotated[
    GlyphsData
    | ImageFolderData
    | CsvData
    | OmniglotData
    | CUB200Data
    | Cars196Data
    | OnlineProductsData
    | InShopData
    | TensorsData
    | TorchDatasetData
    | FunctionData,
    Field(discriminator="reader"),
    BeforeValidator(_from_earlier_versions),
]


class NamedDataset(Strict):
    """A data set alone, outside an experiment."""

    dataset: Dataset
