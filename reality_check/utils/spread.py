"""A few of many, evenly spread."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def evenly_spread(total: int, most: int) -> NDArray[np.int64]:
    """Indices of at most so many of ``total`` things, the first and the last among them."""
    return np.linspace(0, total - 1, min(most, total)).round().astype(np.int64)
