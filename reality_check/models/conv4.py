"""Small trunks for small images, trained from scratch."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class _FourBlocks(nn.Sequential):
    """Four blocks of 3x3 convolution, BatchNorm and ReLU, each with pooling if ``pool``."""

    def __init__(self, channels: int, width: int, stride: int, pool: bool) -> None:
        layers: list[nn.Module] = []
        for index in range(4):
            layers += [
                nn.Conv2d(channels if index == 0 else width, width, 3, stride, 1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ]
            if pool:
                layers.append(nn.MaxPool2d(2))
        super().__init__(*layers)
        # In this layout CPUs use faster kernels (by a third, or more with pooling).
        untyped: Any = self  # older stubs of torch do not know memory_format here
        untyped.to(memory_format=torch.channels_last)

    def remove_last_bn_relu(self) -> None:
        """End with the last convolution (and pooling), because a BatchNorm neck follows.

        This does to plain trunks what "Stop-Gradient Softmax Loss for Deep Metric Learning" does to
        the last block of a ResNet. All other layers keep their names in the ``state_dict``.
        """
        last = max(i for i, layer in enumerate(self) if isinstance(layer, nn.BatchNorm2d))
        for index in (last, last + 1):  # the BatchNorm and its ReLU
            self[index] = nn.Identity()


class Conv4(_FourBlocks):
    """Four 3x3 convolutions of stride 2 with BatchNorm and ReLU: a trunk for small images."""

    def __init__(self, channels: int, width: int = 32) -> None:
        super().__init__(channels, width, stride=2, pool=False)


class Conv4Pool(_FourBlocks):
    """Four blocks of 3x3 convolution, BatchNorm, ReLU and 2x2 maximum pooling.

    This is the "Conv-4" or 64-64-64-64 network of few-shot learning ("Matching Networks for One
    Shot Learning", section 4.1.1; "Prototypical Networks for Few-shot Learning", section 3.1). The
    convolutions have no bias, because the BatchNorm after them would subtract it.

    Args:
        channels: channels of the input images, which are at least 16 pixels high and wide.
        width: number of channels of every layer.

    Shape: (B, channels, H, W) -> (B, width, H // 16, W // 16).
    """

    def __init__(self, channels: int, width: int = 64) -> None:
        super().__init__(channels, width, stride=1, pool=True)
