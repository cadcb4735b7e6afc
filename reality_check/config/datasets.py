"""What a data set's YAML may say: one class per reader."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from reality_check.config.types import DataPath, Download, MayDiffer, Name
from reality_check.config.values import Strict


class GlyphsData(Strict):
    """The embedded data set: distorted characters of the fonts inside matplotlib."""

    name: Name = "glyphs"
    reader: Literal["glyphs"]
    classes: Annotated[int, Field(ge=8, le=400)] = 240
    images_per_class: Annotated[int, Field(ge=2, le=1000)] = 24
    size: Annotated[int, Field(ge=16, le=128)] = 32
    seed: int = 0


class FilesData(Strict):
    """What all data sets of image files have in common: how the files are decoded."""

    path: DataPath
    size: Annotated[int, Field(ge=8, le=1024)] = 256
    channels: Literal[1, 3] = 3
    resize: Literal["short_side", "square", "none"] = "short_side"
    on_broken: Literal["error", "skip"] = "error"


class ImageFolderData(FilesData):
    """A folder, or a .zip file, with one sub-folder of images per class."""

    name: Name
    reader: Literal["image_folder"]
    size: Annotated[int, Field(ge=8, le=1024)] = 64


class CsvData(FilesData):
    """A CSV file with the columns path, label and, if wanted, split."""

    name: Name
    reader: Literal["csv"]


class OmniglotData(FilesData):
    """Omniglot: 964 background characters, and 659 to evaluate on."""

    name: Name = "omniglot"
    reader: Literal["omniglot"]
    size: Annotated[int, Field(ge=8, le=1024)] = 28
    channels: Literal[1, 3] = 1
    download: Download = False
    check_counts: bool = True


class MnistData(Strict):
    """MNIST or Fashion-MNIST from their idx files: 10 classes, 28 x 28."""

    name: Name
    reader: Literal["mnist", "fashion_mnist"]
    path: DataPath
    download: Download = False
    check_counts: bool = True


class CUB200Data(FilesData):
    """CUB-200-2011: the folder CUB_200_2011 as it is in its archive."""

    name: Name = "cub200"
    reader: Literal["cub200"]
    download: Download = False
    check_counts: bool = True


class Cars196Data(FilesData):
    """Cars196: car_ims with cars_annos.mat, cars_train and cars_test with devkit, or car_data."""

    name: Name = "cars196"
    reader: Literal["cars196"]
    check_counts: bool = True


class OnlineProductsData(FilesData):
    """Stanford Online Products: the folder Stanford_Online_Products as it is in its archive."""

    name: Name = "stanford_online_products"
    reader: Literal["stanford_online_products"]
    download: Download = False
    check_counts: bool = True


class InShopData(FilesData):
    """In-Shop Clothes Retrieval: Img/img and Eval/list_eval_partition.txt."""

    name: Name = "in_shop"
    reader: Literal["in_shop"]
    check_counts: bool = True


class NpzData(Strict):
    """One .npz file: images uint8 (N, H, W[, C]), integer labels (N,), class_names."""

    name: Name
    reader: Literal["npz"]
    path: DataPath
    images: str = "images"
    labels: str = "labels"
    class_names: str = "class_names"
    where: dict[str, int | list[int]] | None = None
    test: dict[str, int | list[int]] | None = None


class TensorsData(Strict):
    """Vectors or other tensors from one file: .npz, .npy, .safetensors, .parquet, or a folder.

    What each key means: :func:`reality_check.data.read_tensors`.
    """

    name: Name
    reader: Literal["tensors"]
    path: DataPath
    x: str | None = None
    y: str | None = None
    names: str | None = None
    class_names: str | None = None


class TorchDatasetData(Strict):
    """Any torch.utils.data.Dataset: by import path, or one of torchvision or PML by name.

    What each key means: :func:`reality_check.data.read_torch_dataset`.
    """

    name: Name
    reader: Literal["torch_dataset"]
    dataset: str
    arguments: Annotated[dict[str, Any], MayDiffer("runs", ("root", "path"))] = Field(
        default_factory=dict
    )
    size: Annotated[int, Field(ge=8, le=1024)] | None = None


class FunctionData(Strict):
    """Samples that a function returns: one of the user's, by import path, or of a plugin, by name.

    It is called with ``arguments`` and returns a :class:`reality_check.data.ImageSet` or a
    :class:`reality_check.data.TensorSet`.
    """

    name: Name
    reader: Literal["function"]
    function: str
    arguments: Annotated[dict[str, Any], MayDiffer("runs", ("path",))] = Field(default_factory=dict)


Dataset = Annotated[
    GlyphsData
    | ImageFolderData
    | CsvData
    | OmniglotData
    | MnistData
    | NpzData
    | CUB200Data
    | Cars196Data
    | OnlineProductsData
    | InShopData
    | TensorsData
    | TorchDatasetData
    | FunctionData,
    Field(discriminator="reader"),
]


class NamedDataset(Strict):
    """A data set alone, outside an experiment."""

    dataset: Dataset
