"""Draw images of one character: its faces, bent, thickened, blurred and printed on grey paper.

Positions are computed in float64 and rounded to 1/64 pixel; pixel values are integers. So the
same random numbers give the same bytes on every machine.
"""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from reality_check.data.readers._glyph_fonts import draw, faces_of

_OVERSAMPLING = 2  # points per pixel and axis, which are then averaged
_FRACTION = 64  # positions are rounded to this part of a pixel
_PLUS = ndimage.generate_binary_structure(2, 1)[None]  # a plus of 3 x 3 pixels
_KNOTS = 5  # knots per axis of the random displacement field

# How far an image may differ from its font's drawing. Lengths are fractions of half its side.
_RADIUS = (0.58, 0.88)  # half of the ink's longer side
_ANGLE = 0.17  # radians
_SHEAR = 0.17
_STRETCH = 0.13  # log of the change of the aspect ratio
_SHIFT = 0.08
_BEND = 0.11  # largest displacement of a knot
_INK = (0, 120)
_PAPER = (190, 256)
_NOISE = 40  # largest noise amplitude in grey levels


def draw_class(code: int, count: int, size: int, seed: int) -> np.ndarray:
    """Draw different images of one character: uint8 (count, size, size), dark ink on light paper.

    The images alternate between all faces that have the character. The random numbers depend on the
    seed and the character only.
    """
    random = np.random.default_rng([seed, code])
    drawn = (draw(code, face, 2 * size) for face in faces_of(code))
    inks = [ink for ink in drawn if ink is not None]
    # Every face once in random order, then again, and so on; the number of rounds is rounded up.
    order = np.concatenate(
        [np.argsort(random.random(len(inks))) for _ in range(-(-count // len(inks)))]
    )[:count]
    drawings = _change_weight(_stack([inks[i] for i in order]), random.integers(-1, 3, count))
    extents = np.array([max(inks[i].shape) / 2 for i in order])
    x, y = _draw_positions(count, size * _OVERSAMPLING, extents, random)
    coverage = _average(_sample(drawings, x, y), _OVERSAMPLING)
    return _print_on_paper(_blur(coverage, random.integers(0, 3, count)), random)


def _stack(inks: list[np.ndarray]) -> np.ndarray:
    """Centre drawings on one canvas (M, S, S) with room to thicken around them."""
    side = max(max(ink.shape) for ink in inks) + 8
    canvas = np.zeros((len(inks), side, side), dtype=np.uint8)
    for page, ink in zip(canvas, inks, strict=True):
        top, left = (side - ink.shape[0]) // 2, (side - ink.shape[1]) // 2
        page[top : top + ink.shape[0], left : left + ink.shape[1]] = ink
    return canvas


def _change_weight(drawings: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Thin (weight -1) or thicken (1, 2) strokes; thinning must leave half of a drawing's ink."""
    changed = drawings.copy()
    for times in (1, 2):
        rows = np.flatnonzero(weights >= times)
        changed[rows] = _dilate(changed[rows])
    rows = np.flatnonzero(weights < 0)
    # To thin the ink is to thicken the paper.
    thinner = 255 - _dilate(255 - drawings[rows])
    ink = drawings[rows].sum(axis=(1, 2), dtype=np.int64)
    has_enough = 2 * thinner.sum(axis=(1, 2), dtype=np.int64) >= ink
    changed[rows[has_enough]] = thinner[has_enough]
    return changed


def _dilate(pages: np.ndarray) -> np.ndarray:
    """Dilate grey values with a plus of 3 x 3 pixels."""
    return ndimage.grey_dilation(pages, footprint=_PLUS)


def _draw_positions(
    count: int, points: int, extents: np.ndarray, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw random positions in the drawings for all points of the images.

    Args:
        points: number of points along each axis.
        extents: (count,), half of the ink's longer side in each drawing, in pixels.

    Returns:
        x and y, each (count, points, points), in pixels of the drawing relative to its centre.
    """
    axis = (np.arange(points) + 0.5) * (2 / points) - 1
    # A smooth field of displacements, interpolated between random ones at the knots.
    bend = _BEND * _draw_symmetric(random, (2, count, _KNOTS, _KNOTS))
    splines = _splines(axis)
    moved_x, moved_y = splines @ bend @ splines.T
    shift = _SHIFT * _draw_symmetric(random, (2, count, 1, 1))
    moved_x += axis[None, None, :] - shift[0]
    moved_y += axis[None, :, None] - shift[1]
    a, b, c, d = _draw_linear_maps(count, random)
    radius = _RADIUS[0] + (_RADIUS[1] - _RADIUS[0]) * random.random((count, 1, 1))
    zoom = extents[:, None, None] / radius  # from half sides of the image to pixels of the drawing
    return zoom * (a * moved_x + b * moved_y), zoom * (c * moved_x + d * moved_y)


def _draw_linear_maps(count: int, random: np.random.Generator) -> np.ndarray:
    """Draw rotations, shears and stretches as 2 x 2 matrices: the four entries (count, 1, 1)."""
    shape = (count, 1, 1)
    angle = _ANGLE * _draw_symmetric(random, shape)
    shear = _SHEAR * _draw_symmetric(random, shape)
    stretch = np.exp(_STRETCH * _draw_symmetric(random, shape))
    cos, sin = np.cos(angle), np.sin(angle)
    return np.stack(
        [
            cos * stretch - shear * sin * stretch,
            sin * stretch + shear * cos * stretch,
            -sin / stretch,
            cos / stretch,
        ]
    )


def _draw_symmetric(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return 2 * random.random(shape) - 1


def _splines(axis: np.ndarray) -> np.ndarray:
    """Return the value of each knot's cubic B-spline at each point: (points, _KNOTS).

    The knots are spread evenly over -1..1.
    """
    knots = np.linspace(-1, 1, _KNOTS)
    distance = np.abs(axis[:, None] - knots) * (_KNOTS - 1) / 2
    near = 2 / 3 - distance**2 + distance**3 / 2
    far = np.maximum(2 - distance, 0) ** 3 / 6
    return np.where(distance < 1, near, far)


def _sample(drawings: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Interpolate drawings (M, S, S) at positions (M, P, P) relative to their centres."""
    side = drawings.shape[1]
    column, right = _split_position(x, side)  # a pixel, and 64ths of the way to the one right of it
    row, below = _split_position(y, side)
    flat = drawings.ravel()
    start = np.arange(len(drawings), dtype=np.int32)[:, None, None] * (side * side)
    index = start + row * side + column
    top = flat[index] * (_FRACTION - right) + flat[index + 1] * right
    bottom = flat[index + side] * (_FRACTION - right) + flat[index + side + 1] * right
    return (top * (_FRACTION - below) + bottom * below) // (_FRACTION * _FRACTION)


def _split_position(position: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Split positions into the pixel before them and the fraction of the way to the next one."""
    # Whole fractions from the first pixel's centre on; all are kept inside the drawing.
    fractions = np.rint((position + (side - 1) / 2) * _FRACTION)
    fractions = np.clip(fractions, 0, (side - 1) * _FRACTION - 1).astype(np.int32)
    return fractions // _FRACTION, fractions % _FRACTION


def _average(points: np.ndarray, factor: int) -> np.ndarray:
    """Average squares of ``factor`` x ``factor`` points."""
    count, side = points.shape[0], points.shape[1] // factor
    return points.reshape(count, side, factor, side, factor).sum(axis=(2, 4)) // factor**2


def _blur(coverage: np.ndarray, passes: np.ndarray) -> np.ndarray:
    """Blur each image ``passes`` times with the kernel 1-2-1 along both axes."""
    blurred = coverage.copy()
    for number in range(1, int(passes.max(initial=0)) + 1):
        rows = passes >= number
        across = ndimage.convolve1d(blurred[rows], (1, 2, 1), axis=2, mode="nearest")
        both = ndimage.convolve1d(across, (1, 2, 1), axis=1, mode="nearest")
        blurred[rows] = (both + 8) // 16
    return blurred


def _print_on_paper(coverage: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Turn coverage 0..255 into grey ink on grey paper, with noise of random strength per image."""
    shape = (len(coverage), 1, 1)
    ink, paper = random.integers(*_INK, shape), random.integers(*_PAPER, shape)
    strength = random.integers(0, _NOISE + 1, shape)
    # The sum of two uniform numbers, which is most often near 255.
    noise = random.integers(0, 256, coverage.shape) + random.integers(0, 256, coverage.shape)
    printed = paper - (paper - ink) * coverage // 255 + strength * (noise - 255) // 255
    return np.clip(printed, 0, 255).astype(np.uint8)
