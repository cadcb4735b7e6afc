"""The images that figures train on: real ones, or made-up ones for a quick look."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from reality_check import UsageError
from reality_check.data import ImageSet, make_glyphs, read_tensors

#: Images of MNIST and Fashion-MNIST that train; the rest are test images.
TRAINING_IMAGES = 60_000
#: Kinds of glyphs, and images of each, that stand in for the digits in a quick look.
GLYPH_CLASSES, GLYPHS_PER_CLASS = 10, 30


@dataclass(frozen=True)
class Images:
    """Grey images with labels, as tensors.

    Args:
        name: how captions call them.
        pixels: uint8, shape (N, H, W), ink bright on dark.
        labels: int64, shape (N,), 0..C-1.
    """

    name: str
    pixels: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        return int(self.labels.max()) + 1

    def batch(self, rows: Tensor | slice, device: torch.device) -> Tensor:
        """Return images as a network takes them: float32, shape (B, 1, H, W), 0..1."""
        return self.pixels[rows].to(device).unsqueeze(1).float() / 255

    def first(self, count: int) -> Images:
        """Return the first images, all if there are fewer."""
        return Images(self.name, self.pixels[:count], self.labels[:count])


def ten_classes(quick: bool, fashion: bool) -> tuple[Images, Images]:
    """Return the training and the test images of ten classes, both shuffled once for all.

    Args:
        quick: glyphs instead, which need no files.
        fashion: prefer Fashion-MNIST where ``REALITY_CHECK_DATA`` has it.

    Raises:
        UsageError: neither is there.
    """
    if quick:
        glyphs = make_glyphs(GLYPH_CLASSES, GLYPHS_PER_CLASS, 28)
        # The characters of one class follow each other, so every third is a fair test.
        test = np.arange(len(glyphs)) % 3 == 0
        return tuple(_shuffled("glyphs (made up)", glyphs, rows) for rows in (~test, test))  # type: ignore[return-value]
    folder = data_folder()
    name = "fashion_mnist" if fashion and (folder / "fashion_mnist").is_dir() else "mnist"
    digits = _read(folder / name / f"{name}_28.npz")
    train = np.arange(len(digits)) < TRAINING_IMAGES
    title = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}[name]
    return _shuffled(title, digits, train), _shuffled(title, digits, ~train)


def many_classes(quick: bool) -> tuple[Images, Images]:
    """Return training and test images of Omniglot, whose classes differ, as its authors split them.

    Args:
        quick: glyphs instead, which need no files.

    Raises:
        UsageError: they are not there.
    """
    if quick:
        glyphs = make_glyphs(48, 8, 28)
        return tuple(  # type: ignore[return-value]
            _tensors("glyphs (made up)", glyphs.subset(range(first, first + 24)), slice(None))
            for first in (0, 24)
        )
    file = data_folder() / "omniglot" / "omniglot_28.npz"
    return tuple(  # type: ignore[return-value]
        _tensors("Omniglot", _read(file, {"split": part}), slice(None)) for part in (0, 1)
    )


def data_folder() -> Path:
    """Return the folder that ``REALITY_CHECK_DATA`` names.

    Raises:
        UsageError: it names none.
    """
    folder = os.environ.get("REALITY_CHECK_DATA")
    if not folder:
        raise UsageError(
            "this figure trains on real images, but REALITY_CHECK_DATA is not set; set it to a "
            "folder with mnist/ and omniglot/ (see docs/paper_figures.md), or write --quick for a "
            "look with made-up images."
        )
    return Path(folder)


def _read(file: Path, where: dict[str, int] | None = None) -> ImageSet:
    images = read_tensors(file, where=where)
    assert isinstance(images, ImageSet)
    return images


def _shuffled(name: str, images: ImageSet, rows: np.ndarray) -> Images:
    """Some images in a random order that is always the same, so that any first part is fair."""
    chosen = np.random.default_rng(0).permutation(np.flatnonzero(rows))
    return _tensors(name, images, chosen)


def _tensors(name: str, images: ImageSet, rows: np.ndarray | slice) -> Images:
    pixels = images.images[rows].array()[..., 0]
    # Omniglot and the glyphs are dark on light, the digits light on dark.
    bright = pixels if pixels.mean() < 128 else 255 - pixels
    labels = torch.from_numpy(images.labels[rows])
    return Images(name, torch.from_numpy(np.ascontiguousarray(bright)), labels)
