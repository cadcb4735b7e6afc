"""Select the characters that are the classes of the embedded glyphs, and order them.

Run ``python benchmarks/glyph_characters.py``. It prints the table of
``reality_check/data/readers/_glyph_characters.py``. Another table is another data set, so that it
stays as it is when fonts or thresholds change.

A class is a character that stands in at least 12 faces and looks like no other class. Look-alikes
are recognised by comparing drawn shapes: Latin A, Greek Alpha and Cyrillic A are one shape, so are
o and O once their size is gone.
"""

from __future__ import annotations

import hashlib
import math
import textwrap
import unicodedata
from collections import Counter, defaultdict

import numpy as np
from PIL import Image, ImageFilter

from reality_check.data.readers._glyph_fonts import TEXT_FACES, characters, draw

_MIN_FACES = 12
_GRID = 24  # side in pixels of the shapes that are compared
_DRAWN = 48  # pixels per em they are drawn with
_SAME_SHAPE = 0.80  # correlation from which on two shapes count as the same
_MAX_ASPECT = 4  # strokes longer than this are dashes and bars, which differ in length only
_COMPARED_FACES = (
    "DejaVuSans",
    "DejaVuSansMono",
    "DejaVuSerif",
    "DejaVuSerif-Italic",
    "STIXGeneral",
    "STIXGeneralItalic",
)

# Brackets in pieces, box drawing and blocks: they differ in position and length, which vary here.
_LEFT_OUT = (range(0x2320, 0x2322), range(0x239B, 0x23B0), range(0x2500, 0x2600))


def class_characters() -> tuple[int, ...]:
    """Return the code points that may be classes, in the order in which classes are taken.

    Within a script the order is that of a hash, and scripts are interleaved in proportion to their
    numbers, so that every stretch of the order (each half, each fold) holds all scripts.
    """
    by_script: dict[str, list[int]] = defaultdict(list)
    for code in _distinct(_candidates()):
        by_script[_script(code)].append(code)
    position: dict[int, tuple[float, str]] = {}
    for script, codes in by_script.items():
        for rank, code in enumerate(sorted(codes, key=_hash)):
            position[code] = ((rank + 0.5) / len(codes), script)
    return tuple(sorted(position, key=position.__getitem__))


def _candidates() -> list[int]:
    """Return letters, then digits, then symbols: of two look-alikes the earlier one is kept."""
    faces = Counter(code for face in TEXT_FACES for code in characters(face))
    codes = [code for code, count in faces.items() if count >= _MIN_FACES and _is_basic(code)]
    return sorted(codes, key=lambda code: (unicodedata.category(chr(code))[0], code))


def _is_basic(code: int) -> bool:
    """Whether the character is a letter, digit or symbol of its own, not a base with an accent."""
    character = chr(code)
    category = unicodedata.category(character)
    if category[0] not in "LNSP" or category in ("Lm", "Sk"):
        return False
    if unicodedata.decomposition(character) or any(code in block for block in _LEFT_OUT):
        return False
    return not (category[0] == "L" and " WITH " in unicodedata.name(character, ""))


def _script(code: int) -> str:
    category = unicodedata.category(chr(code))
    return unicodedata.name(chr(code)).split()[0] if category[0] == "L" else category[0]


def _hash(code: int) -> str:
    return hashlib.sha256(f"glyph {code}".encode()).hexdigest()


def _distinct(codes: list[int]) -> list[int]:
    """Keep each character that resembles none of those kept before it, in any compared face."""
    shapes = {code: _shapes(code) for code in codes}
    codes = [code for code in codes if shapes[code] is not None]
    resemblance = _resemblance(np.array([shapes[code] for code in codes]))
    kept: list[int] = []
    for row in range(len(codes)):
        if resemblance[row, kept].max(initial=-1.0) < _SAME_SHAPE:
            kept.append(row)
    return [codes[row] for row in kept]


def _resemblance(shapes: np.ndarray) -> np.ndarray:
    """Return the largest correlation over faces: (K, F, P) integers to (K, K) values <= 1.

    The sums are of integers below 2**53, so they are exact in any order of summation.
    """
    most = np.full((len(shapes), len(shapes)), -1.0)
    for face in range(shapes.shape[1]):
        rows = shapes[:, face].astype(np.float64)
        present = rows.max(axis=1) > 0
        sums, pixels = rows.sum(axis=1), rows.shape[1]
        covariance = pixels * (rows @ rows.T) - np.outer(sums, sums)
        spread = np.sqrt(np.maximum(np.diag(covariance), 1.0))
        correlation = covariance / spread[:, None] / spread[None, :]
        most = np.maximum(most, np.where(present[:, None] & present[None, :], correlation, -1.0))
    return most


def _shapes(code: int) -> np.ndarray | None:
    """Return (F, P) shapes in the compared faces, zero where a face lacks the character.

    None if no face has it or it is a mere stroke.
    """
    shapes = np.zeros((len(_COMPARED_FACES), _GRID * _GRID), dtype=np.uint8)
    for row, face in enumerate(_COMPARED_FACES):
        ink = draw(code, face, _DRAWN) if code in characters(face) else None
        if ink is None:
            continue
        if max(ink.shape) > _MAX_ASPECT * min(ink.shape):
            return None
        shapes[row] = _normalized(ink)
    return shapes if shapes.any() else None


def _normalized(ink: np.ndarray) -> np.ndarray:
    """Scale the ink's longer side to a fixed length, centre it and blur it a little.

    The shorter side is brought halfway (geometrically) to the longer one, since a change of the
    aspect ratio alone makes no new character: o and 0, X and the multiplication sign.
    """
    longest = _GRID - 4
    shorter = round(longest * math.sqrt(min(ink.shape) / max(ink.shape)))
    size = (longest, shorter) if ink.shape[1] > ink.shape[0] else (shorter, longest)
    small = Image.fromarray(ink).resize(size, Image.Resampling.BOX)
    canvas = Image.new("L", (_GRID, _GRID))
    canvas.paste(small, ((_GRID - size[0]) // 2, (_GRID - size[1]) // 2))
    return np.asarray(canvas.filter(ImageFilter.BoxBlur(1))).ravel()


if __name__ == "__main__":
    print(textwrap.fill(" ".join(f"{code:04X}" for code in class_characters()), 96))
