"""Checksums of samples, computed on all cores."""

from __future__ import annotations

import hashlib

import numpy as np

from reality_check.data._cores import on_all_cores
from reality_check.data.images import Images
from reality_check.data.tensors import Tensors

_TENSORS_PER_DIGEST = 1024


def array_digest(pixels: np.ndarray) -> np.ndarray:
    """Return the sha256 of the bytes of a contiguous array: uint8, shape (32,)."""
    return np.frombuffer(hashlib.sha256(pixels.data).digest(), np.uint8)


def image_digests(images: Images) -> np.ndarray:
    """Return the sha256 of the pixels of each of N images: uint8, shape (N, 32)."""
    digests = on_all_cores(lambda row: array_digest(images.image(row)), len(images))
    return np.array(list(digests)).reshape(-1, 32)


def tensor_digests(tensors: Tensors) -> np.ndarray:
    """Return the sha256 of each part of 1,024 samples: uint8, shape (parts, 32)."""

    def digest(part: int) -> np.ndarray:
        first = part * _TENSORS_PER_DIGEST
        return array_digest(tensors.contiguous(first, first + _TENSORS_PER_DIGEST))

    parts = -(-len(tensors) // _TENSORS_PER_DIGEST)  # rounded up
    return np.array(list(on_all_cores(digest, parts))).reshape(-1, 32)
