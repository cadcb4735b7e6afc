"""The embedded data set: characters of many scripts, drawn from the fonts inside matplotlib.

It needs no download and is made in seconds. A class is a character that stands in at least 12
faces and looks like no other class; its images run through all its faces, each bent, sheared,
thickened, blurred and printed with noise of its own. The order of the classes is fixed and mixes
the scripts, so that the first half (trainval), the second half (test) and all folds hold all of
them; fewer classes are a prefix of more.
"""

from __future__ import annotations

import hashlib
import io
import json
import warnings
import zipfile
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from PIL import features

from reality_check.data.images import Images
from reality_check.data.readers._glyph_characters import class_characters
from reality_check.data.readers._glyph_images import draw_class
from reality_check.data.sample_set import ImageSet
from reality_check.utils.errors import UsageError
from reality_check.utils.files import atomic_write
from reality_check.utils.paths import cache_folder

#: Part of every cached file's name and of the data set's: it changes when the images change.
GENERATOR_VERSION = 1

_LIMITS = {"images_per_class": (2, 10_000), "size": (8, 256), "seed": (0, 2**63 - 1)}


def read(config: Any) -> ImageSet:
    """Draw the data set that a YAML describes."""
    return make_glyphs(config.classes, config.images_per_class, config.size, config.seed)


def make_glyphs(
    classes: int = 240, images_per_class: int = 24, size: int = 32, seed: int = 0
) -> ImageSet:
    """Draw the embedded data set, or read it from the cache folder.

    The same arguments give the same bytes on every machine with the same matplotlib (the fonts)
    and FreeType (the rasteriser inside Pillow). A cached file that is damaged, or made by other
    versions, is made again.

    Args:
        classes: number of characters; class names are like ``"007_U+0416"``.
        images_per_class: number of images of each.
        size: side of the images in pixels.
        seed: seed of the images; the characters do not depend on it.

    Returns:
        Images of shape (classes * images_per_class, size, size, 1), dark on light, sorted by class.

    Raises:
        UsageError: if an argument is out of range.
    """
    given = {"images_per_class": images_per_class, "size": size, "seed": seed}
    for name, (low, high) in _LIMITS.items():
        _check(name, given[name], low, high)
    _check("classes", classes, 2, len(class_characters()))
    codes = class_characters()[:classes]
    path = cache_folder() / f"glyphs-{_key(codes, images_per_class, size, seed)}.npz"
    shape = (classes * images_per_class, size, size, 1)
    images = _read(path, shape)
    if images is None:
        images = _draw(codes, images_per_class, size, seed)
        _write(path, images)
    names = tuple(f"{rank:03d}_U+{code:04X}" for rank, code in enumerate(codes))
    labels = np.repeat(np.arange(classes, dtype=np.int64), images_per_class)
    return ImageSet(Images.from_array(images), labels, names, "glyphs")


def _check(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise UsageError(
            f"{name}={value}, but glyphs are made for {low}..{high}; write {name}: "
            f"{min(max(value, low), high)}."
        )


def _draw(codes: tuple[int, ...], images_per_class: int, size: int, seed: int) -> np.ndarray:
    drawn = [draw_class(code, images_per_class, size, seed) for code in codes]
    return np.concatenate(drawn)[..., None]


def _key(codes: tuple[int, ...], images_per_class: int, size: int, seed: int) -> str:
    made_by = [GENERATOR_VERSION, matplotlib.__version__, features.version("freetype2")]
    recipe = json.dumps([*made_by, list(codes), images_per_class, size, seed])
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    return f"{len(codes)}x{images_per_class}-{size}px-seed{seed}-{digest}"


def _read(path: Path, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return the cached images, or None where there are none or they are damaged."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            images, checksum = arrays["images"], str(arrays["sha256"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    intact = images.dtype == np.uint8 and images.shape == shape and _sha256(images) == checksum
    return images if intact else None


def _write(path: Path, images: np.ndarray) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, images=images, sha256=np.array(_sha256(images)))
    try:
        atomic_write(path, buffer.getvalue(), durable=False)
    except OSError as error:
        warnings.warn(
            f"The glyphs are not cached ({error}); set REALITY_CHECK_CACHE.", stacklevel=3
        )


def _sha256(images: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(images).data).hexdigest()
