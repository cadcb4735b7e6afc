"""Random changes of vectors and other float tensors: noise and dropout, both off by default."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from reality_check.config.messages import validate
from reality_check.config.training import Augment
from reality_check.utils.errors import UsageError


class VectorAugmentation:
    """Noise and dropout for samples that are not images; in evaluation they are unchanged.

    Args:
        size: number of values of a sample.
        noise: standard deviation of Gaussian noise, as a fraction of the root mean square of the
            sample's values.
        dropout: probability of setting a value to 0; the others are divided by 1 - ``dropout``.

    Raises:
        UsageError: if an option is out of its range.
    """

    def __init__(self, size: int, *, noise: float = 0.0, dropout: float = 0.0) -> None:
        validate(Augment, {"noise": noise, "dropout": dropout}, "augmentation")
        self.size, self.noise, self.dropout = size, noise, dropout

    @property
    def is_off(self) -> bool:
        """Whether no option is on, so that nothing is random."""
        return not (self.noise or self.dropout)

    def evaluation_transform(self) -> Unchanged:
        """Return the transform of evaluation, which is not random."""
        return Unchanged()

    def draw(self, count: int, generator: torch.Generator) -> np.ndarray:
        """Draw the random numbers of ``count`` samples: float32, shape (count, K), one row each.

        Normal numbers for the noise come first, then uniform numbers for the dropout; each are
        drawn only if the option is on. The generator must be on the CPU.
        """
        numbers = []
        if self.noise:
            numbers.append(torch.randn((count, self.size), generator=generator))
        if self.dropout:
            numbers.append(torch.rand((count, self.size), generator=generator))
        return torch.cat(numbers, dim=1).numpy() if numbers else np.empty((count, 0))

    def apply(self, batch: Tensor, numbers: np.ndarray) -> Tensor:
        """Return a batch, float32 (B, ...), changed by B rows of :meth:`draw`."""
        if self.is_off:
            return batch
        drawn = torch.from_numpy(numbers).to(batch.device, batch.dtype, non_blocking=True)
        values = batch.flatten(1)
        if self.noise:
            level = self.noise * values.square().mean(dim=1, keepdim=True).sqrt()
            values = values + level * drawn[:, : self.size]
        if self.dropout:
            kept = drawn[:, -self.size :] >= self.dropout
            values = values * kept / (1 - self.dropout)
        return values.reshape(batch.shape)


class Unchanged:
    """The transform of evaluation for samples that are not images: it changes nothing."""

    def __call__(self, batch: Tensor) -> Tensor:
        return batch

    def corrupted(self, batch: Tensor, corruption: str, first_index: int) -> Tensor:
        """Raise UsageError, because corruptions are for images only."""
        raise UsageError(
            f"corruption {corruption!r} is one of images, but the samples are none; remove it from "
            "final_metrics."
        )
