"""The embedded data set: characters of many scripts, drawn from the fonts inside matplotlib.

It needs no download and is drawn in seconds. A class is a character that is in at least 12 faces
and looks like no other class. Its images alternate between all its faces, each image bent, sheared,
thickened, blurred and printed with its own noise. The order of the classes is fixed and mixes the
scripts, so that the first half (trainval), the second half (test) and all folds contain all of
them; with fewer classes, the first ones are taken.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from typing import Any

import matplotlib
import numpy as np
from PIL import features

from reality_check.data.cache._entry import obtain_entry
from reality_check.data.images import Images
from reality_check.data.readers._glyph_characters import CHARACTERS
from reality_check.data.readers._glyph_images import draw_class
from reality_check.data.sample_set import ImageSet
from reality_check.utils.errors import UsageError
from reality_check.utils.paths import cache_folder

#: Part of the cached folder's name; it changes when the images change.
GENERATOR_VERSION = 1
#: Smallest and largest value of each argument.
_LIMITS = {
    "classes": (2, len(CHARACTERS)),
    "images_per_class": (2, 10_000),
    "size": (8, 256),
    "seed": (0, 2**63 - 1),
}


def read(config: Any) -> ImageSet:
    """Draw the data set that a YAML describes."""
    return make_glyphs(config.classes, config.images_per_class, config.size, config.seed)


def make_glyphs(
    classes: int = 240, images_per_class: int = 24, size: int = 32, seed: int = 0
) -> ImageSet:
    """Draw the embedded data set, or read it from the cache folder.

    The same arguments give the same bytes on every machine with the same matplotlib (the fonts)
    and FreeType (the rasteriser inside Pillow). If the cached images are damaged, or were drawn by
    other versions, they are drawn again.

    Args:
        classes: number of characters, at most 282; class names are like ``"007_U+0416"``.
        images_per_class: number of images of each character.
        size: side of the images in pixels.
        seed: seed of the images; the characters do not depend on it.

    Returns:
        Images of shape (classes * images_per_class, size, size, 1), dark on light, sorted by class.

    Raises:
        UsageError: an argument is out of range.
    """
    values = (classes, images_per_class, size, seed)
    for (name, (low, high)), value in zip(_LIMITS.items(), values, strict=True):
        if not low <= value <= high:
            raise UsageError(
                f"{name}={value}, but glyphs are made for {low}..{high}; write {name}: "
                f"{min(max(value, low), high)}."
            )
    codes = CHARACTERS[:classes]
    folder = cache_folder() / f"glyphs-{_cache_key(codes, images_per_class, size, seed)}"

    def draw(rank: int) -> np.ndarray:  # all images of a class, stacked vertically
        return draw_class(codes[rank], images_per_class, size, seed).reshape(-1, size, 1)

    try:
        entry = obtain_entry(folder, "glyphs", classes, draw, verify=True)
        columns = entry.images().array().copy()
    except UsageError as error:
        warnings.warn(f"The glyphs are not cached: {error}", stacklevel=2)
        columns = np.stack([draw(rank) for rank in range(classes)])
    names = tuple(f"{rank:03d}_U+{code:04X}" for rank, code in enumerate(codes))
    labels = np.repeat(np.arange(classes, dtype=np.int64), images_per_class)
    images = Images.from_array(columns.reshape(-1, size, size, 1))
    return ImageSet(images, labels, names, "glyphs")


def _cache_key(codes: tuple[int, ...], images_per_class: int, size: int, seed: int) -> str:
    """Return a key that changes if any pixel may change."""
    made_by = [GENERATOR_VERSION, matplotlib.__version__, features.version("freetype2")]
    recipe = json.dumps([*made_by, list(codes), images_per_class, size, seed])
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    return f"{len(codes)}x{images_per_class}-{size}px-seed{seed}-{digest}"
