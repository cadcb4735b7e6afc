"""Small trunks for small images, trained from scratch."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Conv4(nn.Sequential):
    """Four 3x3 convolutions of stride 2 with BatchNorm and ReLU: a trunk for small images."""

    def __init__(self, channels: int, width: int = 32) -> None:
        layers: list[nn.Module] = []
        for index in range(4):
            layers += [
                nn.Conv2d(channels if index == 0 else width, width, 3, 2, 1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ]
        super().__init__(*layers)
        _channels_last(self)

    def remove_last_bn_relu(self) -> None:
        """Remove the last BatchNorm and ReLU; see :func:`_without_last_bn_relu`."""
        _without_last_bn_relu(self)


class Conv4Pool(nn.Sequential):
    """Four blocks of 3x3 convolution, BatchNorm, ReLU and 2x2 maximum pooling.

    The "Conv-4" or 64-64-64-64 network of few-shot learning ("Matching Networks for One Shot
    Learning", section 4.1.1; "Prototypical Networks for Few-shot Learning", section 3.1). The
    convolutions have no bias, which the BatchNorm behind them would take off again.

    Args:
        channels: of the input image, at least 16 pixels high and wide.
        width: channels of every layer.

    Shape: (B, channels, H, W) -> (B, width, H // 16, W // 16).
    """

    def __init__(self, channels: int, width: int = 64) -> None:
        layers: list[nn.Module] = []
        for index in range(4):
            layers += [
                nn.Conv2d(channels if index == 0 else width, width, 3, 1, 1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
                nn.MaxPool2d(2),
            ]
        super().__init__(*layers)
        _channels_last(self)

    def remove_last_bn_relu(self) -> None:
        """Remove the last BatchNorm and ReLU; see :func:`_without_last_bn_relu`."""
        _without_last_bn_relu(self)


def _without_last_bn_relu(network: nn.Sequential) -> None:
    """End with the last convolution (and pooling), because a BatchNorm neck follows.

    For these plain trunks what "Stop-Gradient Softmax Loss for Deep Metric Learning" does to the
    last block of a ResNet. All other layers keep their names in the ``state_dict``.
    """
    last = max(i for i, layer in enumerate(network) if isinstance(layer, nn.BatchNorm2d))
    for index in (last, last + 1):
        network[index] = nn.Identity()


def _channels_last(network: nn.Module) -> None:
    """Lay out the weights so that CPUs take the faster kernels (by a third, with pooling more)."""
    movable: Any = network  # older stubs of torch do not know memory_format here
    movable.to(memory_format=torch.channels_last)
