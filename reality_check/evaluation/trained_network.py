"""A network that an experiment trained, for use outside it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from reality_check.config.model import Model
from reality_check.config.training import Training
from reality_check.data import SampleSet
from reality_check.evaluation.scoring import embed
from reality_check.models.network import Network
from reality_check.models.pipeline import build_pipeline


@dataclass(frozen=True)
class TrainedNetwork:
    """A trained network, and how it was shown images.

    Attributes:
        network: the ``torch.nn.Module``, in evaluation mode: preprocessed crops (B, C, H, W) in,
            embeddings (B, D) out.
        model: what it was built from.
        training: what it was trained with.
    """

    network: Network
    model: Model
    training: Training

    def embed(self, images: SampleSet) -> Tensor:
        """Embed images, cropped and preprocessed as when the experiment evaluated the network.

        Args:
            images: of any classes.

        Returns:
            float32 (N, D), raw, on the network's device.

        Raises:
            UsageError: these images do not fit the network's input.
        """
        device = next(self.network.parameters()).device
        pipeline = build_pipeline(images, self.model, self.training.augmentation, device)
        return embed(self.network, self.network, pipeline.evaluation_batches())
