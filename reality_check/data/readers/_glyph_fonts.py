"""Draw characters with the fonts that ship inside matplotlib."""

from __future__ import annotations

import functools
import string
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.ft2font import FT2Font
from PIL import ImageFont

#: The text faces: each has upright or slanted letters of several scripts.
TEXT_FACES = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-Oblique",
    "DejaVuSans-BoldOblique",
    "DejaVuSansMono",
    "DejaVuSansMono-Bold",
    "DejaVuSansMono-Oblique",
    "DejaVuSansMono-BoldOblique",
    "DejaVuSerif",
    "DejaVuSerif-Bold",
    "DejaVuSerif-Italic",
    "DejaVuSerif-BoldItalic",
    "STIXGeneral",
    "STIXGeneralBol",
    "STIXGeneralItalic",
    "STIXGeneralBolIta",
)

#: The TeX faces in all supported versions of matplotlib. Only their letters and digits are at the
#: code points of Unicode.
_TEX_FACES = ("cmb10", "cmr10", "cmss10", "cmtt10")
_TEX_CHARACTERS = frozenset(map(ord, string.ascii_letters + string.digits))

_UNMAPPED = "\U0010fffe"  # in no font, so it is drawn as the font's box for missing characters


def font_folder() -> Path:
    """Return the folder of matplotlib's TrueType files."""
    return Path(matplotlib.get_data_path()) / "fonts" / "ttf"


@functools.cache
def characters(face: str) -> frozenset[int]:
    """Return the code points that ``face`` maps to a glyph."""
    mapped = frozenset(FT2Font(str(font_folder() / f"{face}.ttf")).get_charmap())
    return mapped & _TEX_CHARACTERS if face in _TEX_FACES else mapped


def faces_of(code: int) -> list[str]:
    """Return all faces that have the character, in a fixed order."""
    return [face for face in (*TEXT_FACES, *_TEX_FACES) if code in characters(face)]


def draw(code: int, face: str, pixels: int) -> np.ndarray | None:
    """Draw one character at ``pixels`` per em.

    Returns:
        Coverage, uint8 (0 is paper, 255 is ink), cut to the bounding box of the ink; None if the
        face draws nothing, or its box for missing characters.
    """
    shape = _draw_mask(_font(face, pixels), chr(code))
    missing = _missing_box(face, pixels)
    if shape is None or (missing is not None and np.array_equal(shape, missing)):
        return None
    return shape


@functools.lru_cache(maxsize=64)
def _font(face: str, pixels: int) -> ImageFont.FreeTypeFont:
    path = str(font_folder() / f"{face}.ttf")
    return ImageFont.truetype(path, pixels, layout_engine=ImageFont.Layout.BASIC)


@functools.lru_cache(maxsize=64)
def _missing_box(face: str, pixels: int) -> np.ndarray | None:
    """Return the drawing that a face has for missing characters; None if that is empty."""
    return _draw_mask(_font(face, pixels), _UNMAPPED)


def _draw_mask(font: ImageFont.FreeTypeFont, text: str) -> np.ndarray | None:
    """Draw a text, cut to the bounding box of its ink; return None if it has no ink."""
    mask = font.getmask(text, mode="L")
    box = mask.getbbox()
    if box is None:
        return None
    width, height = mask.size
    left, top, right, bottom = box
    return np.array(mask, dtype=np.uint8).reshape(height, width)[top:bottom, left:right]
