"""Change the channels of a library network's input, and the stride of its last stage."""

from __future__ import annotations

from torch import nn

from reality_check.utils.errors import UsageError


def sum_input_channels(trunk: nn.Module) -> None:
    """Make an RGB trunk take grey images, with the output for images repeated in three channels.

    The weights of the first convolution are summed over its three input channels.
    """
    conv = next(module for module in trunk.modules() if isinstance(module, nn.Conv2d))
    conv.in_channels = 1
    conv.weight = nn.Parameter(conv.weight.detach().sum(dim=1, keepdim=True))


def set_last_stride_to_one(trunk: nn.Module, title: str) -> None:
    """Let the last stage of a ResNet keep the size of its maps.

    As in the authors' code of SGSL and in re-identification, maps are then 14x14 for images of
    224x224. There is no dilation, and no weight changes.

    Args:
        trunk: a ResNet of torchvision or timm; changed in place.

    Raises:
        UsageError: if the trunk is no ResNet, or its last stage does not halve its maps by
            convolutions.
    """
    stage = getattr(trunk, "layer4", None)
    if stage is None:
        raise UsageError(
            f"last_stride: 1 is for ResNets, whose last stage is layer4, but the {title} is a "
            f"{type(trunk).__name__} without one; remove last_stride."
        )
    strided = [  # convolutions, and in some networks poolings
        module
        for module in stage.modules()
        if not list(module.children()) and getattr(module, "stride", 1) not in (1, (1, 1))
    ]
    others = {type(module).__name__ for module in strided if not isinstance(module, nn.Conv2d)}
    if others or not strided:
        reason = f"halves its maps by {', '.join(sorted(others))}" if others else "has stride 1"
        raise UsageError(
            f"last_stride: 1 changes convolutions of stride 2, but the last stage of the {title} "
            f"{reason}; remove last_stride, or choose a plain ResNet such as resnet50."
        )
    for module in strided:
        module.stride = (1, 1)
