"""Decode the bytes of an image file to a uint8 array."""

from __future__ import annotations

import io
import warnings
from typing import Literal

import numpy as np
from PIL import Image

Resize = Literal["short_side", "square", "none"]

_MAX_RATIO = 100
#: Pillow does not decode these without help: EPS runs Ghostscript, the others need a handler.
_NOT_DECODED = {"BUFR", "EPS", "GRIB", "HDF5", "IPTC", "MPEG", "WMF"}


def image_formats() -> tuple[str, ...]:
    """Return the image formats that Pillow and the plugins registered with it decode."""
    Image.preinit()  # registers the frequent formats first, so that they are tried first
    Image.init()
    return tuple(name for name in Image.ID if name not in _NOT_DECODED)


def image_endings() -> frozenset[str]:
    """Return the file endings of :func:`image_formats`, such as ``".png"``."""
    formats = (*image_formats(), "MPO")  # Pillow opens MPO files as JPEG
    return frozenset(
        ending for ending, name in Image.registered_extensions().items() if name in formats
    )


def decode_image(
    data: bytes, size: int, channels: int, resize: Resize = "short_side"
) -> np.ndarray:
    """Decode an image of any mode and resize it.

    Transparent parts become white, 16-bit images are scaled to 8 bits, and only the first of
    several frames is decoded. The orientation that a camera stores beside the pixels is ignored,
    as in other code for metric learning.

    Args:
        data: content of the image file.
        size: short side of the result in pixels.
        channels: 1 (grey) or 3 (RGB); every image is converted.
        resize: ``"short_side"`` resizes the short side to ``size`` and keeps the whole image,
            ``"square"`` then crops the centre, ``"none"`` keeps the size of the file.

    Returns:
        uint8, shape (height, width, channels).
    """
    with Image.open(io.BytesIO(data), formats=image_formats()) as image:
        # In an MPO file, the further images are previews of the same photo.
        if getattr(image, "is_animated", False) and image.format != "MPO":
            warnings.warn("Of animations and stacks of images, the first is read.", stacklevel=2)
        image.load()
        converted = _to_mode(image, "L" if channels == 1 else "RGB")
    target = resized_size(converted.width, converted.height, size, resize)
    if resize != "none":
        # JPEG's faster reduction while decoding (draft) gives other pixels, so it is not used.
        full_size = resized_size(converted.width, converted.height, size, "short_side")
        converted = converted.resize(full_size, Image.Resampling.BILINEAR)
        left, top = (  # 0 for "short_side", which crops nothing
            round((full - cropped) / 2) for full, cropped in zip(full_size, target, strict=True)
        )
        converted = converted.crop((left, top, left + target[0], top + target[1]))
    return np.asarray(converted).reshape(target[1], target[0], channels)


def resized_size(width: int, height: int, size: int, resize: Resize) -> tuple[int, int]:
    """Return width and height after resizing; the long side is rounded down as in torchvision.

    Raises:
        ValueError: if one side is more than a hundred times the other, as in a damaged file, so
            that the resized image could take all memory.
    """
    if resize == "none":
        return width, height
    if max(width, height) > _MAX_RATIO * min(width, height):
        raise ValueError(f"its {width} x {height} pixels are too long to be resized; cut it")
    if resize == "square":
        return size, size
    if width <= height:
        return size, int(size * height / width)
    return int(size * width / height), size


def _to_mode(image: Image.Image, mode: str) -> Image.Image:
    """Convert an image to the mode ``"L"`` or ``"RGB"``; transparent parts become white."""
    if image.mode[0] in "FI":  # F, I and I;16 have more than 8 bits
        image = _from_16_bit(image)
    if image.mode in ("LA", "PA", "RGBA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        background = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(background, image).convert("RGB")
    return image if image.mode == mode else image.convert(mode)


def _from_16_bit(image: Image.Image) -> Image.Image:
    """Convert 16-bit pixels to 8 bits; raise ValueError if they are floats or have 32 bits."""
    pixels = np.asarray(image)
    low, high = pixels.min(), pixels.max()
    # Mode I means 16 bits in a PNG, but 32 in a TIFF, where small values have an unknown range.
    unclear = image.mode == "I" and image.format == "TIFF" and high <= 255
    if image.mode == "F" or low < 0 or high > 65535 or unclear:
        raise ValueError(
            f"its pixels are {'floats' if image.mode == 'F' else 'of 32 bits'}, from {low:g} to "
            f"{high:g}; scale them to 0..255 and save it with 8 bits"
        )
    # Rounded; 65535 becomes 255.
    return Image.fromarray(((pixels.astype(np.int64) + 128) // 257).astype(np.uint8))
