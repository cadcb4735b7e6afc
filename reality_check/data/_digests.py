"""Checksums of samples, computed on all cores."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from reality_check.data.images import Images
from reality_check.data.tensors import Tensors

_CHUNK = 16
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
    return _on_all_cores(lambda row: image_digest(images.image(row)), range(len(images)))


def tensor_digests(tensors: Tensors) -> np.ndarray:
    """Return the sha256 of the bytes of every 1,024 samples: uint8, shape (parts, 32)."""

    def digest(first: int) -> np.ndarray:
        return image_digest(tensors.contiguous(first, first + _TENSORS))

    return _on_all_cores(digest, range(0, len(tensors), _TENSORS))


def _on_all_cores(digest: Callable[[int], np.ndarray], firsts: Sequence[int]) -> np.ndarray:
    def chunk(start: int) -> list[np.ndarray]:
        return [digest(first) for first in firsts[start : start + _CHUNK]]

    with ThreadPoolExecutor(usable_cores()) as threads:
        chunks = threads.map(chunk, range(0, len(firsts), _CHUNK))
        return np.array([row for part in chunks for row in part]).reshape(-1, 32)
