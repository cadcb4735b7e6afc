"""The bytes of one image file to one uint8 array."""

from __future__ import annotations

import io
from typing import Literal

import numpy as np
from PIL import Image

Resize = Literal["short_side", "square", "none"]

_MAX_RATIO = 100


def decode_image(
    data: bytes, size: int, channels: int, resize: Resize = "short_side"
) -> np.ndarray:
    """Decode an image of any mode and resize it.

    Transparent parts become white, 16-bit images are scaled to 8 bits. The orientation that a
    camera stores beside the pixels is ignored, as the field's readers do.

    Args:
        size: short side of the result in pixels.
        channels: 1 (grey) or 3 (RGB); every image is converted.
        resize: ``"short_side"`` resizes the short side to ``size`` and keeps the whole image,
            ``"square"`` then cuts out the centre, ``"none"`` keeps the size of the file.

    Returns:
        uint8, shape (height, width, channels).
    """
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        plain = _to_mode(image, "L" if channels == 1 else "RGB")
    target = resized_size(plain.width, plain.height, size, resize)
    if resize != "none":
        # Not JPEG's faster reduction while decoding (draft): it gives other pixels.
        whole = resized_size(plain.width, plain.height, size, "short_side")
        plain = plain.resize(whole, Image.Resampling.BILINEAR)
        left, top = (round((have - want) / 2) for have, want in zip(whole, target, strict=True))
        plain = plain.crop((left, top, left + target[0], top + target[1]))
    return np.asarray(plain).reshape(target[1], target[0], channels)


def resized_size(width: int, height: int, size: int, resize: Resize) -> tuple[int, int]:
    """Return width and height after resizing; the long side is rounded down as in torchvision.

    Raises:
        ValueError: the sides differ so much that the image is no photograph (a damaged header, say)
            and would take all memory.
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


def image_size(data: bytes) -> tuple[int, int]:
    """Return width and height from the header of an image file."""
    with Image.open(io.BytesIO(data)) as image:
        return image.size


def _to_mode(image: Image.Image, mode: str) -> Image.Image:
    if image.mode.startswith("I"):
        image = _from_16_bit(image)
    if image.mode == "F":
        raise ValueError("its pixels are floats without a known range; save it with 8 bits")
    if image.mode in ("LA", "PA", "RGBA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        paper = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(paper, image).convert("RGB")
    return image if image.mode == mode else image.convert(mode)


def _from_16_bit(image: Image.Image) -> Image.Image:
    pixels = np.asarray(image).astype(np.int64)
    # A PNG of mode I has 16 bits; in a TIFF it has 32, and then their range is anyone's guess.
    unclear = image.mode == "I" and image.format == "TIFF" and pixels.max() <= 255
    if pixels.min() < 0 or pixels.max() > 65535 or unclear:
        raise ValueError("its pixels have 32 bits; save it with 8 bits")
    return Image.fromarray(((pixels + 128) // 257).astype(np.uint8))
