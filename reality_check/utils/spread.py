"""Evenly spaced indices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def evenly_spread(total: int, most: int) -> NDArray[np.int64]:
    """Return at most ``most`` evenly spaced indices below ``total``, with the first and last."""
    return np.linspace(0, total - 1, min(most, total)).round().astype(np.int64)
