"""Where the tensors of a training live, and how batches are taken from them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from reality_check.data.residency import place
from reality_check.data.store import gather
from reality_check.data.tensors import Tensors


class TensorStore:
    """Samples that are no images, from which batches are drawn; resident where they fit.

    As with :class:`reality_check.data.store.PixelStore`, nothing is copied on a CPU, and a GPU
    holds the whole array where that has room.
    """

    def __init__(self, tensors: Tensors, device: torch.device) -> None:
        self.device = device
        self._dtype = tensors.input_shape.dtype
        self._placed = place(tensors.values, device)
        self._rows = torch.from_numpy(tensors.rows)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def resident(self) -> bool:
        """Whether batches are gathered where they are wanted."""
        return self._placed.tensor.device.type == self.device.type

    def batch(self, rows: np.ndarray) -> Tensor:
        """Gather samples.

        Args:
            rows: int64, shape (B,), of the view that the store was made of.

        Returns:
            Shape (B, ...) on the device: float32, or the integers of the samples.
        """
        batch = gather(self._placed.tensor, self._rows[torch.from_numpy(rows)], self.device)
        return batch.to(self._dtype)
