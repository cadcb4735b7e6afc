"""One image file to one square uint8 array."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageOps


def decode_image(path: Path, size: int, channels: int) -> np.ndarray:
    """Decode an image of any mode, resize its short side (bilinear) and cut out the centre.

    Transparent parts become white, 16-bit images are scaled to 8 bits.

    Args:
        path: the file.
        size: side of the result in pixels.
        channels: 1 (grey) or 3 (RGB).

    Returns:
        uint8, shape (size, size, channels).

    Raises:
        OSError, ValueError, SyntaxError: as Pillow raises them for files that it cannot decode.
    """
    with Image.open(path) as image:
        image.load()
        plain = _to_mode(image, "L" if channels == 1 else "RGB")
    square = ImageOps.fit(plain, (size, size), Image.Resampling.BILINEAR)
    return np.asarray(square).reshape(size, size, channels)


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
    if pixels.min() < 0 or pixels.max() > 65535:
        raise ValueError("its pixels have 32 bits; save it with 8 bits")
    return Image.fromarray(((pixels + 128) // 257).astype(np.uint8))
