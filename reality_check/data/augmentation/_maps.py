"""The affine map of each image, from pixels of the output back to pixels of the input."""

from __future__ import annotations

import numpy as np

from reality_check.data.augmentation._windows import Windows


def inverse_maps(angle: np.ndarray, shear: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Return the inverse of each map that shears along y, then along x, then rotates and enlarges.

    Args:
        angle: (B,), in degrees.
        shear: (B, 2), along x and along y, in degrees.
        factor: (B,), the enlargements.

    Returns:
        Matrices (B, 2, 2), y before x, to be applied about the centre.
    """
    radians, (along_x, along_y) = np.radians(angle), np.tan(np.radians(shear.T))
    cos, sin = np.cos(radians) / factor, np.sin(radians) / factor
    # Row x undoes the rotation and the shear along x. The shear along y, which came first, is
    # undone last, so row y is computed from row x.
    inverse = np.empty((len(angle), 2, 2))
    inverse[:, 1, 1] = cos + along_x * sin
    inverse[:, 1, 0] = sin - along_x * cos
    inverse[:, 0, 1] = -along_y * inverse[:, 1, 1] - sin
    inverse[:, 0, 0] = -along_y * inverse[:, 1, 0] + cos
    return inverse


def compose(
    windows: Windows,
    output: tuple[int, int],
    inverse: np.ndarray | None = None,
    shift: np.ndarray | None = None,
    flip: np.ndarray | None = None,
) -> np.ndarray:
    """Compose resize, motion, window and flip into one map per image.

    The motion is shear, rotation, enlargement and shift.

    Args:
        windows: the part of each resized and moved image that becomes the output.
        output: height and width of the output.
        inverse: (B, 2, 2), from :func:`inverse_maps`; None means no motion.
        shift: (B, 2), shift of the content, y before x, as a fraction of the image's sides; given
            with ``inverse``.
        flip: (B,), whether the output is mirrored left and right; None means no flip.

    Returns:
        Matrices (B or 1, 2, 3) that map output positions (y, x, 1) to input positions, in pixels;
        the centre of the first pixel is at 0.5.
    """
    # The output's position p is at start + step * p in the resized image.
    step = windows.extent / output
    start = windows.start
    if flip is not None:
        start, step = np.broadcast_arrays(start, step, subok=False)
        mirror = np.stack([np.zeros_like(flip), flip], axis=1)
        start = np.where(mirror, start + windows.extent, start)
        step = np.where(mirror, -step, step)
    to_stored = windows.sizes / windows.scaled  # from resized images to the stored ones
    if inverse is None:
        offset, linear = start, step[:, :, None] * np.eye(2)
    else:
        assert shift is not None
        centre = windows.scaled / 2  # about which the image is moved
        moved = start - centre - shift * windows.scaled
        offset = (inverse @ moved[:, :, None])[:, :, 0] + centre
        linear = inverse * step[:, None, :]
    parts = (linear * to_stored[:, :, None], (offset * to_stored)[:, :, None])
    count = max(map(len, parts))  # B, or 1 if all images have the same map
    return np.concatenate([np.broadcast_to(p, (count, *p.shape[1:])) for p in parts], axis=2)


def axes_of(maps: np.ndarray, windows: Windows) -> np.ndarray:
    """Return maps without rotation and shear as the ``axes`` of ``_resample.resample``.

    The ``axes`` are offset, step, low and high.
    """
    axes = np.empty((max(len(maps), len(windows.start)), 4, 2))
    axes[:, 0], axes[:, 1] = maps[:, :, 2], maps[:, [0, 1], [0, 1]]  # the step is the diagonal
    axes[:, 2] = windows.start if windows.bounded else 0
    axes[:, 3] = windows.start + windows.extent if windows.bounded else windows.sizes
    return axes
