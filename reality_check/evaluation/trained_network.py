"""A network that an experiment trained, for use outside the experiment."""

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
    """A trained network, with the settings that its inputs are preprocessed by.

    Attributes:
        network: the ``torch.nn.Module`` in evaluation mode, which maps preprocessed crops
            (B, C, H, W) to embeddings (B, D).
        model: the configuration that the network was built from.
        training: the configuration that it was trained with.
    """

    network: Network
    model: Model
    training: Training

    def embed(self, images: SampleSet) -> Tensor:
        """Embed images, cropped and preprocessed as when the experiment evaluated the network.

        Args:
            images: images of any classes.

        Returns:
            Embeddings that are not normalized, float32 (N, D), on the network's device.

        Raises:
            UsageError: the images do not fit the network's input.
        """
        device = next(self.network.parameters()).device
        pipeline = build_pipeline(images, self.model, self.training.augmentation, device)
        return embed(self.network, self.network, pipeline.evaluation_batches())
