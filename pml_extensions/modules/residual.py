"""Removing the last batch normalisation and ReLU of a ResNet."""

from __future__ import annotations

from typing import Literal, TypeVar

from torch import Tensor, nn

from pml_extensions._shared import checks

Trunk = TypeVar("Trunk", bound=nn.Module)

_TORCHVISION, _TIMM = "torchvision.models.resnet", "timm.models.resnet"
#: Forward of the block -> its number of convolutions, each with a BN of the same number.
_DEPTHS = {"BasicBlock.forward": 2, "Bottleneck.forward": 3}


def remove_last_bn_relu(trunk: Trunk, mode: Literal["paper", "official"] = "paper") -> Trunk:
    """Remove the last BN and ReLU of a ResNet (RBR), because a BN neck follows.

    "Stop-Gradient Softmax Loss for Deep Metric Learning", section "Remove the Last BN-ReLU".
    Load the pretrained weights BEFORE: the parameters of the removed BN leave the ``state_dict``;
    all other keys stay as they are.

    The paper and its code differ. torchvision's block has one ReLU module for all its
    activations, and the authors' code replaces that module: their last block is left without any.

    Args:
        trunk: A ResNet, ResNeXt or Wide ResNet of torchvision, or a model of timm's ``ResNet``
            with its BasicBlock or Bottleneck (SE, ECA, anti-aliasing and drop path included);
            cut, wrapped or with another ``fc`` as you like. Changed in place.
        mode: ``"paper"``: without the BN after the last convolution and the ReLU after the
            addition. ``"official"``: without that BN and all activations of the last block, as in
            the authors' code (there for ResNet-50; other depths by analogy).

    Returns:
        The same trunk.

    Raises:
        ValueError: ``trunk`` is another network, or was treated before.
    """
    official = checks.one_of("mode", mode, ("paper", "official")) == "official"
    block = _last_block(trunk)
    last = _depth(block)
    _check_normalization(getattr(block, f"bn{last}"), f"bn{last}")
    names = [f"bn{last}"]
    if type(block).forward.__module__ == _TIMM:
        names += [f"act{i}" for i in range(1 if official else last, last + 1)]
    elif official:
        names.append("relu")
    else:
        # The ReLU is still needed inside, so the forward must change. A new class, as torch's
        # parametrizations do it, keeps hooks, names and references to the block.
        block.__class__ = _BasicBlock if last == 2 else _Bottleneck
    for name in names:
        setattr(block, name, nn.Identity().train(block.training))
    return trunk


class _BasicBlock(nn.Module):
    """torchvision's BasicBlock without its second BN and without the ReLU after the addition."""

    conv1: nn.Module
    bn1: nn.Module
    conv2: nn.Module
    bn2: nn.Module
    relu: nn.Module
    downsample: nn.Module | None

    def forward(self, x: Tensor) -> Tensor:
        out = self.conv2(self.relu(self.bn1(self.conv1(x))))
        return out + (x if self.downsample is None else self.downsample(x))


class _Bottleneck(_BasicBlock):
    """torchvision's Bottleneck without its third BN and without the ReLU after the addition."""

    conv3: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.conv3(self.relu(self.bn2(self.conv2(out))))
        return out + (x if self.downsample is None else self.downsample(x))


def _depth(module: nn.Module) -> int:
    """Return how many convolutions this residual block has, and 0 if its forward is not known."""
    if isinstance(module, _BasicBlock):
        return 3 if isinstance(module, _Bottleneck) else 2
    forward = type(module).forward
    if forward.__module__ not in (_TORCHVISION, _TIMM) or "forward" in vars(module):
        return 0
    return _DEPTHS.get(forward.__qualname__, 0)


def _last_block(trunk: nn.Module) -> nn.Module:
    takes = (
        "remove_last_bn_relu takes one ResNet made of torchvision's or timm's BasicBlock or "
        f"Bottleneck, but got {type(trunk).__name__}"
    )
    if not isinstance(trunk, nn.Module):
        raise ValueError(f"{takes}.")
    modules = list(trunk.modules())
    blocks = [module for module in modules if _depth(module)]
    if not blocks:
        raise ValueError(
            f"{takes}, which has no such block; put torch.nn.Identity() in the place of its last "
            "BN and ReLU yourself."
        )
    inside = {part for block in blocks for part in block.modules()}
    later = set(modules[modules.index(blocks[0]) :]) - inside
    if any(isinstance(module, nn.Conv2d) for module in later):
        raise ValueError(
            f"{takes}, in which other convolutions stand between or after such blocks, so that "
            "none is the last; give it the ResNet alone."
        )
    return blocks[-1]


def _check_normalization(norm: nn.Module, name: str) -> None:
    if isinstance(norm, nn.Identity):
        raise ValueError(
            f"remove_last_bn_relu takes a ResNet with its last BN, but {name} of the last block "
            "is Identity; call it once."
        )
    # By name, because frozen variants are no subclasses of torch's.
    if "batchnorm" not in type(norm).__name__.lower():
        raise ValueError(
            f"remove_last_bn_relu takes a ResNet with batch normalisation, but {name} of the last "
            f"block is {type(norm).__name__}; remove it yourself if that is meant."
        )
