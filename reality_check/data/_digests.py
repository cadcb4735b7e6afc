"""Checksums of samples, computed on all cores."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from reality_check.data.images import Images
from reality_check.data.tensors import Tensors

_CHUNK = 64
#: Tensors with one checksum together.
_TENSORS = 1024


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def image_digest(pixels: np.ndarray) -> np.ndarray:
    """Return the sha256 of the bytes of one contiguous image: uint8, shape (32,)."""
    return np.frombuffer(hashlib.sha256(pixels.data).digest(), np.uint8)


def image_digests(images: Images) -> np.ndarray:
    """Return the sha256 of the pixels of each of N images: uint8, shape (N, 32)."""
    digests = np.empty((len(images), 32), np.uint8)

    def fill(first: int) -> None:
        for row in range(first, min(first + _CHUNK, len(images))):
            digests[row] = image_digest(images.image(row))

    _on_all_cores(fill, range(0, len(images), _CHUNK))
    return digests


def tensor_digests(tensors: Tensors) -> np.ndarray:
    """Return the sha256 of the bytes of every 1,024 samples: uint8, shape (parts, 32)."""
    parts = range(0, len(tensors), _TENSORS)
    digests = np.empty((len(parts), 32), np.uint8)

    def fill(first: int) -> None:
        digests[first // _TENSORS] = image_digest(tensors.contiguous(first, first + _TENSORS))

    _on_all_cores(fill, parts)
    return digests


def _on_all_cores(fill: Callable[[int], None], parts: Iterable[int]) -> None:
    with ThreadPoolExecutor(usable_cores()) as threads:
        list(threads.map(fill, parts))
