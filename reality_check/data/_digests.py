"""One checksum per image, computed on all cores."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from reality_check.data.images import Images

_CHUNK = 64


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def image_digest(pixels: np.ndarray) -> np.ndarray:
    """Return the sha256 of the bytes of one contiguous image: uint8, shape (32,)."""
    return np.frombuffer(hashlib.sha256(pixels.data).digest(), np.uint8)


def image_digests(images: Images) -> np.ndarray:
    """Return the sha256 of the pixels of each image.

    Args:
        images: N images; every one is read.

    Returns:
        uint8, shape (N, 32).
    """
    digests = np.empty((len(images), 32), np.uint8)

    def fill(first: int) -> None:
        for row in range(first, min(first + _CHUNK, len(images))):
            digests[row] = image_digest(images.image(row))

    with ThreadPoolExecutor(usable_cores()) as threads:
        list(threads.map(fill, range(0, len(images), _CHUNK)))
    return digests
