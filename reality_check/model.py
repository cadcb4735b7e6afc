"""Trunk + head + embedder: the network that every method of an experiment trains."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from pml_extensions.modules import (
    AveragePooling,
    BatchNormNeck,
    GeneralizedMeanPooling,
    MaxAveragePooling,
    MaxPooling,
)
from reality_check.config.model import Model
from reality_check.errors import UsageError
from reality_check.objects import build, find_class


class Conv4(nn.Sequential):
    """Four 3x3 convolutions of stride 2 with BatchNorm and ReLU: the small trunk for small images.

    Args:
        channels: of the input image.
        width: channels of every layer.

    Shape: (B, channels, H, W) -> (B, width, ceil(H/16), ceil(W/16)).
    """

    def __init__(self, channels: int, width: int = 32) -> None:
        layers: list[nn.Module] = []
        for index in range(4):
            layers += [
                nn.Conv2d(channels if index == 0 else width, width, 3, 2, 1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ]
        super().__init__(*layers)


#: Trunks with a name of their own; anything else is an import path.
TRUNKS: dict[str, Callable[..., nn.Module]] = {"conv4": Conv4}


#: The names that a model's YAML may say.
POOLINGS: dict[str, Callable[[], nn.Module]] = {
    "average": AveragePooling,
    "max": MaxPooling,
    "average_plus_max": MaxAveragePooling,
    "gem": GeneralizedMeanPooling,
    "flatten": nn.Flatten,
}
#: None of them learns anything: the head has no optimiser of its own.
NORMALIZATIONS: dict[str, Callable[[int], nn.Module]] = {
    "none": lambda width: nn.Identity(),
    "layer_norm": lambda width: nn.LayerNorm(width, elementwise_affine=False),
    "batch_norm": lambda width: BatchNormNeck(width, scale=False, shift=False),
}


class Head(nn.Sequential):
    """Pools a feature map to a vector and normalises it.

    Args:
        pooling: ``average``, ``max``, ``average_plus_max`` (their sum), ``gem`` (generalised mean,
            p = 3) or ``flatten``.
        normalization: ``none``, ``layer_norm`` or ``batch_norm``, both without scale and shift.
        width: of the pooled vectors, F.

    Shape: (B, C, H, W) or (B, F) -> (B, F).
    """

    def __init__(self, pooling: str, normalization: str, width: int) -> None:
        super().__init__(
            OrderedDict(
                pooling=POOLINGS[pooling](), normalization=NORMALIZATIONS[normalization](width)
            )
        )


class Network(nn.Module):
    """Trunk, head and embedder in one module.

    Shape: (B, C, H, W) -> (B, embedding_size).
    """

    def __init__(self, trunk: nn.Module, head: Head, embedder: nn.Module) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = head
        self.embedder = embedder

    def features(self, images: Tensor) -> Tensor:
        """The output of the head, before the embedder: (B, F)."""
        return self.head(self.trunk(images))

    def forward(self, images: Tensor) -> Tensor:
        return self.embedder(self.features(images))


def build_network(
    config: Model, image_shape: tuple[int, int, int], embedding_size: int, seed: int
) -> Network:
    """Build the network with weights drawn from ``seed``; torch's global generator is untouched.

    Args:
        config: the model of the experiment.
        image_shape: (H, W, C) of the data set.
        embedding_size: width of the embedder's output.
        seed: of the initial weights.

    Raises:
        UsageError: an unknown trunk, or one that does not fit the images.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        trunk = _build_trunk(config, image_shape[2])
        pooling = POOLINGS[config.pooling]()
        width = _feature_width(trunk, pooling, image_shape, config.trunk)
        head = Head(config.pooling, config.normalization, width)
        return Network(trunk, head, nn.Linear(width, embedding_size))


def _build_trunk(config: Model, channels: int) -> nn.Module:
    cls: Any
    if "." in config.trunk:
        cls = find_class(config.trunk, "trunk")
    elif config.trunk in TRUNKS:
        cls = TRUNKS[config.trunk]
    else:
        raise UsageError(
            f"there is no trunk named {config.trunk!r}; write {', '.join(TRUNKS)} or an import "
            "path such as my_models.MyTrunk."
        )
    return build(cls, config.arguments, f"trunk {config.trunk}", {"channels": channels})


@torch.no_grad()
def _feature_width(
    trunk: nn.Module, pooling: nn.Module, image_shape: tuple[int, int, int], name: str
) -> int:
    height, width, channels = image_shape
    training = trunk.training
    trunk.eval()
    try:
        maps = trunk(torch.zeros(1, channels, height, width))
    except RuntimeError as error:
        raise UsageError(
            f"trunk {name} does not take images of {height}x{width} with {channels} channels: "
            f"{error}"
        ) from error
    trunk.train(training)
    if maps.dim() not in (2, 4):
        raise UsageError(
            f"trunk {name} must return (B, C, H, W) maps or (B, F) vectors, got a tensor of shape "
            f"{tuple(maps.shape)}."
        )
    return int(pooling(maps).shape[1])
