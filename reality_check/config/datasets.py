"""What a data set's YAML may say: one class per reader."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from reality_check.config.types import Name
from reality_check.config.values import Strict


class GlyphsData(Strict):
    """The embedded data set: distorted characters of the fonts inside matplotlib."""

    name: Name = "glyphs"
    reader: Literal["glyphs"]
    classes: Annotated[int, Field(ge=8, le=400)] = 240
    images_per_class: Annotated[int, Field(ge=2, le=1000)] = 24
    size: Annotated[int, Field(ge=16, le=128)] = 32
    seed: int = 0


class ImageFolderData(Strict):
    """A folder with one sub-folder of images per class."""

    name: Name
    reader: Literal["image_folder"]
    path: str
    size: Annotated[int, Field(ge=8, le=1024)] = 64
    channels: Literal[1, 3] = 3
    on_broken: Literal["error", "skip"] = "error"


class NpzData(Strict):
    """One .npz file: images uint8 (N, H, W[, C]), integer labels (N,), class_names."""

    name: Name
    reader: Literal["npz"]
    path: str
    images: str = "images"
    labels: str = "labels"
    class_names: str = "class_names"
    where: dict[str, int | list[int]] | None = None


Dataset = Annotated[GlyphsData | ImageFolderData | NpzData, Field(discriminator="reader")]
